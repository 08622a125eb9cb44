#!/usr/bin/env bash
# Checks the rules of the house that a compiler does not. Each rule is a file in rules/ with two
# functions:
#   check   prints every violation as "file:line: what" and returns 1 if there was one, 77 (with the reason) if it cannot be checked here
#   plant   breaks the rule in the current folder (a copy), so that selftest.sh can prove that check would notice
# Usage: tests/lint/run.sh [--build DIR] [--root DIR] [RULE...]      rules that read binaries take
# them from DIR (or $FERRY_BUILD_DIR)
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${FERRY_BUILD_DIR:-}
wanted=()
while [ $# -gt 0 ]; do
    case "$1" in
    --build) build=$2 && shift 2 ;;
    --root) root=$2 && shift 2 ;;
    -*) echo "usage: tests/lint/run.sh [--build DIR] [--root DIR] [RULE...]" >&2 && exit 2 ;;
    *) wanted+=("$1") && shift ;;
    esac
done
if [ ${#wanted[@]} -eq 0 ]; then
    for rule in "$here"/rules/*.sh; do wanted+=("$(basename "$rule" .sh)"); done
fi
if [ -n "$build" ]; then build=$(cd "$build" && pwd) || exit 2; fi
export FERRY_LINT_DIR=$here FERRY_BUILD_DIR=$build
cd "$root" || exit 2

passed=0 failed=0 skipped=0
for rule in "${wanted[@]}"; do
    if [ ! -f "$here/rules/$rule.sh" ]; then echo "no such rule: $rule" >&2 && exit 2; fi
    # shellcheck source=/dev/null
    output=$(. "$here/lib.sh" && . "$here/rules/$rule.sh" && check 2>&1)
    case $? in
    0) echo "PASS $rule" && passed=$((passed + 1)) ;;
    77) echo "SKIP $rule: $output" && skipped=$((skipped + 1)) ;;
    *) echo "FAIL $rule" && printf '%s\n' "$output" | sed 's/^/    /' && failed=$((failed + 1)) ;;
    esac
done
echo "lint: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
