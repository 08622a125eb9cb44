#!/usr/bin/env bash
# Two ranks train together, by the plugin of each MPI.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 TMPDIR=$work
for mpi in openmpi mpich; do
    options=()
    if [ $mpi = openmpi ]; then options=(--oversubscribe --mca btl "self,vader"); fi
    mpirun.$mpi "${options[@]}" -n 2 ferry train linear --dist auto --device host >"$work/$mpi" 2>"$work/errors" ||
        { cat "$work/errors" && fail "ranks of $mpi exit with an error"; }
    grep -q '^ranks: 2' "$work/$mpi" || fail "not two ranks of $mpi: $(cat "$work/$mpi")"
done
