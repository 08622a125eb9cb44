#!/usr/bin/env bash
# `ferry plan`: its text, document, timeline and exit statuses. The batch that --fit finds fits, and
# one more does not.
# Usage: test_plan.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

figure() { sed -n "s/^ *\"$1\": \([0-9a-z]*\),*\$/\1/p" "$work/out"; }

# ---- usage ----
expect 0 plan --help
says out "usage: ferry plan MODEL"
says out "--max-batch"
expect 2 plan
says err "which model?"
expect 2 plan nothing
says err "no model 'nothing'"
expect 2 plan mlp --batch 0
expect 2 plan roundtrip --explain
says err "--explain is of the training steps of models"
expect 0 plan mlp --batch 4 --explain
says out "call     8 relu_backward: no call beside it can join it"
expect 0 plan mobilenet_v3_large --batch 2 --explain
says out "  chain "
expect 0 plan mobilenet_v3_large --batch 2 --explain --device 'sim:0?chains=cuda'
says out "  chain "
expect 2 plan mlp --device cuda:0
says err "no simulated device"
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
expect 2 plan roundtrip --inference
says err "--inference is of models"
expect 0 plan resnet18:size=8 --batch 8 --json
plain=$(figure activations)
expect 0 plan resnet18:size=8 --batch 8 --recompute sqrt --json
[ "$(figure activations)" -lt "$plain" ] || fail "recomputation keeps $(figure activations) bytes of activations, $plain without"
segments=$(figure activations)
expect 0 plan resnet18:size=8 --batch 8 --recompute cheap --json
[ "$(figure activations)" -lt "$plain" ] || fail "cheap recomputation keeps $(figure activations) bytes of activations, $plain without"
expect 0 plan resnet18:size=8 --batch 8 --recompute cheap,sqrt --json
[ "$(figure activations)" -lt "$segments" ] || fail "both recomputations keep $(figure activations) bytes of activations, segments $segments"
expect 0 plan resnet18:size=8 --batch 8 --drop-bias --json
says out '"params": 11171914'
expect 0 plan resnet18:size=8 --batch 8 --offload 4 --json
[ "$(figure activations)" -lt "$plain" ] || fail "offloading keeps $(figure activations) bytes of activations, $plain without"
[ "$(figure pinned_bytes)" -gt 100000 ] || fail "offloading takes $(figure pinned_bytes) page-locked bytes"
expect 1 plan resnet18:size=8 --recompute 2 --offload 2
says err "segments are one or the other"
expect 2 plan resnet18:size=8 --offload 2 --explain
expect 0 plan resnet18:size=8 --offload 2 --fit --max-batch 9
expect 2 plan roundtrip --offload 2
expect 0 plan resnet18:size=8 --batch 8 --recompute auto
says out "* none"
# scratch memory depends on the version of oneDNN
expect 0 plan resnet18:size=8 --batch 512 --json
expect 0 plan resnet18:size=8 --batch 512 --recompute auto --device "sim:0?limit=$(($(figure reserved_bytes) * 93 / 100))"
matches out '^\* (cheap|uneven)'
says out "does not fit"
expect 4 plan resnet18:size=8 --batch 512 --recompute auto --device 'sim:0?limit=100MiB'
says out "no row fits"
says out "step, ns"
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
        # shellcheck disable=SC2086
        expect 0 plan resnet18:size=8 --batch "$most" --precision $precision $options --device 'sim:0?limit=200MiB'
        # shellcheck disable=SC2086
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
expect 2 plan roundtrip --recompute 2
says err "--recompute and --offload are of the training steps of models"
expect 0 plan resnet18:size=8 --batch 8 --precision bf16 --json
[ "$(figure activations)" -ne "$plain" ] || fail "bf16 keeps as many bytes of activations as f32"
expect 2 plan roundtrip --precision bf16
says err "--precision and --drop-bias are of models"
expect 2 plan mlp --recompute many
says err "--recompute many is neither auto nor sqrt nor a number from 0 to 9999, nor cheap"
expect 2 plan mlp --recompute cheap2
says err "--recompute cheap2 is neither auto nor"
# the table of choices and that of largest batches
expect 0 plan lenet --batch 8 --recompute auto --fit --max-batch 16
says out "* none"
says out "largest batch that fits: 16"
matches out '^  cheap,sqrt +16 +16$'
expect 1 plan mlp --recompute 50
says err "recompute asks for 50 segments; it has"
expect 1 plan resnet18:width=3
says err "has no option 'width=3'"
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
expect 0 plan mnist
says out "it fits"

# ---- fit ----
expect 0 plan mlp --batch 1 --fit --json --device 'sim:0?limit=64MiB'
most=$(figure max_batch)
expect 0 plan mlp --batch "$most" --json --device 'sim:0?limit=64MiB'
expect 4 plan mlp --batch $((most + 1)) --json --device 'sim:0?limit=64MiB'
[ "$(figure fits)" = false ] || fail "one more fits"
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
expect 2 plan mlp --ranks 8 --nodes 3
says err "8 ranks are not divisible by 3 nodes; 9 are"
expect 2 plan mlp --nodes 2
says err "options of networks and nodes need --ranks"
expect 2 plan mlp --ranks 2 --net 5us
says err "LATENCY:BANDWIDTH such as 5us:50GB/s, not '5us'"
expect 2 plan roundtrip --ranks 2
expect 2 plan mlp --ranks 2 --inference
says err "--ranks is of the training steps of models"
expect 1 plan mlp --ranks 2 --record "$work/events.jsonl"
says err "BUSY"
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
expect 0 plan lenet --ranks 2
says out "assumptions: equal ranks"

[ $failures -eq 0 ] && echo "ok"
exit $((failures != 0))
