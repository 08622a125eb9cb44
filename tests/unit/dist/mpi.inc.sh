#!/usr/bin/env bash
# Ranks of a test, by each MPI that is here; sourced by test_*.sh, which set $build.
# Makes $temp, which is removed at the end.
unset WORLD_SIZE OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_SIZE SLURM_STEP_NUM_TASKS FERRY_MPI
export OMP_NUM_THREADS=1
build=${build:?set it before}
temp=$(mktemp -d)
# LD_PRELOAD splits at blanks and colons, which $build and $TMPDIR may have.
preloads=$(mktemp -d /tmp/ferry-preload-XXXXXX)
ln -s "$(realpath "$build")/lib/tests" "$preloads/lib"
trap 'rm -rf "$temp" "$preloads"' EXIT

is_sanitized=0
if grep -Eq 'NEEDED.*(asan|tsan)' <<<"$(readelf -dW "$build/bin/ferry")"; then is_sanitized=1; fi
# UCX, below Debian's MPICH, replaces mmap and munmap, as sanitizers do: the two crash together.
if [ $is_sanitized = 1 ]; then export UCX_MEM_EVENTS=n; fi
# counter MPI: counts what that MPI sends; none for sanitizers, whose library comes first.
counter() {
    if [ $is_sanitized = 0 ]; then echo "$preloads/lib/libcount_mpi_$1.so"; fi
}
# start MPI N [OPTION...] PROGRAM ARGUMENT...: what the ranks print is in $temp/out and $temp/err, one rank after
# another: mpirun would mix their lines, and parts of lines. What MPI writes is in $temp: of two
# runs of Open MPI 4 that share a folder for sessions, one may fail as the other removes it.
start() {
    local mpi=$1 n=$2 options=() status=0
    shift 2
    while [[ "$1" == -* ]]; do options+=("$1") && shift; done
    rm -f "$temp"/rank.*
    # More ranks than cores, as any user, without a search for networks.
    if [ "$mpi" = openmpi ]; then options+=(--allow-run-as-root --oversubscribe --mca btl "self,vader"); fi
    # MPI leaves memory unfreed in plugins that it no longer has loaded.
    # shellcheck disable=SC2016 # the ranks expand it
    TMPDIR=$temp OMPI_MCA_btl_vader_backing_directory=$temp LSAN_OPTIONS=detect_leaks=0 "mpirun.$mpi" "${options[@]}" -n "$n" \
        sh -c 'rank=$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@" >"$rank.out" 2>"$rank.err"' "$temp/rank" "$@" \
        >"$temp/out" 2>"$temp/err" || status=$?
    cat "$temp"/rank.*.out >>"$temp/out"
    cat "$temp"/rank.*.err >>"$temp/err"
    return $status
}
# fail MESSAGE
fail() { echo "failed: $*" && cat "$temp/out" "$temp/err" && exit 1; }
# succeed MPI N PROGRAM ARGUMENT...: all ranks end well.
succeed() {
    { start "$@" && [ "$(grep -c 'ends well' "$temp/out")" = "$2" ]; } || fail "$*"
    echo "ok: $*"
}
# says MPI N PATTERN COUNT PROGRAM ARGUMENT...: so many of the N ranks print the pattern. Broken groups
# leave MPI without MPI_Finalize, so mpirun's status is another one.
says() {
    local mpi=$1 n=$2 pattern=$3 count=$4
    shift 4
    start "$mpi" "$n" "$@" || true
    [ "$(grep -c "$pattern" "$temp/out")" = "$count" ] || fail "$mpi $n $*"
    echo "ok: $mpi $n $*"
}
# later COMMAND...: in the background and a separate folder, as ranks that lose another mostly wait.
# wait_for_all fails if one of them did.
jobs=()
later() {
    local folder
    folder=$(mktemp -d -p "$temp")
    temp=$folder "$@" &
    jobs+=($!)
}
wait_for_all() {
    local job failed=0
    for job in "${jobs[@]}"; do wait "$job" || failed=1; done
    jobs=()
    return $failed
}
# The MPIs of this machine and this build.
mpis() {
    local mpi
    for mpi in openmpi mpich; do
        if command -v "mpirun.$mpi" >/dev/null && [ -e "$build/lib/ferry/libferry-mpi-$mpi.so" ]; then echo "$mpi"; fi
    done
}
skip_without_mpi() { echo "skipped: no MPI here (Debian: openmpi-bin libopenmpi-dev, mpich libmpich-dev)" && exit 77; }
