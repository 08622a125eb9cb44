#!/usr/bin/env bash
# `ferry replay`: a recorded run replayed reserves what the run reserved; a saved trace replays the
# same; limits, broken files, usage.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

prints "usage: ferry replay FILE..." replay --help
expect 2 replay
refuses 2 "did you mean --policy?" replay x --polcy ferry
refuses 1 "nowhere" replay "$work/nowhere"

# The replay reserves the bytes that the ledger of the run reports.
expect 0 experiment roundtrip --device sim:0 --size 1000 --iters 3 --record "$work/run.jsonl"
expect 0 ledger "$work/run.jsonl"
was=$(awk '$1 == "sim:0" { print $3 }' "$work/out")
expect 0 replay "$work/run.jsonl" --pool sim:0 --policy ferry --save "$work/run.trace"
now=$(awk '$2 == "sim:0" { print $5 }' "$work/out")
[ "${was:-none}" = "$now" ] || fail "the run reserved '$was', its replay '$now'"
expect 0 replay "$work/run.trace" --policy ferry
[ "$(awk '$2 == "sim:0" { print $5 }' "$work/out")" = "$was" ] || fail "the saved trace replays otherwise"

# A block can be freed while the device still uses its bytes; until then it is split and joined
# differently. So the pools of each run are compared:
pools_of_ledger() { awk '/peak live/ { is_on = 1; next } is_on && !NF { exit } is_on && $(NF - 2) { print $(NF - 3), $(NF - 1) }' "$work/out" | sort; }
pools_of_replay() {
    awk -F '[:,]' '/"peak_reserved_bytes"/ { reserved = $2 + 0 }
        /"segments"/ { print reserved, $2 + 0 }' "$work/out" | sort
}
agrees() {
    expect 0 "$@" --record "$work/agrees.jsonl"
    expect 0 ledger "$work/agrees.jsonl"
    local was now
    was=$(pools_of_ledger)
    expect 0 replay "$work/agrees.jsonl" --policy ferry --json
    now=$(pools_of_replay)
    { [ -n "$was" ] && [ "$was" = "$now" ]; } || fail "ferry $*: the pools had (reserved, segments) $was, in the replay $now"
    expect 0 replay "$work/agrees.jsonl" --pool sim:0 --policy ferry --json --save "$work/agrees.trace"
    now=$(pools_of_replay)
    expect 0 replay "$work/agrees.trace" --policy ferry --json
    [ "$(pools_of_replay)" = "$now" ] || fail "ferry $*: the saved trace replays otherwise"
}
for model in mnist2018 lenet mlp mnist linear; do agrees train "$model" --max-steps 15 --device sim:0 --limit-samples 8192; done
agrees train mnist2018 --max-steps 30 --device sim:0
agrees train mnist2018 --max-steps 30 --device sim:0 --stream-data --limit-samples 4096
agrees train lenet --max-steps 30 --device 'sim:0?profile=k80' --graph --limit-samples 4096
agrees train mnist2018 --max-steps 10 --device 'sim:0?order=lazy' --limit-samples 4096
agrees train mlp --max-steps 20 --device 'sim:0?segments=virtual' --limit-samples 2048
agrees train mlp --max-steps 20 --device 'sim:0?capacity=400MiB' --limit-samples 2048
agrees train mlp --max-steps 20 --device 'sim:0?segment=64KiB' --limit-samples 2048
agrees train mlp --max-steps 30 --device 'sim:0?order=random&seed=3' --accumulate 2 --limit-samples 2048
agrees experiment link --device sim:0
agrees experiment link --overlap --device 'sim:0?numerics=off' # the pools see no arithmetic

expect 4 replay "$work/run.trace" --policy ferry --limit 4MiB
says out "ferry refuses sim:0" "limit 4194304"
says out "sim:0: 4000000 bytes asked for" # with the options of the recorded pool, not of the replaying one
if grep -q "plain pool" "$work/out"; then fail "the verdict speaks of a plain pool"; fi
expect 4 replay "$work/run.trace" --policy pytorch-near --limit 4MiB --json
says out '"limit_bytes": 4194304'
says out '"waste": null' # a peak that was not reached has no comparison
says out '"reserved_per_peak": null'
prints '"limit_bytes": null' replay "$work/run.trace" --policy ferry --json
refuses 1 "sim:7" replay "$work/run.jsonl" --pool sim:7

printf 'ferry-trace 1\n+100\n-1\n-1\n' >"$work/broken.trace"
refuses 1 "line 4 frees a block for the second time" replay "$work/broken.trace"
printf 'ferry-trace 1\n+100\n-2\n' >"$work/broken.trace"
refuses 1 "line 3" replay "$work/broken.trace"
printf 'ferry-trace 1\n+1e3\n' >"$work/broken.trace"
refuses 1 "line 2" replay "$work/broken.trace"
printf 'ferry-trace 1\n+9223372036854775807\n+1\n' >"$work/broken.trace"
refuses 1 "more bytes at once than there can be" replay "$work/broken.trace" --json
[ ! -s "$work/out" ] || fail "a refused trace has figures"

# Event files made by hand: a pool that is created twice, a file without its end, and lines that no
# recording contains.
begin='{"ev":"ferry","version":1}' pool='{"ev":"pool","pool":"sim:0","live_bytes":0,"reserved_bytes":0}'
block() { echo "{\"ev\":\"block_$1\",\"scope\":\"s\",\"pool\":\"sim:0\",\"block\":$2,\"bytes\":1024,\"requested_bytes\":$3}"; }
events() { printf '%s\n' "$@" >"$work/made.jsonl"; }
events "$begin" "$pool" "$(block alloc 1 1000)" "$(block free 1 1000)" "$pool" "$(block alloc 1 900)" "$(block free 1 900)" \
    '{"ev":"end","events":6,"lost":0}'
expect 0 replay "$work/made.jsonl" --policy ferry
[ "$(awk '/made/ { print NF, $(NF - 6) }' "$work/out" | tr '\n' ' ')" = "10 1000 11 900 " ] || fail "two lives of a pool: $(cat "$work/out")"
expect 0 replay "$work/made.jsonl" --policy ferry --pool 'sim:0 (2)'
events "$begin" "$pool" "$(block alloc 1 1000)"
expect 1 replay "$work/made.jsonl" --policy ferry
says out "1000"
says err "has no end"
events "$begin" "$pool" "$(block alloc 1 1000)" "$(block free 1 1000)" "$(block free 1 1000)"
refuses 1 "line 5 frees a block for the second time" replay "$work/made.jsonl"
events "$begin" "$pool" "$(block alloc 2 1000)" "$(block alloc 2 1000)"
refuses 1 "line 4 asks for a block with a number that does not rise" replay "$work/made.jsonl"
for wrong in -1 1.5 1e30 18446744073709551616; do
    events "$begin" "$pool" "$(block alloc 1 "$wrong")"
    refuses 1 "line 3 has no" replay "$work/made.jsonl"
done
