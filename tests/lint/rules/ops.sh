# shellcheck shell=bash
# An op of the table is complete: its row, typed call, host kernel, CUDA kernel, case row and line in the docs are all there.

check() {
    local name upper
    grep -oE 'X\([A-Z][A-Z0-9_]*, [a-z0-9_]+\)' include/ferry/op.h | sort -u | sed 's/X(//; s/,//; s/)//' | while read -r upper name; do
        has() { # has WHAT PATTERN FILE...
            local what=$1 pattern=$2
            shift 2
            if ! grep -qsE "$pattern" "$@"; then echo "include/ferry/op.h:1: op $name has no $what"; fi
        }
        has "row in ops/optable.def" "(^|[^A-Za-z0-9_])($upper|$name|\"$name\")([^A-Za-z0-9_]|$)" ops/optable.def
        has "typed call in include/ferry/ops.h" "fy_$name(_[a-z]+)?\(|FY_OP_$upper([^A-Z0-9_]|$)" include/ferry/ops.h ops/typed/*.c
        has "host kernel in backends/kernels/" "(FY_OP_|[(,] *)$upper([^A-Z0-9_]|$)" backends/kernels/*.[ch]
        has "CUDA kernel in backends/cuda/" "(FY_OP_|[(,] *)$upper([^A-Z0-9_]|$)" backends/cuda/*.c backends/cuda/*.h backends/cuda/*.cu backends/cuda/*.cuh backends/cuda/*.def
        has "case in tests/ops/" "FY_OP_$upper([^A-Z0-9_]|$)|[(,{] *$upper *,|\"$name\"|fy_$name\(" tests/ops/*
        has "line in docs/ops.md" "(^|[^A-Za-z0-9_])(fy_)?$name([^A-Za-z0-9_]|$)" docs/ops.md
    done | report
}

plant() { sed -i 's/^    X(ARANGE, arange)/    X(PLANTED, planted) X(ARANGE, arange)/' include/ferry/op.h; }
