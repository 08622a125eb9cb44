#!/usr/bin/env bash
# Instructions of each container at 100, 1,000, 10,000 items and so on (growth.c): between the two
# largest sizes they grow at most as the 1.1th power of the items. Counts do not depend on the
# machine's load. GROWTH_TIMES=10 adds a size. Usage: test_growth.sh BUILD [WORK]
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs_command valgrind
needs bin/tests/growth

if ! (cd "$work" && OMP_NUM_THREADS=1 valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$work/count" \
    "$build/bin/tests/growth" "${2:-all}" "${GROWTH_TIMES:-1}") >"$work/log" 2>&1; then
    tail -n 20 "$work/log"
    fail "growth did not run"
    exit
fi

for file in "$work"/count.*; do
    sed -n 's/^desc: Trigger: Client Request: //p; s/^\(summary\|totals\): //p' "$file" | head -n 2 | paste -s -d ' '
done | sort -k 1,1 -k 2,2n | awk '
    function judge() {
        if (slope > 1.1) { print "  " name " grows too fast"; failed = 1 }
        if (slope) nworks++
    }
    $1 == "first" || NF != 3 { next }
    {
        if ($1 != name) judge()
        slope = $1 == name ? log($3 / instructions) / log($2 / count) : 0
        printf "%-14s %7d items %12.0f instructions, %8.1f an item%s\n", $1, $2, $3, $3 / $2,
               slope ? sprintf(", slope %.3f", slope) : ""
        name = $1; count = $2; instructions = $3
    }
    END { judge(); exit failed || !nworks }' || fail "a container costs more per item the more items it has"
