#!/usr/bin/env bash
# `ferry predict`: a recording on its own profile gives the recorded time to 0.1 %; on another
# profile the time of an actual run there to 1 %. Usage, refusals, files that are cut off.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export FERRY_DATA=$work/nothing

prints "usage: ferry predict FILE" predict --help
refuses 2 "which file?" predict
refuses 1 "IO" predict "$work/nowhere"
refuses 2 "profile=moon: profile may be k80" predict "$work/nowhere" --profile moon
# A recording names the file of a profile, which may have a space and a comma.
mkdir "$work/a, b"
echo '{ "ferry_profile": 1, "name": "slow", "base": "h200", "figures": { "kernel_ns": { "value": 9000, "unit": "ns" } } }' >"$work/a, b/slow.json"
expect 0 train linear --max-steps 1 --device "sim:0?profile=$work/a, b/slow.json" --record "$work/slow.jsonl"
expect 0 predict "$work/slow.jsonl"
! grep -q "sim:15" "$work/err" || fail "the error names a device that nobody asked for"
refuses 2 "'pcie4x7' is no link" predict "$work/nowhere" --link pcie4x7
expect 2 predict "$work/nowhere" --link 0GB/s
expect 2 predict "$work/nowhere" --pinned some

run() { # NAME OPTIONS ARGUMENT...: recorded on three profiles, each predicted from each
    local name=$1 options=$2 from to
    shift 2
    for from in h200 t4 rtx4090; do
        expect 0 "$@" --device "sim:0?profile=$from$options" --record "$work/$name.$from"
        for to in h200 t4 rtx4090; do
            expect 0 predict "$work/$name.$from" --profile $to --json
            mv "$work/out" "$work/prediction.$name.$from.$to"
        done
    done
}
run lenet "" train lenet --limit-samples 256 --batch 32 --max-steps 8
run stream "" train lenet --limit-samples 256 --batch 32 --max-steps 8 --stream-data --workers 0
run losses "" train mlp --limit-samples 256 --batch 32 --max-steps 8 --log-every 1
run graph "" train mlp --limit-samples 256 --batch 32 --max-steps 8 --graph
run convolutions "" train lenet --limit-samples 256 --batch 32 --max-steps 8 --graph
run roundtrip "" experiment roundtrip
# Copies of all sizes, packed ones, and those through the staging ring.
run link "" experiment link
run overlap "&numerics=off" experiment link --overlap --steps 16 --compute 8

# Threads that prefetch share the host's clock with the one that submits ops, in an order that
# differs from run to run: only the time of the same run is reproduced.
for profile in h200 t4 rtx4090; do
    expect 0 train lenet --limit-samples 256 --batch 32 --max-steps 8 --stream-data --workers 2 --device "sim:0?profile=$profile" --record "$work/threads.$profile"
    expect 0 predict "$work/threads.$profile" --json
    mv "$work/out" "$work/prediction.threads.$profile.$profile"
done
python3 - "$work" <<'END' || fail "predictions beside runs"
import glob, json, sys
predictions = {tuple(path.split(".")[-3:]): json.load(open(path)) for path in glob.glob(sys.argv[1] + "/prediction.*")}
assert len(predictions) == 8 * 9 + 3, len(predictions)
wrong = []
def near(what, actual, predicted, share):
    if abs(actual - predicted) > share * actual: wrong.append(f"{what}: {predicted}, not {actual}")
for (name, source, target), document in predictions.items():
    actual = predictions[name, target, target]
    recorded, predicted = actual["recorded"], document["predicted"]
    assert document["recorded"]["profile"] == source and predicted["profile"] == target
    near(f"{name} on {source}", document["recorded_model_ns"], document["recorded"]["model_ns"], 0.001)
    near(f"{name} from {source} on {target}", actual["recorded_model_ns"], predicted["model_ns"], 0.01)
    near(f"step of {name} from {source} on {target}", recorded["step_ns"], predicted["step_ns"], 0.01)
print("\n".join(wrong))
sys.exit(bool(wrong))
END

# Conditions of any prediction: time is work or idle; faster links and no staging do not make
# it slower.
python3 - "$work" "$ferry" <<'END' || fail "sums of a prediction"
import json, subprocess, sys
work, ferry = sys.argv[1:]
def predict(*options):
    text = subprocess.run([ferry, "predict", work + "/stream.t4", "--json", *options], check=True, capture_output=True).stdout
    return json.loads(text)["predicted"]
base = predict()
assert base["busy_ns"] + sum(base["idle_ns"].values()) == base["steps_ns"], base
assert base["exposed_ns"] <= base["steps_ns"] - base["busy_ns"], base
assert base["upload_ns"] > 0, base
assert predict("--link", "pcie3x1")["upload_ns"] > 4 * base["upload_ns"]
assert predict("--link", "1MB/s")["exposed_ns"] > base["exposed_ns"]
assert predict("--link", "pcie3x16") == base
assert predict("--latency", "2")["steps_ns"] > base["steps_ns"]
assert predict("--latency", "1") == base
assert predict("--pinned", "all")["idle_ns"]["staging"] == 0
assert predict("--pinned", "all")["model_ns"] <= base["model_ns"]
END

prints "steps of lenet/train/epoch/step" predict "$work/stream.t4" --link pcie4x8 --csv "$work/rows.csv"
says out "peak of device memory"
[ "$(wc -l <"$work/rows.csv")" -eq 12 ] || fail "rows of the CSV file"

# A sweep has the prediction of each pair; more latency is never faster.
refuses 2 "--plot draws a sweep" predict "$work/stream.t4" --plot "$work/sweep.svg"
expect 2 predict "$work/stream.t4" --sweep colour
expect 0 predict "$work/stream.t4" --sweep link,latency --csv "$work/sweep.csv" --plot "$work/sweep.svg"
[ "$(wc -l <"$work/sweep.csv")" -eq 31 ] || fail "rows of the sweep"
expect 0 predict "$work/stream.t4" --sweep link --json
cp "$work/out" "$work/sweep.json"
expect 0 predict "$work/stream.t4" --link 25GB/s --json
python3 - "$work" <<'END' || fail "figures of a sweep"
import csv, json, sys
work = sys.argv[1]
rows = json.load(open(work + "/sweep.json"))["rows"]
one = json.load(open(work + "/out"))["predicted"]
row, = [r for r in rows if r["link_bytes_per_s"] == 25000000000]
assert (row["step_ns"], row["model_ns"], row["exposed_ns"]) == (one["step_ns"], one["model_ns"], one["exposed_ns"]), row
by_link = {}
for r in csv.DictReader(open(work + "/sweep.csv")): by_link.setdefault(r["link_bytes_per_s"], []).append(int(r["model_ns"]))
assert len(by_link) == 6 and all(times == sorted(times) for times in by_link.values()), by_link
END

head -n 400 "$work/stream.t4" >"$work/cut"
refuses 1 "has no end" predict "$work/cut"
says out "predicted"
sed 's/"lost":0/"lost":3/' "$work/stream.t4" >"$work/lost"
refuses 1 "lacks 3 events" predict "$work/lost"
grep -v '"ev":"device"' "$work/stream.t4" | sed 's/"events":[0-9]*/"events":0/' >"$work/old"
refuses 1 "name it by --from" predict "$work/old"
expect 1 predict "$work/old" --from t4
expect 0 train mlp --device host --limit-samples 64 --batch 32 --max-steps 2 --record "$work/host"
refuses 1 "no times of the model clock" predict "$work/host"
