# shellcheck shell=bash
# C, CUDA and C++ sources are as clang-format leaves them (.clang-format). `make format` repairs.

check() {
    local files
    if ! command -v clang-format >/dev/null 2>&1; then echo "no clang-format here" && return 77; fi
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' -- include runtime alloc transfer ops backends train tools examples bench tests)
    clang-format --dry-run --Werror "${files[@]}" 2>&1 | sed -nE '/: (error|warning):/s/ \[-W.*//p' | report
}

plant() { printf 'int  f( void );\n' >>runtime/planted.h; }
