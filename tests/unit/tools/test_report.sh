#!/usr/bin/env bash
# `ferry report`: the page's figures are those of the ledger, its policy permits only its own script
# and style, names from a recording stay texts; usage, refusals, files that are cut off, and no part
# of a page after a failed write. In a browser: test_report_page.sh. Usage: test_report.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export FERRY_DATA=$work/nothing

# check PAGE RECORDING...
check() {
    local page=$1 recording n=0 ledgers=()
    shift
    for recording in "$@"; do
        "$ferry" ledger "$recording" --json >"$work/ledger$n.json" 2>/dev/null
        "$ferry" advise "$recording" --json >"$work/ledger$n.json.advice" 2>/dev/null
        ledgers+=("$work/ledger$n.json")
        n=$((n + 1))
    done
    python3 "$here/check_report.py" "$page" "${ledgers[@]}" >"$work/checked" 2>&1 ||
        fail "$page: $(tail -n 1 "$work/checked")"
}

prints "usage: ferry report FILE [FILE]" report --help
refuses 2 "which file?" report
refuses 2 "write to which file?" report run.jsonl
expect 2 report a b c --out "$work/page.html"
refuses 1 "IO" report "$work/nowhere" --out "$work/page.html"
[ ! -e "$work/page.html" ] || fail "a page of a file that does not exist"

expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --stream-data --log-every 1 --record "$work/run.jsonl"
refuses 1 "IO: cannot write $work/no/page.html" report "$work/run.jsonl" --out "$work/no/page.html"
expect 0 report "$work/run.jsonl" --out "$work/page.html"
matches out '^[0-9]+ % of the step .*A step takes .* \(mean of 4\)\.( [0-9]+ finding.*)?$'
check "$work/page.html" "$work/run.jsonl"
grep -q '"sim:0":"h200 profile, backend sim' "$work/page.html" || fail "the facts of sim:0 are not on the page"
grep -qF '"[[32,' "$work/page.html" || fail "no shapes of operands are on the page"
python3 - "$work/page.html" <<'PY' || fail "tensors have no names on the page"
import json, re, sys
data = re.search(r'<script type="application/json" id="data">(.*?)</script>', open(sys.argv[1]).read(), re.S).group(1)
run = json.loads(data)["runs"][0]
pool = [pool for pool in run["memory"] if pool["pool"] == "sim:0"][0]
assert {"weights", "gradients"} <= {run["texts"][name] for name in pool["owners"][4::5]}, pool["owners"]
slices = {run["texts"][name] for lane in run["lanes"] for name in lane.get("tensors", [])}
assert any("fc1.weight" in name for name in slices), slices
assert any(site["tensors"] == "weights" for site in run["sites"])
PY
expect 0 report "$work/run.jsonl" --out "$work/again.html"
sed -i 's/again\.html/page.html/' "$work/again.html"
cmp -s "$work/page.html" "$work/again.html" || fail "the same recording gives two pages"

# Calls between ranks: 700 ns by the first thread, and its wait of 200 ns while the second thread
# runs one, of 2,000 ns.
expect 0 report "$here/ranks.jsonl" --out "$work/ranks.html"
says out "55 % of the run runs host code, 45 % blocks in calls between ranks. The run takes 2 µs."
check "$work/ranks.html" "$here/ranks.jsonl"

# Names from outside.
expect 0 experiment roundtrip --device sim:0 --size 100 --iters 4 --record "$work/names.jsonl"
sed -i '2,$ s/"scope":"roundtrip[^"]*"/"scope":"a<\/script><img src=x onerror=alert(1)>\\"\\u00e9"/' "$work/names.jsonl"
expect 0 report "$work/names.jsonl" --out "$work/names.html"
check "$work/names.html" "$work/names.jsonl"
[ "$(grep -o '<img' "$work/names.html" | wc -l)" -eq 0 ] || fail "a scope's name becomes an element"

# The advisor gets the first million events.
{ head -n -1 "$work/names.jsonl" && yes '{"ev":"x","t_ns":9}' | head -n 1000000; } >"$work/long.jsonl"
expect 1 report "$work/long.jsonl" --out "$work/long.html"
matches out ' in the first 1000000 events[;. ]'
grep -q '"advised":1000000' "$work/long.html" || fail "the page does not say which events were judged"
grep -q '"advised":0' "$work/page.html" || fail "the page says that only some of few events were judged"

# A run without a simulated device has only the wall clock.
expect 0 experiment minibatch --device host --record "$work/host.jsonl"
expect 0 report "$work/host.jsonl" --out "$work/host.html"
matches out 'runs host code'
check "$work/host.html" "$work/host.jsonl"

# Two files.
expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --log-every 1 --record "$work/other.jsonl"
expect 0 report "$work/run.jsonl" "$work/other.jsonl" --out "$work/two.html"
matches out '^A step takes .* in B and .* in A: .* (faster|slower)'
check "$work/two.html" "$work/run.jsonl" "$work/other.jsonl"
prints "not comparable" report "$work/run.jsonl" "$work/host.jsonl" --out "$work/two.html"

# A file without its end is shown as far as it goes; a broken one leaves nothing.
head -n 300 "$work/run.jsonl" >"$work/cut.jsonl"
refuses 1 "has no end" report "$work/cut.jsonl" --out "$work/cut.html"
check "$work/cut.html" "$work/cut.jsonl"
sed '200s/.$//' "$work/run.jsonl" >"$work/broken.jsonl"
refuses 1 "line 200" report "$work/broken.jsonl" --out "$work/broken.html"
[ ! -e "$work/broken.html" ] || fail "a broken recording leaves a page"

# Writing fails at the N-th block: the old page stays, and nothing else is left.
refuses 1 "IO: cannot write /dev/full" report "$work/run.jsonl" --out /dev/full
mkdir "$work/full"
size=$(($(wc -c <"$work/page.html") / 1024))
for ((n = 0; n <= size; n += size / 8)); do
    echo old >"$work/full/page.html"
    (trap '' XFSZ && ulimit -f "$n" && exec "$ferry" report "$work/run.jsonl" --out "$work/full/page.html") >/dev/null 2>&1
    status=$?
    [ $status -eq 1 ] || fail "a limit of $n KiB: exit status $status"
    [ "$(cat "$work/full/page.html")" = old ] || fail "a limit of $n KiB: the old page is gone"
    [ "$(ls "$work/full")" = page.html ] || fail "a limit of $n KiB leaves $(ls "$work/full")"
done
