# shellcheck shell=bash disable=SC2154,SC2034  # set by, or for, machine.inc.sh and steps.inc.sh
# The three calls and their steps, the most valuable first.
# right: results. figures: times, beside the bare driver and PyTorch. learn: ten epochs, what
# remained of the other two, predictions, failed ops under the checker.
# Over the fake driver, which computes on the host, calls are short (is_fake).

# Conformance programs whose behaviour depends on a card. The others test Ferry above its backends,
# and every device alike.
conformance=(graph graph_refusal stream transfer fault tape memory threads)
own_convolutions=(conv2d conv2d_backward_input conv2d_backward_weight conv2d_backward_params)
# Ops with few cases.
checked_ops=(index_add softmax adam_step topk layer_norm scaled_dot_product_attention sum linear batch_norm conv2d_backward_weight)
slow_kernels=(attention attention_backward batch_norm batch_norm_backward layer_norm_backward depthwise depthwise_weight max_pool_backward)
loss_models=(mnist2018 gpt)
small_gpt=:layers=1,heads=2,width=32,context=16,vocab=256
# What a short call has instead of all.
short_ops=(softmax sum gather adam_step)
short_kernels=(add layer_norm attention)

# Tests run on this device only; a device that does not open is a failure.
# on_card [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]: sets `words`. `checker` (may be empty) goes
# before the program.
checker=()
on_card() {
    words=(env "FERRY_TEST_DEVICE=$device" FERRY_TEST_REQUIRE=1)
    while [[ $1 == *=* ]]; do
        words+=("$1")
        shift
    done
    program "$1"
    words+=("${checker[@]}" "${program[@]}" "${@:2}")
}
ferry_words() {
    program ferry
    words=("${program[@]}" "$@")
}
# ferry_step NAME SECONDS ARGUMENT...: a subcommand that prints JSON.
ferry_step() {
    ferry_words "${@:3}"
    json_step "$1" "$2" "${words[@]}"
}
# The number in cuda:N.
device_index() {
    local name=${device%%\?*}
    echo "${name#cuda:}"
}
# losses_words MODEL DEVICE STEPS: the training whose losses are compared; prepare runs it on sim:0.
losses_words() {
    local model=$1
    ((is_fake)) && [[ $1 == gpt ]] && model+=$small_gpt
    words=(train "$model" --device "$2" --seed 1 --log-every 1 --max-steps "$3" --limit-samples $(($3 * 64)) --json)
}

# What the table says of a step that passed.
text_of() {
    local file=$logs/$1.json
    case $1 in
    probe) echo "launch of 128 bytes $(figure "$file" launch_128_bytes ns) ns, 2120 bytes $(figure "$file" launch_2120_bytes ns) ns, graph of 32 $(figure "$file" graph_32_launch ns) ns" ;;
    torch) verdicts_of "$file" ;;
    epoch-as-a-graph | ten-epochs) echo "$(number "$file" images_per_s) images a second" ;;
    *) echo - ;;
    esac
}

# How many bars of gpu_torch.py were reached.
verdicts_of() {
    local text rest what reached=0 of=0
    text=$(<"$1")
    for what in reached missed "below the bare calls"; do
        rest=$text
        while [[ $rest == *"\"verdict\": \"$what\""* ]]; do
            rest=${rest#*"\"verdict\": \"$what\""}
            of=$((of + 1))
            [[ $what == reached ]] && reached=$((reached + 1))
        done
    done
    echo "$reached of $of bars reached"
}

# A device that does not open ends the call: the log has what the loader and the driver said.
require_device() {
    local name=device-of-$phase tool library
    unset "verdict_of[$name]"
    if ferry_step "$name" 20 info --device "$device" --json; then
        if [[ ${verdict_of[$phase]:-} == notrun ]]; then note "$phase" passed 0 0 "$device opens now"; fi
        return 0
    fi
    for library in "${FERRY_CUDA_DRIVER:-libcuda.so.1}" "$unpacked/lib/ferry/libferry_cuda.so"; do
        echo "-- $library"
        LD_PRELOAD=$library LD_LIBRARY_PATH=$library_path "$BASH" -c : 2>&1 | head -n 5
    done
    tool=$(find_tool nvidia-smi) && timeout 20 "$tool"
    note "$phase" notrun 0 0 "$device did not open: see $name in logs.txt"
    return 1
}

# ---- right ----

enqueue_ops() {
    local op ops=()
    if ((is_plan)) || [[ ! -x $unpacked/bin/tests/test_ops ]]; then
        skip op-matrix "no tests were staged: the preparing machine had no CMocka"
        return
    fi
    read -r -a ops -d '' <"$here/ops.txt"
    if ((is_fake)); then
        ops=("${short_ops[@]}")
        own_convolutions=(conv2d_backward_params)
    fi
    for op in "${ops[@]}"; do
        on_card "FERRY_TEST_OP=$op" tests/test_ops op_matrix
        enqueue "op-$op" 45 "${words[@]}"
    done
    for op in "${own_convolutions[@]}"; do
        on_card "FERRY_TEST_OP=$op" FERRY_CUDNN=none tests/test_ops op_matrix
        enqueue "own-$op" 45 "${words[@]}"
    done
}

enqueue_conformance() {
    local name
    ((is_plan)) || [[ -x $unpacked/bin/tests/test_conformance ]] || return
    for name in "${conformance[@]}"; do
        on_card tests/test_conformance "$name"
        enqueue "conformance-$name" 45 "${words[@]}"
    done
}

# enqueue_checked OP...: each under memcheck and racecheck. memcheck of softmax has NVTX, by which it
# learns where blocks begin and end.
enqueue_checked() {
    local op tool nvtx sanitizer
    ((is_plan)) && return
    if ! sanitizer=$(find_tool compute-sanitizer); then
        skip checker "there is no compute-sanitizer on PATH, in the toolkit's folder or in site-packages/nvidia"
        return
    fi
    [[ -x $unpacked/bin/tests/test_ops ]] || return
    for tool in memcheck racecheck; do
        for op in "$@"; do
            [[ $tool-$op == memcheck-softmax ]] && nvtx=yes || nvtx=no
            checker=("$sanitizer" --nvtx "$nvtx" --tool "$tool" --error-exitcode 9)
            on_card "FERRY_TEST_OP=$op" tests/test_ops op_matrix
            enqueue "$tool-$op" 45 "${words[@]}"
        done
    done
    checker=()
}

# Losses beside those that prepare recorded on the simulated device.
check_losses() {
    local model count=0
    ((is_plan)) || count=$(staged steps)
    for model in "${loss_models[@]}"; do
        losses_words "$model" "$device" "$count"
        ferry_words "${words[@]}"
        repeat_for "losses-within-2-percent-$model" "losses-$model"
        enqueue_json "losses-$model" 25 "${words[@]}"
    done
    together losses 25
    for model in "${loss_models[@]}"; do
        ferry_words compare "$here/recorded/$model.json" "$logs/losses-$model.json" --key train_loss --within 0.02 --json
        enqueue_json "losses-within-2-percent-$model" 5 "${words[@]}"
    done
    together losses-within-2-percent 5
}

phase_right() {
    local few=() checked=("${checked_ops[@]}")
    if ((is_fake)); then few=("${short_kernels[@]}") checked=("${checked_ops[@]:0:1}"); fi
    # Which convolutions cuDNN declines, by its own log; and that each kernel runs.
    program bench/kernels
    step cudnn-log 20 env CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stdout "${program[@]}" "$device" 1 0 "${few[@]}"
    enqueue_conformance
    enqueue_ops
    together ops-and-conformance 65
    check_losses
    enqueue_checked "${checked[@]}"
    together memcheck-and-racecheck 45
}

# ---- figures ----

compare_with_torch() {
    local python limit=105
    if ((is_plan)); then
        together torch $limit
        return
    fi
    is_known torch && return
    for python in "${pythons[@]}"; do
        timeout 30 env "LD_LIBRARY_PATH=$plain_library_path" "$python" -c 'import torch' >/dev/null 2>&1 || continue
        json_step torch $limit env "LD_LIBRARY_PATH=$plain_library_path" PYTHONUNBUFFERED=1 "$python" "$here/gpu_torch.py" \
            --probe "$work/bin/cuda_probe" --kernels "$work/bin/kernels" --seconds $((limit - 15)) "$work/bin/ferry" "$device" 2
        return
    done
    skip torch "no Python here imports torch (FERRY_GPU_PYTHON names one)"
}

speed_of_light() {
    local ncu
    if ! ncu=$(find_tool ncu) && ! ((is_plan)); then
        skip speed-of-light "there is no ncu on PATH, in the toolkit's folder or in /opt/nvidia/nsight-compute"
        return
    fi
    program bench/kernels
    step speed-of-light 30 env FERRY_CUDNN=none "$ncu" --clock-control none --section SpeedOfLight --kernel-name 'regex:attention|norm|depthwise|pool' \
        --launch-count 40 "${program[@]}" "$device" 16 0 "${slow_kernels[@]}"
}

phase_figures() {
    local rounds=15 mebi=16 repeats=20 few=() own=(conv2d_f32 conv2d conv2d_input conv2d_weight) short=() gemm=(--max-size 4096 --rounds 5) calibrated=$device
    # Rates of the fake driver are noise: there the simulated device is measured.
    if ((is_fake)); then
        rounds=3 mebi=1 repeats=1 few=("${short_kernels[@]}") own=("${few[@]}") short=(--rounds 1 --round-ms 1) gemm=(--max-size 64 --rounds 1)
        calibrated='sim:0?numerics=off'
    fi
    program bench/cuda_probe
    json_step probe 10 "${program[@]}" "$(device_index)" $rounds
    program bench/kernels
    json_step kernels 15 "${program[@]}" "$device" $mebi $repeats "${few[@]}"
    json_step kernels-without-cudnn 10 env FERRY_CUDNN=none "${program[@]}" "$device" $mebi $repeats "${own[@]}"
    compare_with_torch
    speed_of_light
    ferry_words calibrate "$calibrated" --out "$logs/card.profile.json"
    step calibrate 25 "${words[@]}"
    [[ -s $logs/card.profile.json ]] && cp "$logs/card.profile.json" "$results/"
    ferry_step bench-copy 5 bench copy "${short[@]}" --device "$device" --json
    ferry_step bench-gemm 5 bench gemm "${gemm[@]}" --device "$device" --json
}

# ---- learn ----

check_accuracy() {
    local accuracy text
    ((is_plan)) && return
    is_known accuracy && return
    accuracy=$(number "$logs/ten-epochs.json" test_accuracy)
    text="${accuracy:-none} of the test images, at least 0.98 asked"
    if [[ ! -d $here/data/mnist ]]; then
        skip accuracy "MNIST was not staged: trained on made-up data"
    elif ((is_fake)); then
        skip accuracy "a shortened run"
    elif [[ -n $accuracy ]] && at_least "$accuracy" 0.98; then
        note accuracy passed 0 0 "$text"
    else
        note accuracy failed 0 0 "$text"
    fi
}

# predict NAME SECONDS ARGUMENT...: a subcommand on the simulated card with the measured profile and
# on the card; then both, within 15 %. A third of the seconds each.
predict() {
    local name=$1 limit=$(($2 / 3))
    shift 2
    repeat_for "$name-within-15-percent" "$name-predicted" "$name"
    ferry_step "$name-predicted" $limit "$@" --device "sim:0?profile=$logs/card.profile.json&numerics=off" --json
    ferry_step "$name" $limit "$@" --device "$device" --json
    if ((is_fake)); then
        skip "$name-within-15-percent" "times of the fake driver mean nothing"
    else
        ferry_step "$name-within-15-percent" $limit compare "$logs/$name-predicted.json" "$logs/$name.json" --prediction --within 0.15 --json
    fi
}

phase_learn() {
    local epochs=10 short=() size=() name failed=()
    ((is_fake)) && epochs=1 short=(--limit-samples 256 --max-steps 3) size=(--size 64)
    for name in "${!verdict_of[@]}"; do # an op may have failed with cuDNN and without
        [[ $name == o[pw]*-* && ${verdict_of[$name]} == failed && " ${failed[*]} " != *" ${name#o*-} "* ]] && failed+=("${name#o*-}")
    done
    ferry_step epoch-as-a-graph 15 train mnist2018 --device "$device" --epochs 1 --graph --log-every 0 "${short[@]}" --json
    repeat_for accuracy ten-epochs
    ferry_step ten-epochs 50 train mnist2018 --device "$device" --epochs $epochs --log-every 0 "${short[@]}" --json
    check_accuracy
    # What remained of the other calls may leave the rest of this call no less than 75 s.
    if ! ((is_plan)); then
        reserve=75
        phase_right
        phase_figures
        reserve=0
    fi
    predict roundtrip 30 experiment roundtrip "${size[@]}"
    predict bench-train 30 bench train --case mlp --rounds 5
    ((${#failed[@]})) && enqueue_checked "${failed[@]}"
    together failed-ops-under-the-checker 30
}
