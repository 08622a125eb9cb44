#!/usr/bin/env bash
# `ferry compare`: which numbers of two documents are paired, by which clock, what their intervals
# say, the bound, and files that are not documents. Usage: test_compare.sh BUILD_DIR
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

cat >"$work/a.json" <<'END'
{"experiment": "roundtrip", "size": 64, "clock": "wall", "variants": [
 {"name": "host", "ns_per_iter": 5},
 {"name": "copies", "ns_per_iter": 7, "ns_per_iter_low": 6, "ns_per_iter_high": 8, "ns_per_iter_q1": 6.5, "model_ns_per_iter": 100,
  "worst_ns_per_iter": 9, "bytes": 5}],
 "train_loss": [2, 1, 0.5]}
END
cat >"$work/b.json" <<'END'
{"experiment": "roundtrip", "size": 32, "clock": "wall", "variants": [
 {"name": "copies", "ns_per_iter": 110, "ns_per_iter_low": 100, "ns_per_iter_high": 120, "ns_per_iter_q1": 105, "model_ns_per_iter": null,
  "worst_ns_per_iter": 900, "bytes": 5},
 {"name": "host", "ns_per_iter": 6}],
 "train_loss": [2, 1.001, 0.5]}
END
echo '{"clock": "model", "upload_ns": 50}' >"$work/c.json"
echo '{"clock": "wall", "upload_ns": 40, "syncs": 3}' >"$work/d.json"
echo '{"clock": "model", "upload_ns": 60, "upload_ns_low": 58, "upload_ns_high": 61}' >"$work/e.json"
echo '{"bench": "gemm", "clock": "wall", "rows": []}' >"$work/gemm.json"

prints "usage: ferry compare FIRST SECOND" compare --help
refuses 2 "two files" compare "$work/a.json"

# Figures of the same clock are paired by their names, in any order.
prints '"what": "variants/copies/ns_per_iter"' compare "$work/a.json" "$work/b.json" --json
says out '"clock": "wall"' '"first": 7' '"second": 110' '"what": "variants/host/ns_per_iter"' '"ratio": 1.2'
says out '"ratio_low": 12.5' '"ratio_high": 20' '"verdict": "differs"' '"what": "size"'
if grep -q 'worst\|bytes\|_q1' "$work/out"; then fail "what is no figure was compared"; fi
[ "$(grep -c '"ratio":' "$work/out")" -eq 2 ] || fail "not two pairs"
prints "not told apart" compare "$work/a.json" "$work/a.json"
prints '"clock": "model"' compare "$work/c.json" "$work/e.json" --json
says out '"verdict": null'
expect 1 compare "$work/a.json" "$work/b.json" --within 0.5
says out "1 of 2 differ by more than 0.5"

# A model time with a wall time, and documents of different commands, are refused.
refuses 1 "--prediction pairs them" compare "$work/c.json" "$work/d.json"
silent out
refuses 1 "is of experiment roundtrip" compare "$work/a.json" "$work/gemm.json"
says err "of bench gemm"

# A prediction: the model's figure with the wall time that it predicts.
prints '"first": 100' compare "$work/a.json" "$work/b.json" --prediction --json
says out '"second": 110' '"ratio": 1.1'
expect 0 compare "$work/a.json" "$work/b.json" --prediction --within 0.11
expect 1 compare "$work/a.json" "$work/b.json" --prediction --within 0.09
says out "1 of 1 differ by more than 0.09"
# A document on the model clock has no separate names for its figures.
prints '"ratio": 0.8' compare "$work/c.json" "$work/d.json" --prediction --json
# Wall times are not predictions.
refuses 1 "the first must be of a simulated device" compare "$work/d.json" "$work/c.json" --prediction
silent out

# Other numbers are compared by name.
prints "0 of 3 differ" compare "$work/a.json" "$work/b.json" --key train_loss --within 0.002
expect 1 compare "$work/a.json" "$work/b.json" --key train_loss --within 0.0005 --json
says out '"outside": 1'
refuses 1 "no nothing in common" compare "$work/a.json" "$work/b.json" --key nothing

# Real documents: the model's times do not change from run to run.
expect 0 experiment link --device 'sim:0?numerics=off' --sizes 4,64KiB --pieces 4 --json
cp "$work/out" "$work/link.json"
expect 0 experiment link --device 'sim:0?numerics=off' --sizes 64KiB,4 --pieces 4 --json
cp "$work/out" "$work/again.json"
expect 0 compare "$work/link.json" "$work/again.json" --within 0.01 --json
[ "$(grep -c '"what": "rows/' "$work/out")" -eq 16 ] || fail "not all rows of link were paired"

# Texts inside objects are settings too.
for profile in h200 t4; do echo "{\"kind\": \"predict\", \"predicted\": {\"profile\": \"$profile\", \"step_ns\": 5}}" >"$work/$profile.json"; done
expect 0 compare "$work/h200.json" "$work/t4.json"
matches out 'predicted/profile +h200 +t4'

# A loss has no clock, so a host's and a simulated device's are compared; their times are not.
row='"row": 1, "unit": "loss after 60 steps", "with": 1.5, "with_low": 1.4, "with_high": 1.6'
echo "{\"clock\": \"model\", \"rows\": [{$row}, {\"row\": 2, \"unit\": \"model ns\", \"with\": 5, \"with_low\": 4, \"with_high\": 6}]}" >"$work/sim.json"
echo "{\"clock\": \"wall\", \"rows\": [{$row}, {\"row\": 2, \"unit\": \"wall ns\", \"with\": 7, \"with_low\": 6, \"with_high\": 8}]}" >"$work/real.json"
prints '"clock": null' compare "$work/sim.json" "$work/real.json" --json
says out '"verdict": "not told apart"'
[ "$(grep -c '"what": "rows/' "$work/out")" -eq 1 ] || fail "a loss was not compared, or a time was"
expect 0 experiment speedups --device sim:0 --device host --only 1,14 --json
python3 - "$work/out" <<'PY' || fail "several devices: a loss has a clock, or a time has none"
import json, sys
rows = {row["what"]: row for row in json.load(open(sys.argv[1]))["rows"]}
losses = [row for what, row in rows.items() if "loss after" in what]
times = [row for what, row in rows.items() if " ns" in what]
assert len(losses) == 2 and all(row["clock"] is None and row["device0_ratio"] == 1 and row["device1_ratio"] for row in losses), losses
assert len(times) == 4 and all(row["clock"] in ("model", "wall") for row in times), times
PY

# Files that are not documents.
echo '{"a": ' >"$work/bad.json"
refuses 1 "$work/bad.json, line" compare "$work/a.json" "$work/bad.json"
refuses 1 "cannot open $work/none.json" compare "$work/none.json" "$work/a.json"
