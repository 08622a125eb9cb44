#!/usr/bin/env bash
# Proves that each lint rule detects a violation: breaks it in a copy of the tree and expects
# `run.sh` to fail there, and to report the planted violation. Usage: tests/lint/selftest.sh
# [--build DIR]
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
options=("$@")
if [ ${#options[@]} -eq 0 ] && [ -n "${FERRY_BUILD_DIR:-}" ]; then options=(--build "$FERRY_BUILD_DIR"); fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# Each rule gets a fresh copy.
copy_tree() {
    mkdir -p "$1"
    (cd "$root" && tar -cf - --exclude=./build --exclude=./.git --exclude=./.cache --exclude=./data .) | tar -xf - -C "$1"
}

passed=0 failed=0 skipped=0
for file in "$here"/rules/*.sh; do
    rule=$(basename "$file" .sh)
    copy_tree "$temp/$rule"
    before=$("$here/run.sh" "${options[@]}" --root "$temp/$rule" "$rule")
    if [[ $before == SKIP* ]]; then
        echo "${before%%$'\n'*}" && skipped=$((skipped + 1))
        continue
    fi
    # shellcheck source=/dev/null
    (cd "$temp/$rule" && . "$here/lib.sh" && . "$file" && plant)
    after=$("$here/run.sh" "${options[@]}" --root "$temp/$rule" "$rule")
    # A new line of output: the planted violation, not one that existed before.
    if diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") | grep -q '^>     '; then
        echo "PASS $rule" && passed=$((passed + 1))
    else
        echo "FAIL $rule: does not notice what plant() does" && printf '%s\n' "$after" | tail -n 3 && failed=$((failed + 1))
    fi
    rm -rf "${temp:?}/$rule"
done
echo "lint selftest: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
