# shellcheck shell=bash
# No folder of a developer's machine, no unresolved merge, no tab or space at a line's end, a
# newline at the end of each text file.

check() {
    local files
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.hpp' '*.def' '*.md' '*.sh' '*.cmake' '*.txt' '*.json' '*.in' '*.py' run nightly debian13 check planted Makefile -- .)
    {
        grep -nE '(^|[^A-Za-z0-9_.])/(work|home|root)/[a-z]' "${files[@]}" /dev/null | grep -v '^tests/lint/rules/hygiene.sh' | sed 's/\(^[^:]*:[0-9]*:\).*/\1 a path of one machine/'
        grep -nE '^(<<<<<<<|>>>>>>>|=======$)' "${files[@]}" /dev/null | sed 's/\(^[^:]*:[0-9]*:\).*/\1 an unresolved merge/'
        grep -nE '[[:blank:]]+$' "${files[@]}" /dev/null | grep -v '\.md:' | sed 's/\(^[^:]*:[0-9]*:\).*/\1 a blank at the end of the line/'
        grep -nE '^ *	' "${files[@]}" /dev/null | grep -v 'Makefile' | sed 's/\(^[^:]*:[0-9]*:\).*/\1 a tab/'
        # With -z a file is one line: no text has a NUL in it. (/dev/null has no newline either.)
        grep -LzP '\n\z' "${files[@]}" /dev/null | sed '/^\/dev\/null$/d; s/$/:1: no newline at the end/'
    } | report
}

plant() { printf 'int x;   \n' >>runtime/planted.h; }
