#!/usr/bin/env bash
# Batch norms with the statistics of all ranks: norms.c without MPI and under each MPI, and
# `ferry train --dist auto --sync-batch-norm`, whose statistics are those of whole batches.
set -euo pipefail
build=${1:?usage: test_norms.sh BUILD}
norms=$build/bin/tests/norms ferry=$build/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"

# The losses of all steps, from before their updates.
losses() { sed 1d "$temp/losses" | cut -d , -f 2 | xargs; }
# near LOSSES LOSSES: equal to 1e-4; rounding changes them by 3e-6 here.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        n = split(a, x); m = split(b, y)
        for (i = 1; i <= n; i++) if (x[i] - y[i] > 1e-4 || y[i] - x[i] > 1e-4) m = 0
        exit !(n == 3 && n == m)
    }'
}

"$norms" small host >/dev/null
"$norms" train host >/dev/null
train=("$ferry" train "resnet18:channels=3,size=8" --resize 8 --device sim:0 --limit-samples 40 --batch 16)
train+=(--max-steps 3 --epochs 2 --log-every 1 --csv "$temp/losses")
if "${train[@]}" --sync-batch-norm >"$temp/out" 2>"$temp/err"; then fail "--sync-batch-norm without --dist"; fi
grep -q 'of --dist auto' "$temp/err" || fail "the refusal"

read -ra list <<<"$(mpis | xargs)"
if [ ${#list[@]} = 0 ]; then skip_without_mpi; fi
first=${list[0]} last=${list[-1]}
for case in small train refuse; do
    for device in host sim:0; do
        succeed "$first" 2 "$norms" $case $device
        succeed "$last" 4 "$norms" $case $device
    done
done
succeed "$first" 3 "$norms" train sim:0
if [ $is_sanitized = 0 ]; then succeed "$first" 2 "$norms" resnet18 host; fi

# Rounding changes a gradient by 1e-2 where it turns the sign of a relu's input, so f32 trainings
# part after the first update. Without updates (--lr 0) the losses are those of a forward pass of
# 16, 16 and 8 samples.
"${train[@]}" --lr 0 >"$temp/out" 2>"$temp/err" || fail "one process"
want=$(losses)
for n in 2 3 4; do
    start "$last" $n "${train[@]}" --lr 0 --dist auto --sync-batch-norm || fail "synchronised, $n ranks"
    near "$(losses)" "$want" || fail "$n ranks have the losses $(losses), not those of one process, $want"
done
start "$last" 3 "${train[@]}" --lr 0 --dist auto || fail "local statistics"
if near "$(losses)" "$want"; then fail "local statistics make no difference ($want)"; fi

train+=(--lr 0.01)
start "$last" 3 "${train[@]}" --dist auto --sync-batch-norm --checkpoint "$temp/run" --checkpoint-every 2 || fail "checkpoints"
weights=$(grep '^weights: ' "$temp/out")
rm "$temp/run/step-00000003.safetensors" # the run goes on from step 2
start "$last" 3 "${train[@]}" --dist auto --sync-batch-norm --checkpoint "$temp/run" --resume || fail "resume"
if [ "$(grep '^weights: ' "$temp/out")" != "$weights" ]; then fail "a resumed run has other parameters ($weights)"; fi
# The last batch of an epoch has 2 samples: one rank has none.
if start "$last" 3 "${train[@]}" --batch 38 --dist auto --sync-batch-norm; then fail "a rank without samples"; fi
grep -q 'ferry: INVALID_ARGUMENT: .*need a sample on each of 3 ranks, and the last batch of an epoch has 2' "$temp/err" ||
    fail "the refusal of a rank without samples"
echo "ok: ferry train --sync-batch-norm"
