#!/usr/bin/env bash
# Groups whose tensors go from device to device, on the fake CUDA and its NCCL: every call, trainings,
# ranks that stop inside NCCL, call something else or close, and a machine without NCCL.
set -euo pipefail
build=${1:?usage: test_native.sh BUILD}
tests=$build/bin/tests
fake=$(realpath "$build")/lib/tests/libfake_cuda.so
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"
if [ ! -e "$fake" ]; then echo "skipped: the CUDA plugin was not built, as nvcc is missing" && exit 77; fi
export FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=none FERRY_NCCL=$fake

# native MPI N PATTERN COUNT ARGUMENT...
native() { later says "${@:1:4}" "$tests/native" "${@:5}"; }
tested=0
for mpi in $(mpis); do
    tested=$((tested + 1))
    for n in 2 4; do
        succeed "$mpi" "$n" "$tests/ranks" calls cuda:0
        grep -q ', from device to device$' "$temp/out"
    done
    succeed "$mpi" 2 "$tests/ddp" mlp cuda:0
    FERRY_NCCL=none succeed "$mpi" 2 "$tests/ranks" calls cuda:0
    grep -q 'rank 0: .*FERRY_NCCL=none$' "$temp/out"
    FAKE_CUDA_SHARED=1 succeed "$mpi" 2 "$tests/ranks" calls cuda:0
    grep -q 'ranks 0 and 1 of host .* use one card' "$temp/out"
    start "$mpi" 2 "$build/bin/ferry" train mlp --device cuda:0 --dist auto --limit-samples 128 --epochs 1
    grep -q '^ranks: 2, .*, from device to device; ' "$temp/out"
    FAKE_NCCL_STOP=2.2 native "$mpi" 3 "its last call: all_reduce 4" 2 stop
    FAKE_NCCL_STOP=2.2 native "$mpi" 3 "its last call: all_reduce 4" 2 stop-async
    native "$mpi" 3 "call different things" 3 differ
    native "$mpi" 3 "is lost: a call with other processes did not end" 2 close-stop
    native "$mpi" 3 "has closed its group" 2 leave
    native "$mpi" 3 "is lost, as rank 0 reports" 1 slow-abort
    native "$mpi" 3 "is lost, as rank 2 reports" 2 open-fails
    later succeed "$mpi" 3 "$tests/native" close-late # one rank closes later than the others
    wait_for_all
done
if [ $tested = 0 ]; then skip_without_mpi; fi
