# shellcheck shell=bash
# An op of opset/ops.def is complete: its formula or kernels, gradient, typed call, case and line of
# the changelog are there, and what scripts/opset.sh writes is current.

# rows: lines "ENUM name kind gradient kernel" of the ops; kind: UNARY, SCALED, BINARY, SLOPE,
# COMPARE, TEST, OP.
rows() {
    awk '
        /^(UNARY|SCALED|BINARY|SLOPE|COMPARE|TEST|OP)\(/ { text = "" }
        { text = text $0 }
        /"\)$/ && text ~ /^[A-Z]+\([0-9]/ {
            kind = text; sub(/\(.*/, "", kind)
            split(text, part, /[,(] */)
            rule = match(text, /BACK\([a-z0-9_]+/) ? substr(text, RSTART + 5, RLENGTH - 5) : "-"
            kernel = match(text, /KERNEL\([a-z0-9_]+/) ? substr(text, RSTART + 7, RLENGTH - 7) : "-"
            print part[3], part[4], kind, rule, kernel
            text = ""
        }' opset/ops.def
}

check() {
    local upper name kind rule kernel formulas gradients kernels cases oracles
    mapfile -t formulas < <(find_files '*.h' -- opset/formulas)
    mapfile -t gradients < <(find_files '*.c' -- ops/tape)
    mapfile -t kernels < <(find_files '*.c' -- backends/kernels)
    mapfile -t cases < <(find_files '*.def' -- tests/ops)
    mapfile -t oracles < <(find_files 'oracle*.c' -- tests/support)
    {
        rows | while read -r upper name kind rule kernel; do
            has() { # has WHAT PATTERN FILE...
                local what=$1 pattern=$2
                shift 2
                if ! grep -qsE "$pattern" "$@" /dev/null; then echo "opset/ops.def:1: op $name has no $what"; fi
            }
            case $kind in
            UNARY | SCALED | BINARY | SLOPE) has "formula fy__$name in opset/formulas/" "fy__${name}_##sfx\(" "${formulas[@]}" ;;
            OP) has "host kernel fy__run_$kernel in backends/kernels/" "fy__run_$kernel\(" "${kernels[@]}" ;;
            esac
            if [ "$rule" != - ]; then has "gradient fy__back_$rule in ops/tape/" "fy__back_$rule\(|SLOPE_RULE\($rule," "${gradients[@]}"; fi
            has "typed call in include/ferry/ops.h" "fy_$name\(" include/ferry/ops.h
            has "case in tests/ops/" "^ *[A-Z_]*\(${upper}[,)]" "${cases[@]}"
            has "oracle in tests/support/" "FY_OP_$upper\b|[(,] *${upper}[,)]" "${oracles[@]}" "${cases[@]}"
        done
        if [ -x scripts/opset.sh ]; then scripts/opset.sh --check; fi
    } | report
}

plant() { sed -i 's/^UNARY(5, /UNARY(5,  PLANTED,     planted,     NUMBER, cheap, KEEP, CONSTANT, "planted")\n&/' opset/ops.def; }
