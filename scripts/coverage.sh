#!/usr/bin/env bash
# Line coverage of the library's folders by all but long tests; fails below the bar or if one fails.
# Usage: scripts/coverage.sh [MINIMUM PERCENT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minimum=${1:-85}
scripts/build.sh coverage
find build/coverage -name '*.gcda' -delete
tests=0
scripts/test.sh coverage -LE 'consume|long' || tests=$?
report=build/coverage/report
mkdir -p "$report"
status=0
gcovr --root . --filter 'runtime/' --filter 'alloc/' --filter 'transfer/' --filter 'ops/' --filter 'train/' --html-details "$report/index.html" \
    --txt "$report/summary.txt" --fail-under-line "$minimum" build/coverage/CMakeFiles/ferry_core.dir build/coverage/CMakeFiles/ferry_train_objects.dir || status=$?
cat "$report/summary.txt"
echo "line by line: $report/index.html"
if [ "$status" -ne 0 ]; then echo "line coverage is below $minimum %" >&2; fi
[ "$status" -eq 0 ] && [ "$tests" -eq 0 ]
