#!/usr/bin/env bash
# Configures and builds a preset (CMakePresets.json) in build/PRESET. Usage: scripts/build.sh PRESET
# [-DNAME=VALUE...] [TARGET...] -D goes to CMake, which remembers it in build/PRESET. Says little if
# all goes well; $FERRY_JOBS is how many compilers run at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?usage: scripts/build.sh PRESET [-DNAME=VALUE...] [TARGET...]}
shift
options=()
while [[ "${1:-}" == -D* ]]; do options+=("$1") && shift; done
log=build/$preset/configure.log
mkdir -p "build/$preset"
echo "building build/$preset, log in build/$preset/build.log"
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
grep -E '^-- .*(left out|is built)' "$log" || true
targets=()
if [ $# -gt 0 ]; then targets=(--target "$@"); fi
NINJA_STATUS='[%f/%t] ' cmake --build "build/$preset" -j "${FERRY_JOBS:-$(nproc)}" "${targets[@]}" >"build/$preset/build.log" 2>&1 || {
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Re-checking)' "build/$preset/build.log" >&2
    echo "building preset $preset failed (whole log: build/$preset/build.log)" >&2
    exit 1
}
grep -E 'warning:' "build/$preset/build.log" || true
echo "built: build/$preset"
