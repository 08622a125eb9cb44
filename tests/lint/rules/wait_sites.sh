# shellcheck shell=bash
# Release builds cannot drop waits (runtime/thread/wait_site.h): each source that can is compiled as
# in a release, and has no symbol fy__wait_drop*.

check() {
    local compiler=${CC:-cc} temp source files status=0
    if ! command -v "$compiler" >/dev/null 2>&1 || ! command -v nm >/dev/null 2>&1; then echo "no $compiler or no nm here" && return 77; fi
    temp=$(mktemp -d) || return 1
    mapfile -t files < <(grep -rlE 'fy__wait_drop' runtime alloc transfer --include='*.c' | LC_ALL=C sort)
    for source in "${files[@]}"; do
        if ! "$compiler" -std=gnu11 -O1 -D_GNU_SOURCE -DNDEBUG -I. -Iinclude -c "$source" -o "$temp/object.o" 2>"$temp/log"; then
            echo "$source:1: does not compile as in a release:" && head -n 3 "$temp/log"
            status=1
            continue
        fi
        nm "$temp/object.o" | awk -v file="$source" '$NF ~ /^fy__wait_drop/ { print file ":1: a release has the symbol " $NF; found = 1 }
                                                     END { exit found }' || status=1
    done
    rm -rf "$temp"
    return $status
}

plant() { echo 'fy__wait_site_t fy__wait_dropped;' >>runtime/thread/wait_site.c; }
