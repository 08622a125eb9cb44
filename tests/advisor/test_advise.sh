#!/usr/bin/env bash
# `ferry advise`: each rule fires on its plants in three programs and on nothing else; clean programs
# have no finding; estimated savings agree with measured ones; the experiment `roundtrip` and a loop that reads its loss get the right fix; usage,
# refusals, files that are cut off.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/../unit/tools/lib.inc.sh" "$1"
corpus=$(realpath -m "$1")/bin/tests/advisor_corpus
run=$work/run.jsonl

# Precision and recall of each rule, and estimates beside measured savings.
"$corpus" --list >"$work/plants"
python3 "$(dirname "$0")/score.py" "$ferry" "$corpus" "$work" >"$work/score" || fail "the score of the rules"
cat "$work/score"

# Two plants whose savings overlap: what all fixes save together is what the clean program saves.
for program in train stream infer; do
    "$corpus" "$program" 1 clean "$run"
    expect 0 advise "$run" --json
    cp "$work/out" "$work/clean"
    "$corpus" "$program" 1 scalar-read "$run" round-trip
    prints "together, the fixes of all findings save" advise "$run" --prove
    expect 0 advise "$run" --prove --json
    python3 - "$work/out" "$work/clean" <<'END' || fail "the savings together in $program"
import json, sys
both, clean = (json.load(open(path)) for path in sys.argv[1:])
assert sorted(f["id"] for f in both["findings"]) == ["FA03", "FA08"], both["findings"]
saved = both["ns"] - clean["ns"]
assert abs(both["together_ns"] - saved) <= 0.1 * saved, (both["together_ns"], saved, [f["measured_ns"] for f in both["findings"]])
END
done

# A training loop that reads its loss in each step.
"$corpus" train 0 scalar-read "$run"
prints "FA08  the host waits for a scalar in a loop" advise "$run"
says out "programs.c:" "scope train/step: 12 downloads, 48 bytes"
says out "fy_download_try_f64(reply[i % 8], &done, &value);"
[ "$(wc -l <"$work/out")" -le 40 ] || fail "the advice is longer than a screen"

# The experiment's variant that copies in every iteration.
expect 0 experiment roundtrip --device sim:0 --iters 20 --record "$run"
expect 0 advise "$run" --rule FA01
matches out "exp_roundtrip.c:41, scope roundtrip/copies: [0-9]+ uploads"
matches out "exp_roundtrip.c:43, scope roundtrip/copies: [0-9]+ uploads"
says out "fy_tensor_upload(w, device, NULL, &w_device);   /* before the loop */"
prints "a copy blocks the host" advise "$run"
prints "proved   " advise "$run" --prove
matches out "^  because of: uploads [0-9.]+ ms, downloads"
[ "$(wc -l <"$work/out")" -le 40 ] || fail "the advice is longer than a screen"
# The largest saving comes first.
expect 0 advise "$run" --json
python3 - "$work/out" <<'END' || fail "the document is not as documented"
import json, sys
document = json.load(open(sys.argv[1]))
savings = [finding["saving_ns"] for finding in document["findings"]]
assert savings == sorted(savings, reverse=True) and savings[0] > 0
assert sum(savings) <= document["idle_ns"] <= document["ns"]
assert sum(document["idle_causes"].values()) == document["idle_ns"] and document["idle_causes"]["uploads"] > 0
assert all(finding["count"] > 0 and finding["fix"] and finding["code"] for finding in document["findings"])
END

# Ferry's own training waits for nothing.
FERRY_DATA=$work/nothing expect 0 train lenet --device sim:0 --limit-samples 256 --batch 32 --epochs 1 --log-every 1 --record "$run"
prints "no findings" advise "$run" --strict

# A run without a simulated device has no model clock, but has repeats.
expect 0 experiment roundtrip --device host --iters 3 --record "$run"
prints "no model clock" advise "$run"
says out "unknown time, confidence low"
expect 1 advise "$run" --prove
silent out
says err "no times of the model clock"

# Usage and files.
refuses 2 "which file?" advise
refuses 2 "there is no rule 'FA99'" advise "$run" --rule FA99
refuses 1 "IO" advise "$work/nowhere"
"$corpus" train 0 again "$run"
expect 1 advise "$run" --strict
says out "FA02" "confidence high"
sed -i '$ s/"lost":0/"lost":1/' "$run"
prints "confidence low" advise "$run"
"$corpus" train 0 chain "$run"
prints "confidence medium" advise "$run"
says out "; first sigmoid [[512,1024],[512,1024]]"
# What an incomplete file does not have may have happened.
"$corpus" train 0 never-read "$run"
sed -i '$ s/"lost":0/"lost":1/' "$run"
expect 0 advise "$run" --strict
"$corpus" train 0 again "$run"
head -n 300 "$run" >"$work/cut.jsonl"
refuses 1 "has no end" advise "$work/cut.jsonl"
: >"$work/empty.jsonl"
refuses 1 "CORRUPT_DATA" advise "$work/empty.jsonl"
