#!/usr/bin/env bash
# The page of `ferry report` in headless Chromium, by Playwright: figures, interactions, console,
# contrast, names that try to be elements. Skipped without them (scripts/browser.sh).
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
python=$("$root/scripts/browser.sh" --find 2>"$work/why") || skip "$(cat "$work/why")"
export FERRY_DATA=$work/nothing

# check RECORDING...: makes the page and drives it.
check() {
    local recording n=0 ledgers=()
    "$ferry" report "$@" --out "$work/page.html" >"$work/out" 2>"$work/err" || fail "ferry report $*: $(head -c 300 "$work/err")"
    for recording in "$@"; do
        "$ferry" ledger "$recording" --json >"$work/ledger$n.json" 2>/dev/null
        ledgers+=("$work/ledger$n.json")
        n=$((n + 1))
    done
    timeout 1200 "$python" "$here/check_page.py" "$work/page.html" "${ledgers[@]}" >"$work/checked" 2>&1 ||
        fail "$*: $(tail -n 2 "$work/checked")"
}

expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --stream-data --log-every 1 --record "$work/run.jsonl"
check "$work/run.jsonl"
check "$here/ranks.jsonl"
expect 0 experiment roundtrip --device sim:0 --size 100 --iters 4 --record "$work/names.jsonl"
check "$work/run.jsonl" "$work/names.jsonl"
sed -i '2,$ s/"scope":"roundtrip/"scope":"a\/<\\\/script><img src=x onerror=alert(1)>/' "$work/names.jsonl"
check "$work/names.jsonl"
