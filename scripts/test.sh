#!/usr/bin/env bash
# Runs the tests of a built preset, with output on failure: one more at a time than there are cores,
# at most 8, as some wait; or $CTEST_PARALLEL_LEVEL. Usage: scripts/test.sh PRESET [CTEST OPTION...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/test.sh PRESET [CTEST OPTION...]}
shift
# Waiting OpenMP threads sleep: tests share the cores.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
cores=$(env -u OMP_NUM_THREADS nproc)
parallel=${CTEST_PARALLEL_LEVEL:-$((cores < 7 ? cores + 1 : 8))}
ctest --preset "$preset" --no-tests=error --parallel "$parallel" "$@"
