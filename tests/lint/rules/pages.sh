# shellcheck shell=bash
# Links of pages are valid: a relative link names an existing file, and a heading of it. Each
# decision has a number, the same in the file's name, in its heading and in
# docs/decisions/README.md, where they are listed in order.
# The changelog has no long line twice: merges repeat lines.

# links_of FILE...: lines "file:number:target" of relative links outside code blocks.
links_of() {
    awk 'FNR == 1 { fenced = 0 }
         /^```/ { fenced = !fenced; next }
         fenced { next }
         { line = $0
           while (match(line, /\]\([^() ]+\)/)) {
               target = substr(line, RSTART + 2, RLENGTH - 3); line = substr(line, RSTART + RLENGTH)
               if (target !~ /^[a-z]+:/) print FILENAME ":" FNR ":" target
           } }' "$@"
}

# anchors_of PAGE: its headings as links name them.
anchors_of() {
    awk '/^```/ { fenced = !fenced } !fenced && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

check() {
    local page line target path anchor file number
    local pages=()
    mapfile -t pages < <(find_files '*.md' -- .)
    {
        while IFS=: read -r page line target; do
            path=${target%%#*} anchor=
            if [[ $target == *#* ]]; then anchor=${target#*#}; fi
            if [ -n "$path" ]; then path=$(dirname "$page")/$path; else path=$page; fi
            if [ ! -e "$path" ]; then
                echo "$page:$line: links to $target, which is not there"
            elif [ -n "$anchor" ] && [[ $path == *.md ]] && ! anchors_of "$path" | grep -qxF -- "$anchor"; then
                echo "$page:$line: links to $target, which has no such heading"
            fi
        done < <(links_of "${pages[@]}")
        for file in docs/decisions/[0-9]*.md; do
            number=$(basename "$file" | cut -c1-4)
            if [ "$(find docs/decisions -name "$number-*.md" | wc -l)" -ne 1 ]; then echo "$file:1: another decision has the number $number, too"; fi
            if ! head -n 1 "$file" | grep -q "^# $number: "; then echo "$file:1: the heading does not begin with '# $number: '"; fi
            if ! grep -qF "| [$number]($(basename "$file")) |" docs/decisions/README.md; then
                echo "docs/decisions/README.md:1: does not list $(basename "$file")"
            fi
        done
        grep -o '^| \[[0-9]*\]' docs/decisions/README.md | LC_ALL=C sort -c 2>/dev/null || echo "docs/decisions/README.md:1: not in order"
        awk 'length($0) > 40 && seen[$0]++ { print FILENAME ":" FNR ": a merge has repeated this line" }' \
            CHANGELOG.md
    } | report
}

plant() { printf '# 0001: Another first one\n' >docs/decisions/0001-another.md; }
