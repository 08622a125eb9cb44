#!/usr/bin/env bash
# Writes, from opset/ops.def, opset/attrs.def and the errors that tests/ops/cases.def checks, the two files that the preprocessor cannot derive:
# include/ferry/op_list.h and the table of docs/ops.md. --check: lists those that are not current. --next: the number of a new op.
# Usage: scripts/opset.sh [--check|--next]
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
header=include/ferry/op_list.h page=docs/ops.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line an op, fields divided by @: number, ENUM, name, flags, dtypes, attributes, gradient, faults, operands, summary; in the
# order of ops.def. An operand is in(name:dtypes) or out(name:dtypes), without blanks.
ops() {
    "${CC:-cc}" -E -P -x c -I. - <<'END' | grep '^@'
#define ROW(number, ENUM, name, flags, dtypes, attrs, shape, cost, back, host, cuda, faults, operands, summary) @number@ENUM@name@flags@dtypes@attrs@OPEN back@OPEN faults@OPEN operands@summary
#define CONSTANT constant
#define REFUSED none
#define BACK(...) yes
#define SAFE safe
#define INDEXES(...) faults
#define IN(i, name, dtypes) in(name:dtypes)
#define MAYBE(i, name, dtypes) in([name]:dtypes)
#define MANY(i, name, dtypes) in(name...:dtypes)
#define OUT(i, name, dtypes) out(name:dtypes)
#define INOUT(i, name, dtypes) out(+name:dtypes)
#define MAYBE_INOUT(i, name, dtypes) out(+[name]:dtypes)
#include "opset/ops.def"
END
}
ops | sed 's/^@ *//; s/ *@ */@/g' | awk -F@ -v OFS=@ '{ gsub(/ /, "", $9); print }' >"$work/ops"
sort -t@ -k1,1n "$work/ops" >"$work/by-number"
awk -F@ '$1 != NR - 1 { print "opset/ops.def:1: op " $3 " has number " $1 ", expected " NR - 1 ": numbers are 0, 1, ..., each once"; exit 1 }' \
    "$work/by-number" || exit 1
count=$(wc -l <"$work/by-number")
if [ "${1:-}" = --next ]; then echo "$count" && exit; fi

# One line an op: ENUM, error, what it is relative to, error of the gradient.
printf '#define OP(ENUM, dtypes, error, of, gradient) @ENUM@error@of@gradient\n#include "tests/ops/cases.def"\n' |
    "${CC:-cc}" -E -P -x c -I. - | grep '^@' | sed 's/^@ *//; s/ *@ */@/g' >"$work/errors"

# init SET: the macro of the set's defaults.
init() {
    printf '#define ATTRS(set, type, ...) @set __VA_ARGS__\n#define FIELD(type, field, kind, fallback, range) |fallback\n#include "opset/attrs.def"\n' |
        "${CC:-cc}" -E -P -x c -I. - | tr -d '\n' | tr '@' '\n' |
        awk -F'|' -v set="$1" '{ gsub(/ /, "") } $1 == set {
            printf "#define FY_%s_ATTRS_INIT \\\n    { ", toupper(set)
            for (i = 2; i <= NF; i++) printf "%s%s", $i, i < NF ? ", " : " }\n"
        }'
}

{
    cat <<'END'
/* The numbers and names of the ops, and the defaults of some attribute structs.
 * Written by scripts/opset.sh from opset/ops.def and opset/attrs.def: do not edit. */
#ifndef FERRY_OP_LIST_H_
#define FERRY_OP_LIST_H_

/* clang-format off */
/* X(ENUM, name), in the order of the numbers, which are part of the ABI. */
#define FY_OP_LIST(X) \
END
    awk -F@ -v n="$count" '{ printf "    X(%s, %s)%s\n", $2, $3, NR < n ? " \\" : "" }' "$work/by-number"
    printf '\n/* FY_OP_ADD, ...: the numbers of the built-in ops. */\nenum {\n'
    awk -F@ '{ printf "    FY_OP_%s = %d,\n", $2, $1 }' "$work/by-number"
    printf '    FY_OP_BUILTIN_COUNT = %d\n};\n\n' "$count"
    for set in conv2d class_loss adam adadelta rmsprop lars lamb update_scaling batch_norm batch_norm_inference; do init "$set"; done
    printf '/* clang-format on */\n\n#endif\n'
} >"$work/op_list.h"

{
    printf '| op | sources | results | dtypes | computes | error | gradient | |\n|---|---|---|---|---|---|---|---|\n'
    awk -F@ '
        NR == FNR { error[$1] = $3 == "EXACT" ? "0" : $2 " " tolower(substr($3, 1, 1)); back[$1] = $4; next }
        function operands(text, side, parts, out) {
            while (match(text, side "\\([^)]*\\)")) {
                split(substr(text, RSTART + length(side) + 1, RLENGTH - length(side) - 2), parts, ":")
                out = out (out ? ", " : "") parts[1] (parts[2] == "T" ? "" : " " tolower(parts[2]))
                text = substr(text, RSTART + RLENGTH)
            }
            return out
        }
        {
            notes = ""
            if ($4 ~ /ACC/) notes = notes ", adds"
            if ($4 ~ /GIVEN/) notes = notes ", given"
            if ($8 == "faults") notes = notes ", faults"
            if (match($4, /LOW|FULL|WIDEST/)) notes = notes ", " tolower(substr($4, RSTART, RLENGTH))
            summary = substr($10, 2, length($10) - 2)
            gsub(/\|/, "\\|", summary)
            if (!($2 in error)) { print "tests/ops/cases.def:1: op " $3 " has no OP row" >"/dev/stderr"; exit 1 }
            printf "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", $3, operands($9, "in"), operands($9, "out"), tolower($5), summary, \
                error[$2], $7 == "yes" ? back[$2] : $7, substr(notes, 3)
        }' "$work/errors" "$work/ops"
} >"$work/table"
begin='<!-- written by scripts/opset.sh from opset/ops.def -->' end='<!-- end of written -->'
awk -v begin="$begin" -v end="$end" -v table="$work/table" '
    $0 == end { inside = 0 }
    !inside { print }
    $0 == begin { inside = 1; while ((getline line <table) > 0) print line }' "$page" >"$work/page"

status=0
update() { # update NEW FILE
    if cmp -s "$1" "$2"; then return; fi
    if [ "$check" = 1 ]; then
        echo "$2:1: is not what scripts/opset.sh makes of opset/: run it"
        status=1
    else
        cat "$1" >"$2" && echo "$2: written"
    fi
}
check=0
if [ "${1:-}" = --check ]; then check=1; fi
update "$work/op_list.h" "$header"
update "$work/page" "$page"
exit $status
