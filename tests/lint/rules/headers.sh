# shellcheck shell=bash
# Each public header compiles alone, as C11 and as C++17, without a warning from any installed
# compiler.

check() {
    local header language compiler temp status=0
    temp=$(mktemp -d) || return 1
    for compiler in gcc g++ clang clang++; do
        if ! command -v "$compiler" >/dev/null 2>&1; then continue; fi
        case "$compiler" in *++) language="-x c++ -std=c++17" ;; *) language="-x c -std=c11" ;; esac
        for header in $(find_files '*.h' -- include); do
            echo "#include <${header#include/}>" >"$temp/alone"
            # shellcheck disable=SC2086  # two options are meant
            if ! "$compiler" $language -Wall -Wextra -Wpedantic -Wundef -Werror -fsyntax-only -Iinclude "$temp/alone" >"$temp/log" 2>&1; then
                echo "$header:1: not clean alone with $compiler $language:"
                grep -E 'error|warning' "$temp/log" | head -n 3 | sed 's/^/  /'
                status=1
            fi
        done
    done
    rm -rf "$temp"
    return $status
}

plant() { printf '#ifndef P_H_\n#define P_H_\nint fy_planted(size_t n);\n#endif\n' >include/ferry/planted.h; }
