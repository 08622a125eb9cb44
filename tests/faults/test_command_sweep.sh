#!/usr/bin/env bash
# The command's trainings and experiments on a simulated device whose N-th copy, launch or
# allocation fails. Each run ends with 0, or with 1 or 4 and a text, and a sanitizer reports
# nothing. Usage: test_command_sweep.sh BUILD_DIR [all] "all", or FERRY_SWEEP=all: N = 1 .. 100;
# else a few N. In builds with AddressSanitizer this detects handles that are freed twice or never.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/../unit/tools/lib.inc.sh" "$1"

seconds=600 # time limit of one run: a hang is a failure
numbers="1 2 3 5 8 13 21 34 55 89"
[ "${2:-${FERRY_SWEEP:-}}" = all ] && numbers=$(seq 100)
export FERRY_DATA=$work/nothing OMP_NUM_THREADS=1
runs=0 faults=0

# run ARGUMENT...: one run; its exit status must be 0, 1 or 4 (out of memory), and a failure has a
# text.
run() {
    timeout -k 5 $seconds "$ferry" "$@" >"$work/out" 2>"$work/err"
    local status=$?
    runs=$((runs + 1))
    if grep -qE 'Sanitizer|runtime error:' "$work/err"; then
        fail "ferry $*: $(grep -m 1 -E 'Sanitizer|runtime error:' "$work/err")"
        return
    fi
    case $status in
    0) ;;
    1 | 4)
        faults=$((faults + 1))
        grep -q '^ferry: [A-Z]' "$work/err" || fail "ferry $*: exit status $status and no text: $(head -c 200 "$work/err")"
        ;;
    124 | 137) fail "ferry $*: no end after $seconds s" ;;
    *) fail "ferry $*: exit status $status: $(head -c 300 "$work/err")" ;;
    esac
}
# sweep KIND ARGUMENT...: the same command with KIND@N for each N. KIND "alloc*": every allocation
# from the N-th on, because Ferry retries.
sweep() {
    local kind=$1 n before=$faults
    shift
    for n in $numbers; do run "$@" --device "sim:0?faults=${kind%\*}@$n${kind#"${kind%\*}"}"; done
    echo "$kind: $*: $((faults - before)) runs failed as they should"
    [ "$faults" -gt "$before" ] || fail "$kind never failed a run of ferry $*"
}

train="train mlp --limit-samples 64 --batch 8 --max-steps 10"
# shellcheck disable=SC2086
for kind in copy launch 'alloc*'; do
    for how in "--log-every 2" "--log-every 2 --stream-data" "--log-every 1 --stream-data --workers 2"; do sweep "$kind" $train $how; done
done
# shellcheck disable=SC2086
sweep copy $train --log-every 2 --graph --checkpoint "$work/steps" --checkpoint-every 3 --save "$work/saved.safetensors"
sweep copy experiment roundtrip --size 16 --iters 20
sweep copy experiment vectorize --size 16 --rounds 1
sweep copy experiment minibatch --runs gd,mini100
sweep copy experiment link --sizes 64,64KiB --pieces 4 --rounds 1
sweep copy experiment link --overlap --steps 8 --compute 1
sweep copy experiment parallel lenet --devices 2 --batch 16 --steps 3
sweep launch plan lenet --ranks 4 --shard-optimizer
sweep launch experiment parallel lenet --ranks 4
sweep copy experiment speedups --only 1,7,10,14,15
# shellcheck disable=SC2086
for budget in sync=0 download=0 download=4 upload=0; do
    for how in "" --stream-data; do run $train --log-every 2 $how --device sim:0 --budget $budget; done
done

echo "$runs runs, $faults of them failed as they should"
