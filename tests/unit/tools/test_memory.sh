#!/usr/bin/env bash
# `ferry memory`, --snapshot and $FERRY_SNAPSHOT_ON_OOM: a snapshot of a run is read, summed and
# drawn. An independent reader (python3, if installed) gets the same sums. Pictures are valid XML
# (xmllint, if installed). Files that are not snapshots are refused. Usage: test_memory.sh
# BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

picture() {
    head -c 5 "$1" | grep -q '<?xml' || fail "$1 is no SVG"
    if command -v xmllint >/dev/null; then xmllint --noout "$1" || fail "$1 is no valid XML"; fi
    if grep -qE 'href|url\([^#]|@import|<script' "$1"; then fail "$1 is not self-contained"; fi
}

# ---- usage ----
prints "usage: ferry memory FILE" memory --help
refuses 2 "which file?" memory
refuses 2 ".svg" memory "$work/x" --svg "$work/x.png"
refuses 1 "nowhere" memory "$work/nowhere"
silent out
echo '{"device":"sim:0"}' >"$work/other"
refuses 1 "is no whole snapshot" memory "$work/other" --json --svg "$work/x.svg"
silent out
[ ! -e "$work/x.svg" ] || fail "a picture of nothing was drawn"

# ---- at the end of a run ----
expect 0 experiment roundtrip --device sim:0 --size 64 --iters 3 --snapshot "$work/end.json" --record "$work/run.jsonl"
refuses 1 "ferry ledger $work/run.jsonl" memory "$work/run.jsonl" # each device has a separate file
refuses 1 "ferry memory $work/end.json" ledger "$work/end.json"
prints "sim:0 (h200 profile)" memory "$work/end.json"
says out "pinned memory of sim:0"
expect 0 experiment roundtrip --device host --size 64 --iters 3 --snapshot "$work/end.svg"
picture "$work/end.svg"
refuses 1 "nowhere" experiment roundtrip --device host --snapshot "$work/nowhere/x.json"

# ---- when memory runs out ----
expect 4 experiment roundtrip --device "sim:0?limit=200KiB" --iters 3 --snapshot "$work/oom.json"
prints "roundtrip" memory "$work/oom.json" --svg "$work/oom.svg"
says out "verdicts" "picture: $work/oom.svg"
picture "$work/oom.svg"
FERRY_SNAPSHOT_ON_OOM="$work/env-%p.svg" refuses 4 "OUT_OF_MEMORY" experiment roundtrip --device "sim:0?limit=200KiB" --iters 3
picture "$work"/env-*.svg
FERRY_SNAPSHOT_ON_OOM="$work/nowhere/x.svg" expect 4 experiment roundtrip --device "sim:0?limit=200KiB" --iters 3
says err "160000 bytes asked for" "FERRY_SNAPSHOT_ON_OOM"

# ---- the JSON, read by another reader ----
expect 0 memory "$work/oom.json" --json
if command -v python3 >/dev/null; then
    python3 - "$work/oom.json" "$work/out" <<'PY' || fail "python3 finds other sums"
import json, sys
snapshot, summary = (json.load(open(path)) for path in sys.argv[1:])
assert snapshot["snapshot"] == 1
live = {}
for pool, shown in zip(snapshot["pools"], summary["pools"], strict=True):
    states = dict.fromkeys(("live", "pending", "free", "thread_cached"), 0)
    for segment in pool["segments"]:
        end = 0
        for block in segment["blocks"]:
            assert block["offset"] == end
            end += block["bytes"]
            states[block["state"]] += block["bytes"]
            if block["state"] == "live" and "scope" in block:
                live[pool["pool"], block["scope"]] = live.get((pool["pool"], block["scope"]), 0) + block["bytes"]
        assert end == segment["bytes"]
    assert shown["pool"] == pool["pool"]
    states["live"] += pool["figures"]["in_place_bytes"]
    assert states["live"] == shown["live_bytes"] == pool["figures"]["live_bytes"] == sum(c["live_bytes"] for c in pool["by_category"].values())
    assert states["pending"] == shown["pending_bytes"]
    assert shown["reserved_bytes"] == sum(states.values()) == sum(s["bytes"] for s in pool["segments"]) + pool["figures"]["in_place_bytes"]
assert live == {(s["pool"], s["scope"]): s["live_bytes"] for s in summary["scopes"]}
PY
fi

# ---- for PyTorch's memory viewer ----
expect 0 train lenet --device sim:0 --epochs 1 --limit-samples 640 --record "$work/run.jsonl"
head -n 500 "$work/run.jsonl" >"$work/part.jsonl" # memory is in use at its end
prints "device 0: sim:0" memory "$work/run.jsonl" --format pytorch --out "$work/run.pickle"
refuses 1 "is not whole" memory "$work/part.jsonl" --format pytorch --out "$work/part.pickle"
expect 2 memory "$work/run.jsonl" --out "$work/run.pickle"
expect 2 memory "$work/run.jsonl" --format pytorch
echo '{"ev":"ferry","version":1}' >"$work/none.jsonl"
refuses 1 "has no allocations" memory "$work/none.jsonl" --format pytorch --out "$work/none.pickle"
[ -e "$work/none.pickle" ] && fail "a file without allocations is written"
if [ -w /dev/full ]; then
    refuses 1 "No space left" memory "$work/run.jsonl" --format pytorch --out /dev/full
fi
if command -v python3 >/dev/null; then
    for name in run part; do
        python3 - "$work/$name.pickle" "$work/$name.jsonl" <<'PY' || fail "$name.pickle is not the snapshot of its events"
import json, pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
events = [e for e in map(json.loads, open(sys.argv[2])) if e.get("pool") == "sim:0"]
trace = snapshot["device_traces"][0]
for action, kind in (("alloc", "block_alloc"), ("free_requested", "block_free"), ("free_completed", "block_free")):
    assert [t["size"] for t in trace if t["action"] == action] == [e["bytes"] for e in events if e["ev"] == kind], action
live = {}
for t in trace:
    if t["action"] == "alloc":
        assert all(t["addr"] + t["size"] <= a or a + n <= t["addr"] for a, n in live.items()), "blocks overlap"
        live[t["addr"]] = t["size"]
        assert [f["filename"] for f in t["frames"]][::len(t["frames"]) - 1] == ["site", "category"]
    elif t["action"] == "free_completed":
        del live[t["addr"]]
blocks = {}
for segment in snapshot["segments"]:
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == at
        at += block["size"]
        if segment["device"] == 0 and block["state"] == "active_allocated":
            blocks[block["address"]] = block["size"]
    assert at == segment["address"] + segment["total_size"]
assert blocks == live and bool(live) == ("part" in sys.argv[1])
PY
    done
    # $FERRY_TORCH_PYTHON: a Python that has PyTorch
    python=${FERRY_TORCH_PYTHON:-python3}
    if "$python" -c 'import torch' 2>/dev/null; then
        "$python" - "$work/part.pickle" <<'PY' || fail "PyTorch's memory viewer does not read the file"
import pickle, sys
from torch.cuda import _memory_viz as viewer
snapshot = pickle.load(open(sys.argv[1], "rb"))
assert len(viewer.trace_plot(snapshot)) > 1000 and len(viewer.segment_plot(snapshot)) > 1000
assert "lenet" in viewer.memory(snapshot, format_flamegraph=str)
assert "segments:" in viewer.segsum(snapshot) and "cudaMalloc" in viewer.trace(snapshot)
PY
    else
        echo "left out: no PyTorch; FERRY_TORCH_PYTHON names a Python that has it"
    fi
fi
