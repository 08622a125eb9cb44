# shellcheck shell=bash
# C, CUDA and C++ sources are formatted by clang-format 14 (.clang-format); other versions break
# lines differently. `make format` repairs.

check() {
    local files
    if ! command -v clang-format >/dev/null 2>&1; then echo "no clang-format here" && return 77; fi
    if ! clang-format --version | grep -q 'version 14\.'; then echo "not clang-format 14: $(clang-format --version)" && return 77; fi
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.hpp' -- include opset runtime alloc transfer ops backends train dist python tools examples bench tests)
    clang-format --dry-run --Werror "${files[@]}" 2>&1 | sed -nE '/: (error|warning):/s/ \[-W.*//p' | report
}

plant() { printf 'int  f( void );\n' >>runtime/planted.h; }
