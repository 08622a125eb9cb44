#!/usr/bin/env bash
# Instructions per light request, counted by callgrind: the difference of two runs, divided by the
# difference of their lengths.
# Counts do not depend on how busy the machine is. Usage: bench/instructions.sh [BUILD_DIR]
set -euo pipefail
build=${1:-build}
program=
for candidate in "$build/bin/bench/dispatch_floor" "$build/release/bin/bench/dispatch_floor" "$build/dev/bin/bench/dispatch_floor"; do
    [ -x "$candidate" ] && program=$candidate && break
done
if [ -z "$program" ]; then
    echo "instructions.sh: no bin/bench/dispatch_floor under $build: build first, or name the build folder" >&2
    exit 1
fi
if ! command -v valgrind >/dev/null; then
    echo "instructions.sh: valgrind is not installed (Debian: valgrind)" >&2
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

few=1000 many=11000

count() { # WORK TIMES
    OMP_NUM_THREADS=1 valgrind --tool=callgrind --callgrind-out-file="$work/$1.$2" "$program" "$2" "$1" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
    sed -n 's/^summary: //p; s/^totals: //p' "$work/$1.$2" | head -n 1
}
each() { # WORK
    local low high
    low=$(count "$1" $few)
    high=$(count "$1" $many)
    awk -v low="$low" -v high="$high" -v times=$((many - few)) 'BEGIN { printf "%.0f", (high - low) / times }'
}

echo "instructions per add of f32[4] with a new result: $(each add)"
echo "the same in a guarded scope: $(each guarded)"
matmul=$(each matmul)
sgemm=$(each sgemm)
echo "instructions per matmul 16x16x16 with a new result: $matmul; a bare dnnl_sgemm of that size: $sgemm"
step=$(each step)
recorded=$(each recorded)
replay=$(each replay)
echo "instructions per op of a step of 20 such adds: $((step / 20)), recorded by a tape $((recorded / 20)), replayed as a graph $((replay / 20))"
