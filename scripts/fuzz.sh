#!/usr/bin/env bash
# Feeds mutated inputs to readers of files from outside: each tests/fuzz/fuzz_*.c, with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
# Usage: scripts/fuzz.sh [SECONDS [NAME...]]     FERRY_FUZZ_RUNS=N instead counts inputs. Exit status 77: no clang with libFuzzer here.
# Needs build/dev (scripts/build.sh dev). Programs, what they have learnt and what they have found: build/fuzz/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
if [ $# -gt 0 ]; then shift; fi
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=${source#tests/fuzz/fuzz_}
        names+=("${name%.c}")
    done
fi
out=build/fuzz
mkdir -p "$out"
if ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { (void)d; (void)n; return 0; }' |
    clang -x c - -fsanitize=fuzzer,address,undefined -o "$out/probe" 2>/dev/null; then
    echo "no clang with libFuzzer on this machine (Debian: clang libclang-rt-dev): nothing was fuzzed"
    exit 77
fi
flags=(-std=gnu11 -O1 -g -D_GNU_SOURCE -Iinclude -I. -Itrain -fno-sanitize-recover=all)
status=0
for name in "${names[@]}"; do
    clang "${flags[@]}" -fsanitize=fuzzer,address,undefined "tests/fuzz/fuzz_$name.c" train/*.c -o "$out/fuzz_$name" \
        -Lbuild/dev/lib -lferry -Wl,-rpath,"$PWD/build/dev/lib" -lz -lm -lpthread
    mkdir -p "$out/corpus_$name"
    corpora=("$out/corpus_$name")
    if [ -d "tests/fuzz/corpus_$name" ]; then corpora+=("tests/fuzz/corpus_$name"); fi
    options=(-rss_limit_mb=2048 -timeout=10 -max_len=8192 -print_final_stats=1 -artifact_prefix="$out/${name}_")
    if [ -f "tests/fuzz/$name.dict" ]; then options+=(-dict="tests/fuzz/$name.dict"); fi
    if [ -n "${FERRY_FUZZ_RUNS:-}" ]; then options+=(-runs="$FERRY_FUZZ_RUNS"); else options+=(-max_total_time="$seconds"); fi
    echo "== fuzz_$name"
    if ! "$out/fuzz_$name" "${options[@]}" "${corpora[@]}" >"$out/$name.log" 2>&1; then
        echo "found something: $out/$name.log"
        tail -n 30 "$out/$name.log"
        status=1
    fi
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$out/$name.log" || true
done
exit $status
