#!/usr/bin/env bash
# `ferry experiment speedups`: every row runs, its own conditions hold, and the figures that are the
# same on every machine show what the technique promises. The text of conditions is checked as well:
# a row that checked nothing would fail here.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

# value ROW KEY: of the JSON document of the last command
value() { awk -v row="$1" -v key="\"$2\":" '$1 == "\"row\":" { here = ($2 + 0 == row) } here && $1 == key { sub(/^[^:]*: */, ""); sub(/,$/, ""); gsub(/"/, ""); print; exit }' "$work/out"; }
# holds ROW CONDITION: of a and b, the figures without and with the technique
holds() {
    local without with
    without=$(value "$1" without) with=$(value "$1" with)
    awk -v a="$without" -v b="$with" "BEGIN { exit !($2) }" || fail "row $1: not $2 with a = $without, b = $with"
}
# tells ROW REGEX: what the row says that it has checked
tells() { value "$1" holds | grep -qE -- "$2" || fail "row $1 says '$(value "$1" holds)', nothing like '$2'"; }
# near ROW SHARE: the first two numbers with a decimal point in the row's text differ by less
near() {
    value "$1" holds | grep -oE '[0-9]+\.[0-9]+' | head -2 | tr '\n' ' ' | awk -v most="$2" '{ exit !(NF == 2 && $1 > 0 && ($1 - $2) ^ 2 <= (most * $1) ^ 2) }' ||
        fail "row $1: numbers are not within $2: $(value "$1" holds)"
}

expect 0 experiment speedups --device sim:0 --json
for row in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    [ "$(value $row status)" = ok ] || fail "row $row is '$(value $row status)': $(value $row holds)"
done
[ "$(grep -c '"row":' "$work/out")" = 19 ] || fail "$(grep -c '"row":' "$work/out") rows, not 19"
tells 1 '\.04 \.52 1 \.950485 \.\.\. \.000004, to [0-9]e-(0[7-9]|1).*the same parameters'
tells 2 'same samples in the same order with 0 to 4 threads'
holds 3 'b > a && b < 65536'
tells 3 "^in 32 MiB $(value 3 with | cut -d. -f1) fit and $(($(value 3 with | cut -d. -f1) + 1)) do not"
holds 4 'b < 0.8 * a'
near 4 0.02
tells 4 'skip 1 of 4 steps, scale times 0\.5'
holds 5 'b < a'
tells 6 '[1-9][0-9]* of the first [0-9]+ calls were timed, then none'
holds 7 'a == 20 && b == 0'
holds 8 'b <= 0.6 * a'
tells 8 'same'
holds 9 'b < a / 4'
tells 9 'to [0-9.]+e-(0[5-9]|1)'
holds 10 'a == 4 * b'
tells 10 'the same bits; replicas equal'
holds 11 'b < a'
tells 12 'writes are seen both ways'
tells 13 'the same loss.* names its op'
holds 14 'b < a'
tells 14 '0 downloads'
holds 15 'a - b == 32'
holds 16 'b < a / 4'
tells 16 '^0 tensors saved'
holds 17 'b < 0.5'
tells 17 'it diverges'
holds 18 'b < a / 2'
holds 19 'b < a / 4'
