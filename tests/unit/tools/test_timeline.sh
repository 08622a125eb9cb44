#!/usr/bin/env bash
# `ferry timeline`: the trace has the requests, waits and peaks of the recorded run, in the form
# that importers require; usage, refusals, files that are cut off.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export FERRY_DATA=$work/nothing

prints "usage: ferry timeline FILE" timeline --help
refuses 2 "which file?" timeline
refuses 2 "write to which file?" timeline run.jsonl
refuses 2 "--clock" timeline run.jsonl --out trace.json --clock moon
refuses 1 "IO" timeline "$work/nowhere" --out "$work/trace.json"
[ ! -e "$work/trace.json" ] || fail "a trace of a file that does not exist"

expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --stream-data --log-every 1 --record "$work/run.jsonl"
refuses 1 "IO: cannot write $work/no/trace.json" timeline "$work/run.jsonl" --out "$work/no/trace.json"
refuses 1 "nothing in $work/run.jsonl is inside a scope 'nowhere'" timeline "$work/run.jsonl" --out "$work/trace.json" --scope nowhere
[ ! -e "$work/trace.json" ] || fail "a refused timeline leaves a file"
expect 0 ledger "$work/run.jsonl" --json
cp "$work/out" "$work/ledger.json"
for clock in model wall both; do
    prints "slices" timeline "$work/run.jsonl" --out "$work/$clock.json" --clock $clock
    case $clock in both) checks="model wall" ;; *) checks=$clock ;; esac
    for each in $checks; do
        python3 "$here/check_timeline.py" "$work/run.jsonl" "$work/$clock.json" "$each" "$work/ledger.json" >"$work/checked" 2>&1 ||
            fail "--clock $clock: $(tail -n 2 "$work/checked")"
    done
done
expect 0 timeline "$work/run.jsonl" --out "$work/step.json" --scope lenet/train/epoch/step
[ "$(wc -c <"$work/step.json")" -lt "$(wc -c <"$work/model.json")" ] || fail "--scope leaves nothing out"

# A replay has a slice for each launch instead of one; tensors that were read have names.
expect 0 train lenet --device sim:0 --limit-samples 128 --batch 32 --epochs 1 --graph --record "$work/graph.jsonl"
expect 0 ledger "$work/graph.jsonl" --json
cp "$work/out" "$work/ledger.json"
expect 0 timeline "$work/graph.jsonl" --out "$work/graph.json"
python3 - "$work/graph.jsonl" "$work/graph.json" "$work/ledger.json" <<'PY' || fail "the slices of a replay are not its launches"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
trace = json.load(open(sys.argv[2]))["traceEvents"]
device = [e for e in trace if e.get("cat") == "op" and e["pid"] >= 10]
launches = [e for e in events if e["ev"] == "launch"]
ledger = json.load(open(sys.argv[3]))
assert ledger["graph_launches"] == len(launches) > 40
assert "weights" in [site["tensors"] for site in ledger["sites"] if site["direction"] == "download"], ledger["sites"]
replays = {e["number"]: e for e in events if e.get("op") == "graph_replay"}
assert replays and sum(e["launches"] for e in replays.values()) == len(launches)
assert not [e for e in device if e["name"] == "graph_replay"]
starts = {(round(e["ts"] * 1000), e["name"]) for e in device}
for e in launches:
    assert (e["model_start_ns"], e["op"]) in starts, e
    whole = replays[e["of"]]
    assert whole["model_start_ns"] <= e["model_start_ns"] <= e["model_end_ns"] <= whole["model_end_ns"], e
assert any("conv1.weight" in e["args"].get("tensors", "") for e in device)
PY

# Names from outside are quoted.
expect 0 experiment roundtrip --device sim:0 --size 1000 --iters 2 --record "$work/names.jsonl"
sed -i '2,$ s/"scope":"[^"]*"/"scope":"a\\"b<\/script>\\u00e9"/' "$work/names.jsonl"
expect 0 timeline "$work/names.jsonl" --out "$work/names.json"
python3 -c 'import json, sys; names = {e.get("name") for e in json.load(open(sys.argv[1]))["traceEvents"]}; sys.exit("script>é" not in names)' "$work/names.json" ||
    fail "a scope's name is not quoted"

# A run without a simulated device has no model clock.
expect 0 experiment minibatch --device host --record "$work/host.jsonl"
refuses 1 "--clock wall" timeline "$work/host.jsonl" --out "$work/host.json"
expect 0 timeline "$work/host.jsonl" --out "$work/host.json" --clock wall

# Calls between ranks: a track for each thread, without overlap also where times go back, with the
# bytes of the call's own exchange.
expect 0 timeline "$here/ranks.jsonl" --out "$work/ranks.json" --clock wall
python3 - "$work/ranks.json" <<'PY' || fail "calls between ranks are drawn otherwise"
import json, sys
trace = json.load(open(sys.argv[1]))["traceEvents"]
first, second = (1 << 21) + 2, (1 << 21) + 3
names = {e["tid"]: e["args"]["name"] for e in trace if e.get("name") == "thread_name"}
assert names[first] == "host thread 1: calls between ranks" and names[second] == "host thread 2: calls between ranks", names
drawn = [(e["tid"], round(e["ts"] * 1000), round(e["dur"] * 1000), e["name"], e["args"]["bytes"], e["args"]["status"]) for e in trace if e["ph"] == "X" and e["tid"] >= first]
assert drawn == [(first, 500, 500, "group_all_reduce", 96, "OK"), (second, 800, 300, "group_broadcast", 0, "OK"),
                 (first, 1000, 200, "group_barrier", 0, "RANK_LOST"), (second, 1300, 300, "upload", 0, "OK")], drawn
PY
expect 1 timeline "$here/ranks.jsonl" --out "$work/ranks.json" --clock wall --scope elsewhere

# A file without its end is drawn as far as it goes.
head -n 300 "$work/run.jsonl" >"$work/cut.jsonl"
refuses 1 "has no end" timeline "$work/cut.jsonl" --out "$work/cut.json"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/cut.json" || fail "a cut recording gives no JSON"
sed '200s/.$//' "$work/run.jsonl" >"$work/broken.jsonl"
refuses 1 "line 200" timeline "$work/broken.jsonl" --out "$work/broken.json"
[ ! -e "$work/broken.json" ] || fail "a broken recording leaves a trace"
