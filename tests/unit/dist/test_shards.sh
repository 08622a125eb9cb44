#!/usr/bin/env bash
# Optimizer state that is divided over ranks: shards.c without MPI and under each MPI, and
# `ferry train --dist auto --shard-optimizer`, whose checkpoints any number of ranks resumes.
set -euo pipefail
build=${1:?usage: test_shards.sh BUILD}
shards=$build/bin/tests/shards ferry=$build/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"

folder() { mkdir "$temp/$1" && echo "$temp/$1"; }
# The steps of a training end with this line, which has a checksum of all parameters.
weights() { grep '^weights: ' "$temp/out"; }
# A training without a checkpoint begins with epoch 1.
resumed() { ! grep -q '^epoch 1/' "$temp/out"; }

"$shards" host "$(folder one)" few >/dev/null
if "$ferry" train lenet --shard-optimizer 2>"$temp/err"; then fail "--shard-optimizer without --dist"; fi
grep -q 'of --dist auto' "$temp/err"

read -ra list <<<"$(mpis | xargs)"
if [ ${#list[@]} = 0 ]; then skip_without_mpi; fi
first=${list[0]} last=${list[-1]}
succeed "$first" 2 "$shards" sim:0 "$(folder two)" few
succeed "$last" 4 "$shards" host "$(folder four)" all
for mpi in "${list[@]}"; do succeed "$mpi" 4 "$shards" sim:0 "$(folder "$mpi")" few; done

train=("$ferry" train mlp --device sim:0 --limit-samples 300 --optimizer adamw --max-steps 8 --epochs 4)
start "$last" 3 "${train[@]}" --dist auto || fail "whole state"
want=$(weights)
start "$last" 3 "${train[@]}" --dist auto --shard-optimizer --checkpoint "$temp/run" --checkpoint-every 3 || fail "divided state"
if [ "$(weights)" != "$want" ]; then fail "divided state has other parameters than whole state ($want)"; fi
# Without the last checkpoint the run goes on from step 6: on other numbers of ranks too.
rm "$temp/run/step-00000008.safetensors"
cp -r "$temp/run" "$temp/run2"
cp -r "$temp/run" "$temp/run3"
{ start "$last" 3 "${train[@]}" --dist auto --shard-optimizer --checkpoint "$temp/run" --resume && resumed; } || fail "resume"
if [ "$(weights)" != "$want" ]; then fail "a resumed run has other parameters ($want)"; fi
{ start "$first" 2 "${train[@]}" --dist auto --shard-optimizer --checkpoint "$temp/run2" --resume && resumed; } || fail "resume on 2 ranks"
{ "${train[@]}" --checkpoint "$temp/run3" --resume >"$temp/out" 2>"$temp/err" && resumed; } || fail "resume in one process"
if start "$last" 2 "${train[@]}" --optimizer lamb --dist auto --shard-optimizer; then fail "lamb"; fi
grep -q 'UNSUPPORTED.*lamb' "$temp/err"
if start "$last" 2 "${train[@]}" --precision f16 --dist auto --shard-optimizer; then fail "f16"; fi
grep -q 'use bf16, or set shard_optimizer to 0' "$temp/err"
echo "ok: ferry train --shard-optimizer"
