#!/usr/bin/env bash
# Line coverage of the library's folders by the whole suite; fails below the bar. Usage: scripts/coverage.sh [MINIMUM PERCENT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minimum=${1:-85}
scripts/build.sh coverage
find build/coverage -name '*.gcda' -delete
scripts/test.sh coverage -LE 'lint|consume' "${FERRY_CTEST_OPTIONS[@]:---quiet}"
mkdir -p build/coverage/report
gcovr --root . --object-directory build/coverage --filter 'runtime/' --filter 'alloc/' --filter 'transfer/' --filter 'ops/' \
    --exclude-unreachable-branches --html-details build/coverage/report/index.html --txt build/coverage/report/summary.txt \
    --fail-under-line "$minimum" build/coverage/CMakeFiles/ferry_core.dir || {
    cat build/coverage/report/summary.txt
    echo "line coverage is below $minimum %" >&2
    exit 1
}
cat build/coverage/report/summary.txt
echo "lines and branches: build/coverage/report/index.html"
