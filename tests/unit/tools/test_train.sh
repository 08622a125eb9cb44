#!/usr/bin/env bash
# `ferry train`: usage, its document, equal bits in every mode, losses that hardly depend on
# threads, Ctrl-C, resuming.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

# Synthetic data everywhere, except for one training on the real ones.
export FERRY_DATA=$work/nothing
checksum() { sed -n 's/^weights: .* checksum \([0-9a-f]*\).*/\1/p' "$work/out"; }
figure() { sed -n "s/^ *\"$1\": \([0-9a-z.]*\),*\$/\1/p" "$work/out"; }
losses() { sed -n '/"train_loss"/,/]/p' "$work/out" | grep -o '[0-9][0-9.e+-]*'; }
small="--device sim:0 --limit-samples 256 --batch 32"

# ---- usage ----
prints "usage: ferry train MODEL" train --help
says out "--stream-data"
refuses 2 "which model? There are linear, mlp, lenet, mnist2018, mnist, resnet18, mobilenet_v3_large, vit_tiny, gpt" train
refuses 2 "no model 'resnet'" train resnet
for bad in "--lr -1" "--lr fast" "--batch 0" "--epochs 0" "--optimizer lion" "--schedule never" "--momentum 2" "--workers 17" "--lrr 1"; do
    expect 2 train mlp $bad
    silent out
done
refuses 2 "--checkpoint" train mlp --resume
refuses 2 "--stream-data" train mlp --workers 2
expect 2 train mlp --graph --accumulate 2
refuses 2 "cannot wait for --offload" train mlp --graph --offload 4
refuses 2 "change images; this model takes none" train linear --flip
refuses 1 "takes images 28x28x1, the batches have 24x24x1" train mnist2018 --limit-samples 8 --crop 24 --device host
refuses 1 "crop is 29; images have a height of 28" train mnist2018 --limit-samples 8 --crop 29 --device host
refuses 2 "is not NAME=FACTOR" train mlp --lr-scale fc1
expect 2 train mlp --lr-scale fc1=-1
refuses 2 "adadelta has none" train mnist --momentum 0.5
for other in "--checkpoint @/run" "--save @/w" --graph "--lr 1" "--schedule step" "--warmup 2" "--scale-lr 8"; do
    split "$other"
    refuses 2 "--find-lr" train mlp --find-lr "${words[@]}"
    silent out
done
refuses 2 "constant, step, cosine" train mlp --schedule one-cycle --warmup 3
expect 2 train mlp --device sim:none
refuses 1 "UNAVAILABLE: no train-images" train mlp --data "$work/nothing"

refuses 2 "is neither auto nor sqrt" train mlp --recompute foo
for bad in "--memory-limit 1GiB" "--recompute auto --offload 2" "--recompute auto --find-lr" "--recompute auto --budget upload=1"; do
    refuses 2 "--recompute auto" train mlp $bad
done
refuses 1 "add --memory-limit" train mlp --device host --recompute auto
refuses 1 "name one" train mlp --device 'sim:0?limit=1GiB' --recompute auto --memory-limit 1GiB
refuses 1 "chosen by time take other scratch memory" train mlp --device "host?autotune=on" --recompute auto --memory-limit 1GiB

# ---- unwritable files are reported before the first step ----
refuses 1 "IO: cannot write $work/no/where.safetensors: No such file" train mlp $small --epochs 1 --save "$work/no/where.safetensors"
silent out
mkdir "$work/folder"
ln -s "$work/no/where.safetensors" "$work/dangling.safetensors"
ln -s loop.safetensors "$work/loop.safetensors"
for place in folder folder/ dangling.safetensors loop.safetensors; do
    refuses 1 "IO: cannot write $work/$place: " train mlp $small --epochs 1 --save "$work/$place"
    silent out
done
[ -z "$(ls -A "$work/folder")" ] || fail "looking whether --save can be written leaves $(ls -A "$work/folder")"
refuses 1 "cannot make the folder" train mlp $small --epochs 1 --checkpoint "$work/no/where"
! grep -q '^epoch' "$work/out" || fail "an epoch was trained for a checkpoint that cannot be written"

# ---- learning rates ----
prints "the loss hardly falls" train lenet $small --find-lr --max-steps 12
expect 0 train mlp $small --find-lr --csv "$work/rates.csv"
if grep -q "hardly falls" "$work/out"; then fail "the loss of mlp hardly falls"; fi
matches out "suggested: --lr 0\.[0-9]+, where the smoothed loss falls fastest"
says out "then the loss diverged; the training is restored"
[ "$(head -1 "$work/rates.csv" | tr -d '\r')" = step,lr,loss,smoothed ] || fail "columns $(head -1 "$work/rates.csv")"
expect 0 train mlp $small --find-lr --max-steps 5 --json
[ "$(figure steps)" = 5 ] || fail "$(figure steps) steps"
says out '"end": "complete"' '"suggested_lr"'
# 64 samples an update, twice the base: the rate rises from 0.01 to 0.02
prints "lr 0.015" train mlp $small --accumulate 2 --lr 0.01 --schedule constant --scale-lr 32 --warmup 2 --max-steps 2
prints "lr 0.02" train mlp $small --accumulate 2 --lr 0.01 --schedule constant --scale-lr 32 --warmup 2 --max-steps 4

# ---- biases before norms ----
expect 0 train resnet18:size=8,channels=3 --device sim:0 --limit-samples 4 --resize 8 --batch 4 --max-steps 1 --drop-bias
says out "3904 parameters of biases are dropped"

# ---- the document; the other keys: tests/golden/check_json.py ----
prints '"test_accuracy": null' train linear --device host --epochs 1 --json
[ "$(figure params)" = 6 ] || fail "linear has $(figure params) parameters"

# ---- the same bits in every mode ----
prints "heavy requests" train mnist2018 $small --epochs 1
says out "checksum"
want=$(checksum)
for how in "" "--device host" "--graph" "--stream-data --workers 0" "--stream-data --workers 3" "--budget download=0/step,upload=0/step,sync=0/step" \
    "--device sim:0?order=random&seed=4" "--recompute 2" "--recompute cheap" "--offload 3 --recompute cheap" "--graph --recompute sqrt" "--graph --recompute cheap,2"; do
    expect 0 train mnist2018 $small --epochs 1 $how
    [ "$(checksum)" = "$want" ] || fail "mnist2018 $how ends with $(checksum), not $want"
done
# --recompute auto takes a way that fits, exactly, with the same bits; on the host it plans for a device with that much
deep="resnet18:channels=3,size=32 --limit-samples 32 --batch 16 --max-steps 3 --epochs 2 --schedule constant"
expect 0 train $deep --device sim:0
same=$(checksum)
expect 0 train $deep --device 'sim:0?numerics=off' --recompute auto --json
reserved() { awk -v want="$1" '/"reserved_bytes"/ { gsub(/[^0-9]/, ""); if (!least || $0 < least) least = $0; if (!first) first = $0 } END { print want == "least" ? least : first }' "$work/out"; }
plain=$(reserved first)
tight=$(reserved least)
[ "$tight" -lt "$plain" ] || fail "no way needs less than $plain bytes"
expect 0 train $deep --device "sim:0?numerics=off&limit=$plain" --recompute auto
matches out '^\* none'
expect 0 train $deep --device "sim:0?limit=$tight" --recompute auto
matches out '^\* (cheap|uneven|2|4|8|sqrt|offload)'
[ "$(checksum)" = "$same" ] || fail "$deep with a limit of $tight ends with $(checksum), not $same"
refuses 4 OUT_OF_MEMORY train $deep --device "sim:0?numerics=off&limit=$tight"
refuses 4 "no --recompute fits 67108864 bytes" train $deep --device 'sim:0?limit=64MiB' --recompute auto
expect 0 train $deep --device host --recompute auto --memory-limit 1GiB
[ "$(checksum)" = "$same" ] || fail "$deep on the host ends with $(checksum), not $same"
for precision in bf16 f16; do
    want16=
    for how in "" "--device host" "--graph" "--recompute 2"; do
        expect 0 train mnist2018 $small --epochs 1 --precision $precision $how
        [ -n "$want16" ] || want16=$(checksum)
        [ "$(checksum)" = "$want16" ] || fail "mnist2018 in $precision $how ends with $(checksum), not $want16"
    done
    [ "$want16" != "$want" ] || fail "$precision ends with the bits of f32"
done
# every model trains in every precision, each with other bits
while read -r model options; do
    seen=
    for precision in f32 bf16 f16; do
        expect 0 train "$model" --device sim:0 --limit-samples 16 --batch 8 --epochs 1 --max-steps 2 --loss-scale 256 $options --precision $precision
        case " $seen " in *" $(checksum) "*) fail "$model in $precision ends with the bits of another precision" ;; esac
        seen="$seen $(checksum)"
    done
done <<'MODELS'
linear
mlp
lenet
mnist
mnist2018
resnet18:size=8,channels=3 --crop 8
mobilenet_v3_large:size=32,classes=10
vit_tiny:size=16,patch=4,classes=10,layers=2 --crop 16
gpt:layers=2,heads=2,width=32,context=16,vocab=256
MODELS
expect 0 train mlp $small --find-lr --max-steps 5 --precision bf16
prints "of the steps had infinite gradients: skipped" train mlp $small --epochs 1 --precision f16 --loss-scale 1099511627776
expect 0 train mlp $small --epochs 1 --precision f16 --loss-scale 1099511627776 --json
[ "$(figure skipped_steps)" -ge 1 ] || fail "--json: $(figure skipped_steps) skipped steps"
expect 2 train mlp $small --precision f64
expect 0 train mnist2018 $small --epochs 1 --seed 2
[ "$(checksum)" != "$want" ] || fail "another seed, the same weights"
want=
for how in "--workers 0" "--workers 3" "--device host"; do
    expect 0 train mnist2018 $small --epochs 2 --pad 2 --crop 28 --flip $how
    [ -n "$want" ] || want=$(checksum)
    [ "$(checksum)" = "$want" ] || fail "mnist2018 on changed images, $how, ends with $(checksum), not $want"
done
refuses 1 "REFUSED_BY_GUARD" train mlp $small --epochs 1 --log-every 1 --budget download=0

# ---- networks with batch norm, branches and attention: one result on the host, in every order of sim, replayed ----
for model in resnet18:channels=3,size=32 mobilenet_v3_large:classes=10,size=32 vit_tiny:classes=10,size=32,patch=8,layers=2 gpt:layers=1,heads=2,width=32,context=16,vocab=256; do
    want=
    for how in "--device host" "--device sim:0" "--device sim:0?order=lazy" "--device sim:0?order=random&seed=1" "--device sim:0 --graph"; do
        expect 0 train $model --limit-samples 24 --batch 8 --epochs 1 --schedule constant $how
        [ -n "$want" ] || want=$(checksum)
        [ "$(checksum)" = "$want" ] || fail "$model $how ends with $(checksum), not $want"
    done
    prints "device allocations in steady steps 0" train $model --limit-samples 80 --batch 8 --epochs 2 --device sim:0 --log-every 0
done

# ---- a step as one graph: the bits of the calls, over the fake CUDA driver too ----
prints '"path": "calls"' train mnist2018 --device sim:0 --limit-samples 64 --batch 16 --epochs 1 --graph --json
fake=$1/lib/tests/libfake_cuda.so
if [ -f "$fake" ]; then
    # mnist has dropout, mobilenet_v3_large 95 plans of cuDNN
    for model in mlp mnist2018 mnist mobilenet_v3_large:classes=10,size=32; do
        batch=16
        [ "${model%%_*}" != mobilenet ] || batch=4
        for how in "" "--graph"; do
            FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=$fake expect 0 train $model --device cuda:0 --limit-samples $((2 * batch)) --batch $batch --epochs 2 $how
            [ -z "$how" ] || says out "replayed 3 times, one request for the device each"
            [ -z "$how" ] || [ "$(checksum)" = "$called" ] || fail "$model --graph ends with $(checksum), not $called"
            called=$(checksum)
        done
    done
else
    echo "skipped: graphs on cuda: the plugin was not built"
fi

# ---- threads: the first 50 losses within 1e-4 (libgomp is opaque to ThreadSanitizer) ----
if grep -q '^FERRY_SANITIZE:.*thread' "$1/CMakeCache.txt" 2>/dev/null; then
    echo "skipped: two OpenMP threads are not tested under ThreadSanitizer"
else
    for n in 1 2; do
        OMP_NUM_THREADS=$n expect 0 train mnist2018 --device host --max-steps 50 --limit-samples 3200 --log-every 1 --json
        losses >"$work/losses.$n"
        [ "$(wc -l <"$work/losses.$n")" = 50 ] || fail "$(wc -l <"$work/losses.$n") losses, not 50"
    done
    paste "$work/losses.1" "$work/losses.2" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { exit bad }' ||
        fail "losses with one thread and with two differ by more than 1e-4: $(paste "$work/losses.1" "$work/losses.2" | tail -3)"
fi

# ---- schedules and optimizers ----
for how in "--optimizer adam --schedule one-cycle" "--optimizer momentum --schedule cyclic" "--optimizer adamw --schedule cosine --clip-norm 1" \
    "--optimizer adadelta --schedule step" "--optimizer rmsprop --schedule cyclic" "--optimizer rmsprop --momentum 0.9 --schedule one-cycle" \
    "--optimizer lars --momentum 0.8 --graph" "--optimizer lamb --decay-min-rank 2 --schedule one-cycle" "--optimizer adamw --decay-min-rank 2 --lr-scale fc1.=0.1,fc2.bias=2" "--schedule range --accumulate 2" "--optimizer momentum --schedule one-cycle --graph"; do
    expect 0 train mlp $small --epochs 1 $how
done

# ---- loss scaling: powers of two change no bit ----
want=
for how in "" "--loss-scale 65536" "--loss-scale 1024 --graph"; do
    expect 0 train mlp $small --epochs 2 --batch 16 --optimizer adam $how
    [ -n "$want" ] || want=$(checksum)
    [ "$(checksum)" = "$want" ] || fail "mlp $how ends with $(checksum), not $want"
done
expect 0 train mlp $small --epochs 1 --accumulate 2 --clip-norm 1 --loss-scale 65536

# ---- stopping and resuming ----
prints "saved to $work/whole.safetensors" train mnist2018 $small --epochs 3 --save "$work/whole.safetensors"
expect 0 train mnist2018 $small --epochs 3 --max-steps 5 --checkpoint "$work/steps"
expect 0 train mnist2018 $small --epochs 3 --checkpoint "$work/steps" --resume --save "$work/resumed.safetensors"
cmp -s "$work/whole.safetensors" "$work/resumed.safetensors" || fail "a resumed training ends with other weights"

for signal in INT TERM; do
    "$ferry" train mnist2018 --device host --batch 8 --epochs 1000 --checkpoint "$work/stopped$signal" --checkpoint-every 5 >"$work/out" 2>"$work/err" &
    pid=$!
    wait_until compgen -G "$work/stopped$signal/step-*.safetensors" >/dev/null
    kill -$signal $pid
    wait $pid
    status=$?
    [ $status -eq $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit status $status: $(head -c 300 "$work/err")"
    says out "stopped after"
    steps=$(sed -n 's/^stopped after \([0-9]*\) steps.*/\1/p' "$work/out")
    [ -e "$work/stopped$signal/$(printf 'step-%08d' "$steps").safetensors" ] || fail "SIG$signal left no checkpoint of update '$steps'"
done

# ---- real digits: the first steps of the training whose result is in docs/results ----
if [ -e "$real_data/mnist" ]; then
    expect 0 train mnist2018 --data "$real_data" --device sim:0 --epochs 2 --limit-samples 12800 --log-every 0 --json
    accuracy=$(figure test_accuracy)
    awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.85) }' || fail "after 400 steps $accuracy of MNIST's test set is read right, not 0.85"
else
    echo "skipped: MNIST is not in $real_data"
fi
