#!/usr/bin/env bash
# Training in half precision has the loss of f32 to 2 %, after 200 updates of lenet on made-up digits
# (Adam, learning rate 0.0003, batches of 32). Compared is the mean of updates 101 to 200, over three
# seeds: one seed moves by up to 1.7 %. The loss must fall first: equal losses
# of networks that learn nothing show nothing. f16 starts with a loss scale of 4096, which skips no step; with the default of 65536 it
# skips the first steps, and no other one.
# Usage: test_precision.sh BUILD_DIR [resnet18]: with it that model, too, which takes minutes
# (.ci/nightly).
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export FERRY_DATA=$work/nothing OMP_WAIT_POLICY=passive

# loss SEED OPTION...: appends "first mean skipped" of a training to $work/runs
loss() {
    local seed=$1
    shift
    expect 0 train "$@" --device host --max-steps 200 --log-every 20 --schedule constant --seed "$seed" --json
    awk '/"skipped_steps"/ { skipped = $2 + 0 } /"train_loss"/ { inside = 1; next } inside && /]/ { inside = 0 }
        inside { n++; if (n == 1) first = $1 + 0; if (n > 5 && n <= 10) sum += $1 }
        END { print first, sum / 5, skipped }' "$work/out" >>"$work/runs"
}
# mean OPTION...: of the seeds; sets first, mean and skipped
average() {
    : >"$work/runs"
    for seed in $seeds; do loss "$seed" "$@"; done
    read -r first mean skipped < <(awk '{ a += $1; b += $2; c += $3 } END { print a / NR, b / NR, c }' "$work/runs")
}
# compare TITLE LEAST_FALL OPTION...: f32, then both half precisions
compare() {
    local title=$1 fall=$2
    shift 2
    average "$@"
    local full=$mean
    awk -v a="$first" -v b="$full" -v f="$fall" 'BEGIN { exit !(b > 0 && b < f * a) }' || fail "$title in f32: the loss falls from $first to $full only"
    for low in bf16 "f16 --loss-scale 4096"; do
        average "$@" --precision $low
        awk -v a="$full" -v b="$mean" -v title="$title, $low" 'BEGIN { printf "%s: %.4f, f32 %.4f: %+.2f %%\n", title, b, a, 100 * (b / a - 1); exit !((b - a) ^ 2 <= (0.02 * a) ^ 2) }' ||
            fail "$title in $low: loss $mean, in f32 $full"
        [ "$skipped" = 0 ] || fail "$title in $low: $skipped skipped steps"
    done
}

seeds="1 2 3"
compare lenet 0.3 lenet --optimizer adam --lr 0.0003 --batch 32
if [ "${2:-}" = resnet18 ]; then # at higher rates f32 itself moves by more than 2 % (docs/results)
    seeds=1
    compare resnet18 0.95 resnet18:size=8,channels=3 --resize 8 --optimizer sgd --momentum 0 --lr 0.0003 --batch 32
fi
# the default scale is found in the first steps
: >"$work/runs"
loss 1 lenet --optimizer adam --lr 0.0003 --batch 32 --precision f16
read -r first mean skipped <"$work/runs"
if [ "$skipped" -lt 1 ] || [ "$skipped" -gt 5 ]; then fail "lenet in f16 with the default scale: $skipped skipped steps"; fi
