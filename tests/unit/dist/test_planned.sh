#!/usr/bin/env bash
# `ferry plan MODEL --ranks N` against trainings by mpirun on simulated devices: a step makes the
# planned calls and sends the planned bytes. Besides, the ranks sum one flag of 4 bytes a step: has
# one of them been told to stop? What one step costs: the difference of two runs.
set -euo pipefail
build=${1:?usage: test_planned.sh BUILD}
ferry=$build/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"
mpi=$(mpis | sed -n 1p) # head would end the pipe early
if [ -z "$mpi" ]; then skip_without_mpi; fi

# planned MODEL RANKS [OPTION]: calls and bytes of a step, as `ferry plan` has them.
planned() {
    "$ferry" plan "$1" --batch 2 --ranks "$2" "${@:3}" --json >"$temp/plan"
    local buckets bytes
    buckets=$(grep -c '"end_model_ns"' "$temp/plan")
    bytes=$(sed -n 's/.*"wire_bytes_inside": *\([0-9]*\).*/\1/p' "$temp/plan")
    echo "$buckets $bytes"
}
# ran STEPS MODEL RANKS [OPTION]: calls and bytes of rank 0.
ran() {
    start "$mpi" "$3" "$ferry" train "$2" --device sim:0 --limit-samples 24 --batch 8 --epochs 1 --max-steps "$1" --dist auto "${@:4}" || {
        cat "$temp/out" "$temp/err" >&2
        exit 1
    }
    sed -n 's/^ranks: .*; \([0-9]*\) calls of rank 0, \([0-9]*\) bytes sent, .*/\1 \2/p' "$temp/out"
}
# check MODEL RANKS [OPTION]. Divided state makes more calls: they gather the parameters, and reduce
# and share the elements that remain of equal parts.
check() {
    local buckets bytes calls_one bytes_one calls_two bytes_two flag fits
    read -r buckets bytes <<<"$(planned "$@")"
    read -r calls_one bytes_one <<<"$(ran 1 "$@")"
    read -r calls_two bytes_two <<<"$(ran 2 "$@")"
    flag=$((2 * 4 * ($2 - 1) / $2)) # rank 0 of 2 sends 4 bytes
    fits=$((calls_two - calls_one == buckets + 1))
    if [ $# -gt 2 ]; then fits=$((calls_two - calls_one > buckets + 1)); fi
    if [ "$fits" = 0 ] || [ $((bytes_two - bytes_one)) != $((bytes + flag)) ]; then
        echo "failed: $*: planned $buckets calls, $bytes bytes; a step made $((calls_two - calls_one)) and sent $((bytes_two - bytes_one))"
        exit 1
    fi
    echo "ok: $*: $buckets buckets, $bytes bytes a step"
}
check lenet 2
check lenet 2 --shard-optimizer
check mobilenet_v3_large 2
