#!/usr/bin/env bash
# Malformed environment variables, one row each: the command exits with 2 and names the variable;
# with FERRY_STRICT=0 it runs and logs a line. Good and empty values run. The library's side:
# tests/unit/runtime/test_environment.c. Usage: test_environment.sh BUILD_DIR.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

run="experiment roundtrip --device sim:0 --size 16 --iters 2"
# variable | good values | malformed values
while IFS='|' read -r name good bad; do
    for value in $good ''; do
        (export "$name=$value" && "$ferry" $run >"$work/out" 2>"$work/err") || fail "$name=$value: exit status $?: $(head -c 200 "$work/err")"
        if grep -q "$name" "$work/err"; then fail "$name=$value is complained of: $(head -c 200 "$work/err")"; fi
    done
    for value in $bad; do
        for command in "$run" "info --device host" "ledger @/nothing" "plan mlp" "train mlp --max-steps 1 --device host --limit-samples 64"; do
            split "$command"
            (export "$name=$value" && "$ferry" "${words[@]}" >"$work/out" 2>"$work/err")
            status=$?
            [ $status -eq 2 ] || fail "$name=$value ferry $command: exit status $status, not 2: $(head -c 200 "$work/err")"
            says err "$name" "$value"
            silent out
        done
        [ "$name" = FERRY_STRICT ] && continue
        (export FERRY_STRICT=0 "$name=$value" && "$ferry" $run >"$work/out" 2>"$work/err") || fail "FERRY_STRICT=0 $name=$value: exit status $?"
        [ "$(grep -c "$name" "$work/err")" -ge 1 ] || fail "FERRY_STRICT=0 $name=$value: no line about it: $(head -c 200 "$work/err")"
    done
done <<'END'
FERRY_BUDGET|upload=1GiB|uplaod=1 upload=x upload
FERRY_STRICT|0 1|yes 2 no
FERRY_THREADS|auto 1 2|none 0 -1 1025 1x
FERRY_HOST_ALLOCATOR|auto mmap|malloc MMAP
FERRY_MACHINE_MEMORY|8GiB 4000000000|lots 0 -1 8GB8
FERRY_MEMORY_DEBUG|poison guard poison+guard none|on poison,guard 1
FERRY_FUSE|on off|no 0 1
FERRY_WATCH|0 1|yes on 2
END

# A recording that cannot begin, or is incomplete, is never a silent success.
for place in "$work/no/where.jsonl" "$work"; do
    FERRY_RECORD=$place refuses 1 "FERRY_RECORD=$place: nothing is recorded: IO" $run
    silent out
    FERRY_STRICT=0 FERRY_RECORD=$place expect 0 $run
    says err "nothing is recorded"
done
FERRY_RECORD=$work/%p.jsonl expect 0 $run
silent err
[ "$(find "$work" -name '[0-9]*.jsonl' | wc -l)" -eq 1 ] || fail "no record where FERRY_RECORD says"
# --record replaces the variable, and commands that only read are not recorded.
FERRY_RECORD=$work/no/where expect 0 $run --record "$work/mine.jsonl"
FERRY_RECORD=$work/mine.jsonl expect 0 ledger "$work/mine.jsonl"
FERRY_RECORD=$work/mine.jsonl expect 0 replay "$work/mine.jsonl"

# Where a snapshot cannot be written, the verdict does not change, and a log line reports it.
FERRY_SNAPSHOT_ON_OOM=$work/no/where.json expect 4 experiment roundtrip --device 'sim:0?limit=64KiB' --size 1000 --iters 2
says err "FERRY_SNAPSHOT_ON_OOM="
# Plugins are not searched in a relative folder, and the log line names it.
FERRY_PLUGIN_PATH=plugins expect 1 experiment roundtrip --device nosuch:0
says err "FERRY_PLUGIN_PATH=plugins was skipped: no folder in it is absolute"
