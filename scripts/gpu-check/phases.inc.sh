# shellcheck shell=bash disable=SC2154  # set by machine.inc.sh and steps.inc.sh
# The four phases and their steps, the most valuable first. A step for which its phase has no time
# left is reported as not run.
# right: results. order: graphs, streams, checkers. figures: times, beside the bare driver and
# PyTorch. learn: training.
# Over the fake driver times mean nothing and are shortened; FERRY_GPU_QUICK=1 shortens everything.

# Conformance programs whose behaviour depends on a card, by phase. The others test Ferry above its
# backends, and every device alike.
conformance_right=(device memory ops views transfer paths peer communicator memory_debug contract files pressure lifetime fork)
conformance_order=(graph graph_refusal stream tape fault random threads queue prefetch)

# Tests run on this device only; a device that does not open is a failure.
# on_card [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]: sets `settings` (words before the program) and
# `words` (program and arguments).
on_card() {
    settings=(env "FERRY_TEST_DEVICE=$device" FERRY_TEST_REQUIRE=1)
    while [[ $1 == *=* ]]; do
        settings+=("$1")
        shift
    done
    program "$1"
    shift
    words=("${program[@]}" "$@")
}
# The number in cuda:N.
device_index() {
    local name=${device%%\?*}
    echo "${name#cuda:}"
}

has_program() { ((is_plan)) || [[ -x $unpacked/bin/$1 ]]; }

ferry_words() {
    program ferry
    words=("${program[@]}" "$@")
}

# A phase on a device that does not open would only fail slowly.
require_device() {
    ferry_words info --device "$device" --json
    json_step "device-of-$phase" 60 "${words[@]}" && return 0
    note "$phase" notrun 0 0 "$device did not open: see device-of-$phase in logs.txt"
    return 1
}

conformance() {
    local name
    for name in "$@"; do
        has_program "tests/test_conformance_$name" || continue
        on_card "tests/test_conformance_$name"
        step "conformance-$name" 45 "${settings[@]}" "${words[@]}"
    done
}

# ---- right ----

phase_right() {
    local only=() limit=120
    ((is_fake)) && limit=240 # the fake driver computes on the host
    [[ -n $quick ]] && only=(FERRY_TEST_OP=softmax)
    if ! ((is_plan)); then
        nvidia=$(find_tool nvidia-smi) && step nvidia-smi 20 "$nvidia"
    fi
    if has_program tests/test_ops_op_matrix; then
        on_card "${only[@]}" tests/test_ops_op_matrix
        step op-matrix $limit "${settings[@]}" "${words[@]}"
        ((is_fake)) && only=(FERRY_TEST_OP=conv2d)
        on_card "${only[@]}" FERRY_CUDNN=none tests/test_ops_op_matrix
        step op-matrix-own-convolutions $limit "${settings[@]}" "${words[@]}"
    else
        skip op-matrix "no tests were staged: the preparing machine had no CMocka"
    fi
    # Which convolutions cuDNN declines, by its own log.
    program bench/ten_kernels
    [[ -n $quick ]] || step cudnn-log 30 env CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stdout "${program[@]}" "$device" 1 0
    if [[ -n $quick ]]; then conformance device; else conformance "${conformance_right[@]}"; fi
}

# ---- order ----

# checked NAME SECONDS OPTIONS... -- [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]: under
# compute-sanitizer, which is given the program itself.
checked() {
    local name=$1 limit=$2 options=()
    shift 2
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    on_card "$@"
    step "$name" "$limit" "${settings[@]}" "$sanitizer" "${options[@]}" --error-exitcode 9 "${words[@]}"
}

phase_order() {
    local op ops=(softmax sum conv2d linear cross_entropy) tool sanitizer
    if [[ -n $quick ]]; then
        conformance graph
        ops=(softmax)
    else
        conformance "${conformance_order[@]}"
    fi
    if ! sanitizer=$(find_tool compute-sanitizer) && ! ((is_plan)); then
        skip memcheck "there is no compute-sanitizer on PATH, in the toolkit's folder or in site-packages/nvidia"
        return
    fi
    checked memcheck-probe 40 --nvtx no --tool memcheck -- bench/cuda_probe "$(device_index)" 1 || return
    if ! has_program tests/test_ops_op_matrix; then
        skip memcheck "no tests were staged: the preparing machine had no CMocka"
        return
    fi
    for tool in memcheck racecheck; do
        for op in "${ops[@]}"; do checked "$tool-$op" 45 --nvtx no --tool "$tool" -- "FERRY_TEST_OP=$op" tests/test_ops_op_matrix; done
    done
    checked memcheck-nvtx-softmax 45 --nvtx yes --tool memcheck -- FERRY_TEST_OP=softmax tests/test_ops_op_matrix
    for tool in initcheck synccheck; do checked "$tool-softmax" 45 --nvtx no --tool "$tool" -- FERRY_TEST_OP=softmax tests/test_ops_op_matrix; done
    [[ -n $quick ]] || checked memcheck-transfer 60 --nvtx no --tool memcheck -- tests/test_conformance_transfer
}

# ---- figures ----

# What the table says of a comparison that failed: how many numbers differ by more.
tell_outside() {
    local outside
    outside=$(number "$logs/$1.json" outside)
    tell "$1" "${outside:+$outside numbers differ by more}"
}

# beside NAME SECONDS ARGUMENT...: a subcommand on the simulated card with the measured profile and
# on the card; then both, within 15 %.
beside() {
    local name=$1 limit=$2
    shift 2
    ferry_words "$@" --device "sim:0?profile=$logs/card.profile.json&numerics=off" --json
    json_step "$name-predicted" "$limit" "${words[@]}" || return
    ferry_words "$@" --device "$device" --json
    json_step "$name" "$limit" "${words[@]}" || return
    ferry_words compare "$logs/$name-predicted.json" "$logs/$name.json" --prediction --within 0.15 --json
    if ((is_fake)); then
        skip "$name-within-15-percent" "times of the fake driver mean nothing"
    else
        json_step "$name-within-15-percent" 20 "${words[@]}" || tell_outside "$name-within-15-percent"
    fi
}

# How many bars of gpu_torch.py were reached.
verdicts_of() {
    local text rest what reached=0 of=0
    [[ -s $1 ]] || return
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

compare_with_torch() {
    local python limit=150
    for python in "${pythons[@]}"; do
        timeout 60 env "LD_LIBRARY_PATH=$plain_library_path" "$python" -c 'import torch' >/dev/null 2>&1 || continue
        json_step torch $limit env "LD_LIBRARY_PATH=$plain_library_path" PYTHONUNBUFFERED=1 "$python" "$here/gpu_torch.py" "$work/bin/ferry" "$device" \
            --probe "$work/bin/cuda_probe" --seconds $((limit - 60))
        tell torch "$(verdicts_of "$logs/torch.json")"
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
    program bench/ten_kernels
    step speed-of-light 90 env FERRY_CUDNN=none "$ncu" --clock-control none --section SpeedOfLight --launch-count 60 "${program[@]}" "$device" 16 0
}

phase_figures() {
    local rounds=15 mebi=16 short=() gemm=(--max-size 4096 --rounds 5) calibrated=$device cases=()
    # Rates of the fake driver are noise: there the simulated device is measured.
    if ((is_fake)) || [[ -n $quick ]]; then
        rounds=3 mebi=1 short=(--rounds 1 --round-ms 1) gemm=(--max-size 64 --rounds 1) cases=(--case mlp) calibrated='sim:0?numerics=off'
    fi
    program bench/cuda_probe
    json_step probe 60 "${program[@]}" "$(device_index)" $rounds &&
        tell probe "launch of 128 bytes $(figure "$logs/probe.json" launch_128_bytes ns) ns, 2120 bytes $(figure "$logs/probe.json" launch_2120_bytes ns) ns, graph of 32 $(figure "$logs/probe.json" graph_32_launch ns) ns"
    ferry_words bench dispatch "${short[@]}" --device "$device" --json
    json_step bench-dispatch 40 "${words[@]}"
    program bench/ten_kernels
    [[ -n $quick ]] || json_step kernels 60 "${program[@]}" "$device" $mebi $((is_fake ? 1 : 20))
    json_step kernels-without-cudnn 60 env FERRY_CUDNN=none "${program[@]}" "$device" $mebi $((is_fake ? 0 : 20))
    if ((is_plan)); then json_step torch 150; else compare_with_torch; fi
    speed_of_light
    ferry_words calibrate "$calibrated" --out "$logs/card.profile.json"
    step calibrate 90 "${words[@]}" && [[ -z $quick ]] && beside roundtrip 40 experiment roundtrip
    ferry_words bench copy "${short[@]}" --device "$device" --json
    [[ -n $quick ]] || json_step bench-copy 40 "${words[@]}"
    ferry_words bench gemm "${gemm[@]}" --device "$device" --json
    json_step bench-gemm 40 "${words[@]}"
    ((is_plan)) || [[ -s $logs/card.profile.json ]] || return 0
    [[ -n $quick ]] || beside bench-train 60 bench train "${cases[@]}" "${short[@]:0:2}"
}

# ---- learn ----

phase_learn() {
    local n=50 epochs=10 short=() samples=6400 accuracy text
    if ((is_fake)) || [[ -n $quick ]]; then n=3 epochs=1 samples=256 short=(--limit-samples 256 --max-steps 3); fi
    ferry_words train mnist2018 --device sim:0 --seed 1 --log-every 1 --max-steps $n --limit-samples $samples --json
    json_step losses-sim 90 "${words[@]}"
    ferry_words train mnist2018 --device "$device" --seed 1 --log-every 1 --max-steps $n --limit-samples $samples --json
    json_step losses 60 "${words[@]}"
    ferry_words compare "$logs/losses-sim.json" "$logs/losses.json" --key train_loss --within 0.02 --json
    json_step losses-within-2-percent 20 "${words[@]}" || tell_outside losses-within-2-percent
    ferry_words train mnist2018 --device "$device" --epochs 1 --graph --log-every 0 "${short[@]}" --json
    json_step epoch-as-a-graph 90 "${words[@]}" && tell epoch-as-a-graph "$(number "$logs/epoch-as-a-graph.json" images_per_s) images a second"
    ferry_words train mnist2018 --device "$device" --epochs $epochs --log-every 0 "${short[@]}" --json
    json_step ten-epochs 170 "${words[@]}" && tell ten-epochs "$(number "$logs/ten-epochs.json" images_per_s) images a second"
    ((is_plan)) && return
    accuracy=$(number "$logs/ten-epochs.json" test_accuracy)
    text="${accuracy:-none} of the test images, at least 0.98 asked"
    if [[ ! -d $here/data/mnist ]]; then
        skip accuracy "MNIST was not staged: trained on made-up data"
    elif [[ -n ${short[*]} ]]; then
        skip accuracy "a shortened run"
    elif [[ -n $accuracy ]] && at_least "$accuracy" 0.98; then
        note accuracy passed 0 0 "$text"
    else
        note accuracy failed 0 0 "$text"
    fi
}
