#!/usr/bin/env bash
# Runs the tests of a built preset, two at a time, with output on failure. Usage: scripts/test.sh
# PRESET [CTEST OPTION...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/test.sh PRESET [CTEST OPTION...]}
shift
# Waiting OpenMP threads sleep: tests share the cores.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
ctest --preset "$preset" --no-tests=error "$@"
