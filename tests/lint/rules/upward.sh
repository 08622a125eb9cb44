# shellcheck shell=bash
# Calls against the direction of the includes, which only the linker connects, are those that the
# table in docs/architecture.md lists. runtime/wire.c alone may call everything.

# upward_calls OBJECT...: lines "from to function", sorted; `from` and `to` are folders. Objects are
# named FOLDER/.../NAME.c.o, relative to the current folder.
upward_calls() {
    nm -A "$@" | awk '
        BEGIN { rank["runtime"] = 1; rank["alloc"] = 2; rank["transfer"] = 3; rank["ops"] = 4 }
        {
            split($1, part, ":"); file = part[1]; type = $(NF - 1); name = $NF
            if (type ~ /^[TDBRVWC]$/) defined[name] = file
            else if (type == "U") { from[++count] = file; used[count] = name }
        }
        function folder(file) { sub(/\/.*/, "", file); return file }
        END {
            for (i = 1; i <= count; i++) {
                if (!(used[i] in defined) || from[i] == "runtime/wire.c.o") continue
                a = folder(from[i]); b = folder(defined[used[i]])
                if (a == b || (a in rank && b in rank && rank[b] < rank[a])) continue
                print a, b, used[i]
            }
        }' | LC_ALL=C sort -u
}

check() {
    local page=docs/architecture.md root=$PWD temp kind
    if [ -z "$FERRY_BUILD_DIR" ] || [ ! -d "$FERRY_BUILD_DIR/CMakeFiles/ferry_core.dir" ]; then
        echo "no object files: name a build folder with --build"
        return 77
    fi
    temp=$(mktemp -d) || return 1
    for kind in core kernels; do
        # An object whose source is gone is of an earlier build.
        (cd "$FERRY_BUILD_DIR/CMakeFiles/ferry_$kind.dir" && find . -name '*.c.o' | sed 's|^\./||' | while read -r object; do
            if [ -e "$root/${object%.o}" ]; then mkdir -p "$temp/objects/${object%/*}" && ln -s "$PWD/$object" "$temp/objects/$object"; fi
        done)
    done
    (cd "$temp/objects" && find . -name '*.c.o' | sed 's|^\./||' | LC_ALL=C sort | { mapfile -t objects && upward_calls "${objects[@]}"; }) >"$temp/found"
    # shellcheck disable=SC2016  # backquotes of Markdown
    sed -nE 's/^\| `([a-z]+)\/` \| `([a-z]+)\/` \| (`fy_.*) \|$/\1 \2 \3/p' "$page" |
        awk '{ for (i = 3; i <= NF; i++) { gsub(/[`,]/, "", $i); print $1, $2, $i } }' | LC_ALL=C sort -u >"$temp/listed"
    {
        LC_ALL=C comm -13 "$temp/listed" "$temp/found" | sed "s|^\([a-z]*\) \([a-z]*\) \(.*\)|$page:1: the table has no call from \1/ to \2/: \3|"
        LC_ALL=C comm -23 "$temp/listed" "$temp/found" | sed "s|^\([a-z]*\) \([a-z]*\) \(.*\)|$page:1: there is no call from \1/ to \2/: \3|"
    } | report
    local status=$?
    rm -rf "$temp"
    return $status
}

# shellcheck disable=SC2016  # backquotes of Markdown
plant() { sed -i 's/`fy__tape_view`/`fy__planted`/' docs/architecture.md; }
