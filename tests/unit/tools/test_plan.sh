#!/usr/bin/env bash
# `ferry plan`: its text, document, timeline and exit statuses. The batch that --fit finds fits, and
# one more does not.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

figure() { sed -n "s/^ *\"$1\": \([0-9a-z]*\),*\$/\1/p" "$work/out"; }

# ---- usage ----
prints "usage: ferry plan MODEL" plan --help
says out "--max-batch"
refuses 2 "which model?" plan
refuses 2 "no model 'nothing'" plan nothing
expect 2 plan mlp --batch 0
refuses 2 "--explain is of the training steps of models" plan roundtrip --explain
prints "call     8 relu_backward: no call beside it can join it" plan mlp --batch 4 --explain
prints "  chain " plan mobilenet_v3_large --batch 2 --explain
prints "  chain " plan mobilenet_v3_large --batch 2 --explain --device 'sim:0?chains=cuda'
refuses 2 "no simulated device" plan mlp --device cuda:0
expect 2 plan mlp --device 'sim:0?profile=nothing'
silent out

# ---- figures ----
for model in linear mlp lenet mnist2018 mnist roundtrip vectorize minibatch; do
    expect 0 plan $model --batch 32 --json
    silent err
    [ "$(figure fits)" = true ] || fail "$model with 32 does not fit an H200"
    sum=$(sed -n '/"by_category"/,/}/s/.*: \([0-9]*\),*$/\1/p' "$work/out" | awk '{ sum += $1 } END { print sum + 0 }')
    [ "$sum" = "$(figure peak_bytes)" ] || fail "$model: categories sum to $sum, the peak is $(figure peak_bytes)"
    [ "$(figure step_model_ns)" -gt 0 ] || fail "$model: a step takes no time"
    [ "$(figure max_batch)" = null ] || fail "$model: max_batch without --fit"
done
for model in resnet18:11175818 mobilenet_v3_large:5483032 vit_tiny:5717416; do
    size=64
    case $model in vit*) size=224 ;; esac # each position has parameters
    expect 0 plan "${model%:*}:size=$size" --batch 2 --json
    [ "$(figure params)" = "${model#*:}" ] || fail "$model: $(figure params) parameters"
done
expect 0 plan mlp --batch 32 --inference --json
[ "$(figure optimizer_state)" -le 256 ] || fail "inference has $(figure optimizer_state) bytes of optimizer state"
expect 0 plan mlp --batch 32 --json
training=$(figure step_model_ns)
expect 0 plan mlp --batch 32 --inference --json
[ "$(figure step_model_ns)" -lt "$training" ] || fail "inference takes as long as a training step"
refuses 2 "--inference is of models" plan roundtrip --inference
expect 0 plan resnet18:size=8 --batch 8 --json
plain=$(figure activations)
expect 0 plan resnet18:size=8 --batch 8 --recompute sqrt --json
[ "$(figure activations)" -lt "$plain" ] || fail "recomputation keeps $(figure activations) bytes of activations, $plain without"
segments=$(figure activations)
expect 0 plan resnet18:size=8 --batch 8 --recompute cheap --json
[ "$(figure activations)" -lt "$plain" ] || fail "cheap recomputation keeps $(figure activations) bytes of activations, $plain without"
expect 0 plan resnet18:size=8 --batch 8 --recompute cheap,sqrt --json
[ "$(figure activations)" -lt "$segments" ] || fail "both recomputations keep $(figure activations) bytes of activations, segments $segments"
prints '"params": 11171914' plan resnet18:size=8 --batch 8 --drop-bias --json
expect 0 plan resnet18:size=8 --batch 8 --offload 4 --json
[ "$(figure activations)" -lt "$plain" ] || fail "offloading keeps $(figure activations) bytes of activations, $plain without"
[ "$(figure pinned_bytes)" -gt 100000 ] || fail "offloading takes $(figure pinned_bytes) page-locked bytes"
refuses 1 "segments are one or the other" plan resnet18:size=8 --recompute 2 --offload 2
expect 2 plan resnet18:size=8 --offload 2 --explain
expect 0 plan resnet18:size=8 --offload 2 --fit --max-batch 9
expect 2 plan roundtrip --offload 2
prints "* none" plan resnet18:size=8 --batch 8 --recompute auto
# scratch memory depends on the version of oneDNN
expect 0 plan resnet18:size=8 --batch 512 --json
expect 0 plan resnet18:size=8 --batch 512 --recompute auto --device "sim:0?limit=$(($(figure reserved_bytes) * 93 / 100))"
matches out '^\* (cheap|uneven)'
says out "does not fit"
expect 4 plan resnet18:size=8 --batch 512 --recompute auto --device 'sim:0?limit=100MiB'
says out "no row fits" "step, ns"
# uneven segments fit where segments of equal results need more memory or more operations
expect 0 plan resnet18:size=32 --batch 64 --recompute auto --json --device 'sim:0?limit=295MiB'
added() { awk -v name="\"recompute\": \"$1\"" 'index($0, name) { here = 1 } here && /"added_flops"/ { gsub(/[^0-9]/, ""); print; exit }' "$work/out"; }
way_fits() { awk -v name="\"recompute\": \"$1\"" 'index($0, name) { here = 1 } here && /"fits"/ { print /true/; exit }' "$work/out"; }
[ "$(way_fits none)" = 0 ] || fail "resnet18 fits 295 MiB as it is"
[ "$(way_fits uneven)" = 1 ] || fail "no uneven segments fit 295 MiB"
for way in 2 4 8 sqrt; do
    [ "$(way_fits $way)" = 0 ] || [ "$(added $way)" -ge "$(added uneven)" ] || fail "$way adds $(added $way) operations, uneven $(added uneven)"
done
says out '"first_layer"'
# every largest batch is exact: one more is refused
expect 0 plan resnet18:size=8 --fit --device 'sim:0?limit=200MiB'
cp "$work/out" "$work/fit"
row=0
while read -r f32 bf16 options; do
    for precision in f32 bf16; do
        most=$f32
        [ $precision = f32 ] || most=$bf16
        expect 0 plan resnet18:size=8 --batch "$most" --precision $precision $options --device 'sim:0?limit=200MiB'
        expect 4 plan resnet18:size=8 --batch $((most + 1)) --precision $precision $options --device 'sim:0?limit=200MiB'
        row=$((row + 1))
    done
done < <(awk '/^largest batch$/ { here = 1 } !here || NF < 3 { next }
    /^  none / { print $2, $3 }
    /^  cheap  / { print $2, $3, "--recompute cheap" }
    /^  sqrt / { print $2, $3, "--recompute sqrt" }
    /^  cheap,sqrt / { print $2, $3, "--recompute cheap,sqrt" }
    /^  offload 4 / { print $3, $4, "--offload 4" }' "$work/fit")
[ $row = 10 ] || fail "the largest batches have $row figures, not 10: $(cat "$work/fit")"
expect 2 plan lenet --recompute auto --offload 2
refuses 2 "--recompute and --offload are of the training steps of models" plan roundtrip --recompute 2
expect 0 plan resnet18:size=8 --batch 8 --precision bf16 --json
[ "$(figure activations)" -ne "$plain" ] || fail "bf16 keeps as many bytes of activations as f32"
refuses 2 "--precision and --drop-bias are of models" plan roundtrip --precision bf16
refuses 2 "--recompute many is neither auto nor sqrt nor a number from 0 to 9999, nor cheap" plan mlp --recompute many
refuses 2 "--recompute cheap2 is neither auto nor" plan mlp --recompute cheap2
# the table of choices and that of largest batches
prints "* none" plan lenet --batch 8 --recompute auto --fit --max-batch 16
says out "largest batch that fits: 16"
matches out '^  cheap,sqrt +16 +16$'
refuses 1 "recompute asks for 50 segments; it has" plan mlp --recompute 50
refuses 1 "has no option 'width=3'" plan resnet18:width=3
expect 0 plan mlp --json
[ "$(figure params)" = 101770 ] || fail "mlp has $(figure params) parameters"
[ "$(figure weights)" = $((407296 + 256)) ] || fail "mlp's weights are $(figure weights) bytes"
# 256: the random state of dropout, which every model has
state=$(figure optimizer_state) # the learning rate and the step number
[ "$state" -le 512 ] || fail "SGD has $state bytes of state"
[ "$(figure gradients)" -ge 407296 ] || fail "mlp's gradients are $(figure gradients) bytes"
expect 0 plan mlp --optimizer momentum --json
[ "$(figure optimizer_state)" -ge $((state + 407296)) ] || fail "momentum has $(figure optimizer_state) bytes of state"
for optimizer in adam adamw adadelta; do
    expect 0 plan mlp --optimizer $optimizer --json
    [ "$(figure optimizer_state)" -ge $((2 * 407296)) ] || fail "$optimizer has $(figure optimizer_state) bytes of state"
done
expect 0 plan mlp --optimizer rmsprop --json
[ "$(figure optimizer_state)" -ge $((state + 407296)) ] || fail "rmsprop has $(figure optimizer_state) bytes of state"
prints "it fits" plan mnist

# ---- fit ----
expect 4 plan mlp --batch 100000 --json --device 'sim:0?limit=64MiB' # the largest batch: tests/golden/check_json.py
says out '"verdict": "sim:'
says err "it does not fit"
expect 0 plan mobilenet_v3_large:size=32,classes=10 --fit --max-batch 9 --json # refuses a batch of 1
[ "$(figure max_batch)" = 9 ] || fail "mobilenet_v3_large --max-batch 9 gave $(figure max_batch)"
expect 0 plan mlp --batch 1 --fit --max-batch 77 --json
[ "$(figure max_batch)" = 77 ] || fail "--max-batch 77 gave $(figure max_batch)"
expect 4 plan mlp --batch 1 --fit --json --device 'sim:0?limit=100KiB'
[ "$(figure max_batch)" = 0 ] || fail "max_batch is $(figure max_batch) where nothing fits"

# ---- timeline ----
expect 0 plan mlp --csv "$work/line.csv"
head -1 "$work/line.csv" | grep -q '^model_ns,live_bytes,reserved_bytes,activations_bytes,' || fail "the CSV begins with $(head -1 "$work/line.csv")"
peak=$(cut -d, -f2 "$work/line.csv" | sort -n | tail -1)
expect 0 plan mlp --json
[ "$peak" = "$(figure peak_bytes)" ] || fail "the timeline's peak is $peak, the plan's $(figure peak_bytes)"

# ---- several ranks ----
refuses 2 "8 ranks are not divisible by 3 nodes; 9 are" plan mlp --ranks 8 --nodes 3
refuses 2 "options of networks and nodes need --ranks" plan mlp --nodes 2
refuses 2 "LATENCY:BANDWIDTH such as 5us:50GB/s, not '5us'" plan mlp --ranks 2 --net 5us
expect 2 plan roundtrip --ranks 2
refuses 2 "--ranks is of the training steps of models" plan mlp --ranks 2 --inference
refuses 1 "BUSY" plan mlp --ranks 2 --record "$work/events.jsonl"
expect 0 plan lenet --batch 16 --ranks 4 --json
# What four devices of one process send in a step: each byte by the same collectives.
wire=$(figure wire_bytes_inside) together=$(figure step_model_ns | tail -1) alone=$(figure step_model_ns | head -1)
[ "$together" -eq $((alone + $(figure exposed_model_ns))) ] || fail "a step of 4 ranks takes $together ns, of one $alone"
expect 0 experiment parallel lenet --devices 4 --batch 64 --steps 1 --json
moved=$(figure peer_bytes_per_step | tail -1)
[ "$moved" -eq $((4 * wire)) ] || fail "four ranks send $wire bytes each, four devices $moved together"
# Gradients of every parameter are found: resnet18 has 76.
expect 0 plan resnet18:size=8 --batch 8 --ranks 8 --nodes 2 --json
count=$(figure gradients | awk 'NR > 1 { sum += $1 } END { print sum + 0 }') # the first is of by_category
[ "$count" = 76 ] || fail "the buckets have $count gradients"
[ "$(figure wire_bytes_between)" -gt 0 ] || fail "no byte between nodes"
# Adam's state of lenet: 2 x 516480 bytes, an eighth of each with shards.
expect 0 plan lenet --batch 16 --ranks 8 --optimizer adam --json
peak=$(figure peak_bytes | tail -1) shard=$(figure sharded_state_bytes)
[ "$(figure state_bytes) $shard" = "1033216 129536" ] || fail "state $(figure state_bytes), sharded $shard"
expect 0 plan lenet --batch 16 --ranks 8 --optimizer adam --shard-optimizer --json
[ "$(figure peak_bytes | tail -1)" = $((peak - 1033216 + shard)) ] || fail "the peak does not shrink with the state"
prints "assumptions: equal ranks" plan lenet --ranks 2
