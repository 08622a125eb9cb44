#!/usr/bin/env bash
# Runs the benchmarks. Usage: scripts/bench.sh [--peers]
# Without an option: Ferry's own suites and programs of the release build; with --peers: the
# comparisons of the peers build.
# Figures mean something on a quiet machine only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A kernel thread that waits must not burn the core that the next one needs.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo 0)
echo "load of the machine before: $load" >&2

if [ "${1:-}" = --peers ]; then
    programs=(build/peers/bin/bench/peers_*)
else
    for suite in dispatch gemm copy train; do build/release/bin/ferry bench "$suite"; done
    programs=(build/release/bin/bench/*)
fi
for program in "${programs[@]}"; do
    if [ ! -x "$program" ]; then continue; fi
    printf '\n==== %s\n' "$(basename "$program")"
    "$program"
done
if [ "${1:-}" = --peers ]; then
    printf '\n==== instructions\n'
    bench/instructions.sh build/peers
fi
