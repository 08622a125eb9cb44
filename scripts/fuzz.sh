#!/usr/bin/env bash
# Feeds mutated inputs to readers of files from outside: each tests/fuzz/fuzz_*.c, with libFuzzer,
# AddressSanitizer and UndefinedBehaviorSanitizer.
# Usage: scripts/fuzz.sh [SECONDS [NAME...]]     FERRY_FUZZ_RUNS=N instead counts inputs. Exit
# status 77: no clang with libFuzzer here.
# Needs build/dev (scripts/build.sh dev). Programs, what they have learnt and what they have found:
# build/fuzz/.
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
flags=(-std=gnu11 -O1 -g -D_GNU_SOURCE -Iinclude -I. -Itrain -fno-sanitize-recover=all "-fsanitize=address,undefined"
    '-DFERRY_VERSION="fuzzed"')

# The library on top, with its readers and the parts of runtime/base/ that it compiles in
# (CMakeLists.txt lists them), once for all programs.
read -r -a files < <(sed -n 's/^add_library(ferry_files OBJECT \(.*\))$/\1/p' CMakeLists.txt)
if [ ${#files[@]} -eq 0 ]; then
    echo "CMakeLists.txt has no line add_library(ferry_files OBJECT ...)" >&2
    exit 1
fi
# The subcommands that read files, and what they use of the library.
mkdir -p "$out/objects"
cmake -DPAGE="$PWD/tools/report/page" -DOUT="$PWD/$out/report_page.c" -P cmake/report_page.cmake
files+=(tools/{advise,cli,program,replay,report,timeline}/*.c tools/bench/{measure,peer_alloc}.c "$out/report_page.c"
    alloc/report/snapshot_{svg,sums}.c backends/sim/{clock,network,profile}.c)
rm -f "$out/objects/"*.o "$out/libtrain.a"
# shellcheck disable=SC2016  # the inner shell's
printf '%s\n' train/*.c "${files[@]}" | xargs -P "$(nproc)" -I FILE sh -c 'file=$1 out=$2; shift 2; clang "$@" -c "$file" -o "$out/$(echo "${file%.c}" | tr / _).o"' \
    _ FILE "$out/objects" "${flags[@]}" -fsanitize=fuzzer-no-link
ar rcs "$out/libtrain.a" "$out/objects/"*.o

for name in "${names[@]}"; do
    clang "${flags[@]}" -fsanitize=fuzzer "tests/fuzz/fuzz_$name.c" "$out/libtrain.a" -o "$out/fuzz_$name" \
        -Lbuild/dev/lib -lferry -Wl,-rpath,"$PWD/build/dev/lib" -lz -lm -lpthread
done

fuzz_one() {
    local name=$1 options corpora
    mkdir -p "$out/corpus_$name"
    corpora=("$out/corpus_$name")
    if [ -d "tests/fuzz/corpus_$name" ]; then corpora+=("tests/fuzz/corpus_$name"); fi
    options=(-rss_limit_mb=2048 -timeout=10 -max_len=8192 -print_final_stats=1 -artifact_prefix="$out/${name}_")
    if [ "$name" = commands ]; then # the files of another program too; what the commands print is discarded
        corpora+=(tests/fuzz/corpus_events)
        options+=(-close_fd_mask=3)
    fi
    if [ -f "tests/fuzz/$name.dict" ]; then options+=(-dict="tests/fuzz/$name.dict"); fi
    if [ -n "${FERRY_FUZZ_RUNS:-}" ]; then options+=(-runs="$FERRY_FUZZ_RUNS"); else options+=(-max_total_time="$seconds"); fi
    "$out/fuzz_$name" "${options[@]}" "${corpora[@]}" >"$out/$name.log" 2>&1
}

# One for each core at a time; what they say comes in their order.
status=0
for ((i = 0; i < ${#names[@]}; i += $(nproc))); do
    pids=()
    for name in "${names[@]:i:$(nproc)}"; do
        fuzz_one "$name" &
        pids+=($!)
    done
    for j in "${!pids[@]}"; do
        name=${names[i + j]}
        echo "== fuzz_$name"
        if ! wait "${pids[j]}"; then
            echo "found something: $out/$name.log"
            tail -n 30 "$out/$name.log" || true
            status=1
        fi
        grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$out/$name.log" || true
    done
done
exit $status
