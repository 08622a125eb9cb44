# shellcheck shell=bash
# An op of the table is complete: its row, typed call, host kernel, CUDA kernel, case row and line
# in the docs all exist.

check() {
    local name upper host cuda cases
    mapfile -t host < <(find_files '*.c' '*.h' -- backends/kernels)
    mapfile -t cuda < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.def' -- backends/cuda)
    mapfile -t cases < <(find_files '*.def' -- tests/ops)
    grep -oE 'X\([A-Z][A-Z0-9_]*, [a-z0-9_]+\)' include/ferry/op.h | grep -v 'ENUM' | sort -u | sed 's/X(//; s/,//; s/)//' | while read -r upper name; do
        has() { # has WHAT PATTERN FILE...
            local what=$1 pattern=$2
            shift 2
            if ! grep -qsE "$pattern" "$@" /dev/null; then echo "include/ferry/op.h:1: op $name has no $what"; fi
        }
        has "row in ops/optable.def" "^OP\($upper, *$name," ops/optable.def
        has "typed call in include/ferry/ops.h" "fy_$name\(" include/ferry/ops.h
        has "host kernel in backends/kernels/" "(FY_OP_|[(,] *)$upper([^A-Z0-9_]|$)" "${host[@]}"
        has "CUDA kernel in backends/cuda/" "(FY_OP_|[(,] *)$upper([^A-Z0-9_]|$)" "${cuda[@]}"
        has "case in tests/ops/cases.def" "^ *[A-Z_]*\(${upper}[,)]" "${cases[@]}"
        has "line in docs/ops.md" "^\|.*\`$name\`" docs/ops.md
    done | report
}

plant() { sed -i 's/X(ARANGE, arange)/X(PLANTED, planted) X(ARANGE, arange)/' include/ferry/op.h; }
