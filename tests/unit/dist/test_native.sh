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

# says MPI N TEXT COUNT ARGUMENT...: so many ranks print the text. In the background: these ranks
# mostly wait. Broken groups leave MPI without MPI_Finalize, so mpirun's status is another one.
says() {
    local mpi=$1 n=$2 text=$3 count=$4
    shift 4
    temp=$temp/$faults
    mkdir "$temp"
    start "$mpi" "$n" "$tests/native" "$@" || true
    if [ "$(grep -c "$text" "$temp/out")" != "$count" ]; then
        echo "failed: $mpi $n $*" && cat "$temp/out" "$temp/err" && exit 1
    fi
    echo "ok: $mpi $n $*"
}
# late MPI: one rank closes later than the others. In the background, too.
late() {
    temp=$temp/late
    mkdir "$temp"
    succeed "$1" 3 "$tests/native" close-late
    rm -r "$temp"
}
tested=0 faults=0 jobs=()
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
    FAKE_NCCL_STOP=2.2 says "$mpi" 3 "its last call: all_reduce 4" 2 stop & jobs+=($!) faults=$((faults + 1))
    FAKE_NCCL_STOP=2.2 says "$mpi" 3 "its last call: all_reduce 4" 2 stop-async & jobs+=($!) faults=$((faults + 1))
    says "$mpi" 3 "call different things" 3 differ & jobs+=($!) faults=$((faults + 1))
    says "$mpi" 3 "is lost: a call with other processes did not end" 2 close-stop & jobs+=($!) faults=$((faults + 1))
    says "$mpi" 3 "has closed its group" 2 leave & jobs+=($!) faults=$((faults + 1))
    says "$mpi" 3 "is lost, as rank 0 reports" 1 slow-abort & jobs+=($!) faults=$((faults + 1))
    says "$mpi" 3 "is lost, as rank 2 reports" 2 open-fails & jobs+=($!) faults=$((faults + 1))
    late "$mpi" & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job"; done
    jobs=()
done
if [ $tested = 0 ]; then skip_without_mpi; fi
