#!/usr/bin/env bash
# Batch norms with the statistics of all ranks: norms.c without MPI and under each MPI, and
# `ferry train --dist auto --sync-batch-norm`, which trains as one process with whole batches.
set -euo pipefail
build=${1:?usage: test_norms.sh BUILD}
norms=$build/bin/tests/norms ferry=$build/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"

# fail MESSAGE
fail() { echo "failed: $1" && cat "$temp/out" "$temp/err" && exit 1; }
# The losses of training and test of each epoch, in one line.
losses() { sed -n 's/^epoch.*  loss \([0-9.]*\)  test loss \([0-9.]*\) .*/\1 \2/p' "$temp/out" | xargs; }
# near LOSSES LOSSES: equal to 0.002. Rounding differs in the last printed digit.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        n = split(a, x); m = split(b, y)
        for (i = 1; i <= n; i++) if (x[i] - y[i] > 0.002 || y[i] - x[i] > 0.002) m = 0
        exit !(n > 1 && n == m)
    }'
}

"$norms" small host >/dev/null
train=("$ferry" train "resnet18:channels=3,size=8" --resize 8 --device sim:0 --limit-samples 40 --batch 16)
train+=(--max-steps 3 --epochs 2 --log-every 1 --lr 0.01)
if "${train[@]}" --sync-batch-norm >"$temp/out" 2>"$temp/err"; then fail "--sync-batch-norm without --dist"; fi
grep -q 'of --dist auto' "$temp/err" || fail "the refusal"

read -ra list <<<"$(mpis | xargs)"
if [ ${#list[@]} = 0 ]; then skip_without_mpi; fi
first=${list[0]} last=${list[-1]}
for case in small refuse; do
    for device in host sim:0; do
        succeed "$first" 2 "$norms" $case $device
        succeed "$last" 4 "$norms" $case $device
    done
done
if [ $is_sanitized = 0 ]; then succeed "$first" 2 "$norms" resnet18 host; fi

"${train[@]}" >"$temp/out" 2>"$temp/err" || fail "one process"
want=$(losses)
start "$last" 3 "${train[@]}" --dist auto --sync-batch-norm --checkpoint "$temp/run" --checkpoint-every 2 || fail "synchronised"
near "$(losses)" "$want" || fail "another training than that of one process ($want)"
weights=$(grep '^weights: ' "$temp/out")
rm "$temp/run/step-00000003.safetensors" # the run goes on from step 2
start "$last" 3 "${train[@]}" --dist auto --sync-batch-norm --checkpoint "$temp/run" --resume || fail "resume"
if [ "$(grep '^weights: ' "$temp/out")" != "$weights" ]; then fail "a resumed run has other parameters ($weights)"; fi
start "$last" 3 "${train[@]}" --dist auto || fail "local statistics"
if near "$(losses)" "$want"; then fail "local statistics make no difference ($want)"; fi
# The last batch of an epoch has 2 samples: one rank has none.
if start "$last" 3 "${train[@]}" --batch 38 --dist auto --sync-batch-norm; then fail "a rank without samples"; fi
grep -q 'ferry: INVALID_ARGUMENT: .*need a sample on each of 3 ranks, and the last batch of an epoch has 2' "$temp/err" ||
    fail "the refusal of a rank without samples"
echo "ok: ferry train --sync-batch-norm"
