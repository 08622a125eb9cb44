#!/usr/bin/env bash
# Checks Ferry on a machine with an NVIDIA card and no network: builds from source, then whether it is right, clean under compute-sanitizer,
# fast, and learns. Usage: gpu-check.sh [build|right|sanitize|fast|train|all]...   (all: each in turn; a phase keeps what earlier ones left)
# Each step has a time limit and each call ends within FERRY_GPU_BUDGET_S [570]; a step that fails stops nothing but what needs it.
# Results in ${OUT:-build/gpu-check}: summary.json, summary.txt, card.profile.json, torch.json, logs.tar.gz.
# Exit 0: every step passed or was skipped; 1: one did not, or there is no card; 2: usage.
# Other settings: FERRY_GPU_DEVICE [cuda:0], FERRY_GPU_BUILD [build/gpu], FERRY_DATA. FERRY_GPU_DRY=BUILD runs all of it over the fake driver
# with that build, shortened, so that the script itself is tested where there is no card; nvidia-smi is then a stand-in of the test's. It
# installs nothing: .deb files that the build needs may lie in .gpu-deps/ and are only unpacked. What a card must reach: docs/results, docs/cuda.md.
set -u -o pipefail

case ${1:-} in
-h | --help | help)
    sed -n '2,/^set/{s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
phases=("$@")
((${#phases[@]})) || phases=(all)
[[ ${phases[*]} == all ]] && phases=(build right sanitize fast train)
for asked in "${phases[@]}"; do
    case $asked in
    build | right | sanitize | fast | train) ;;
    *)
        echo "gpu-check: there is no phase '$asked'. Usage: gpu-check.sh [build|right|sanitize|fast|train|all]... (--help says more)" >&2
        exit 2
        ;;
    esac
done

out=${OUT:-build/gpu-check}
dry=${FERRY_GPU_DRY:-}
build=${dry:-${FERRY_GPU_BUILD:-build/gpu}}
device=${FERRY_GPU_DEVICE:-cuda:0}
budget_s=${FERRY_GPU_BUDGET_S:-570}
began=$SECONDS
mkdir -p "$out" "$build" || exit 1
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)
work=${FERRY_GPU_WORK:-$build/check} # logs and documents; stays between phases
mkdir -p "$work" || exit 1
work=$(cd "$work" && pwd)
steps=$work/steps.tsv
phase=none

# A card, and a driver that this process may use.
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$work/gpus.txt" 2>&1 || ! grep -q '^GPU ' "$work/gpus.txt"; then
    echo "gpu-check: no usable NVIDIA GPU here: nvidia-smi is missing or lists none. Nothing was checked." >&2
    exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader >"$work/gpu.csv" 2>&1
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')

# ---- steps ----

note() { printf '%s\t%s\t%s\t%d\n' "$phase" "$1" "$2" "$3" >>"$steps"; }

# step NAME SECONDS COMMAND...: runs it within its limit and what is left of the whole; output to NAME.log.
step() {
    local name=$1 limit=$2 left=$((budget_s - (SECONDS - began))) started=$SECONDS status result
    shift 2
    if ((left < 5)); then
        note "$name" "not run: no time left" 0
        return 1
    fi
    ((limit > left)) && limit=$left
    echo "== $phase: $name (at most ${limit} s)"
    timeout --kill-after=5 "$limit" "$@" >"$work/$name.log" 2>&1
    status=$?
    case $status in
    0) result=ok ;;
    77) result="skipped: $(tail -n 1 "$work/$name.log" | tr -dc "[:alnum:] .:,_-" | cut -c 1-100)" ;;
    124 | 137) result="TIME LIMIT" ;;
    *) result="FAILED ($status)" ;;
    esac
    note "$name" "$result" $((SECONDS - started))
    ((status == 0)) || tail -n 15 "$work/$name.log"
    return $status
}

# As step, for a command that prints one JSON document: it goes to NAME.json.
json_step() {
    local name=$1 limit=$2
    shift 2
    rm -f "$work/$name.json"
    # shellcheck disable=SC2016 # the inner shell expands them
    step "$name" "$limit" bash -c 'json=$1; shift; "$@" >"$json"' _ "$work/$name.json" "$@"
}

# number FILE KEY: the first number of that key in a JSON document; empty if there is none.
number() { sed -n "/\"$2\": *-\\{0,1\\}[0-9]/{s/.*\"$2\": *\\(-\\{0,1\\}[0-9][0-9.e+-]*\\).*/\\1/p;q}" "$1" 2>/dev/null; }

# ---- build ----

# Packages that the build needs and this machine lacks, unpacked into a prefix of their own. Links of theirs to absolute places, as
# zlib's, are led into the prefix.
use_packages() {
    local prefix=$build/prefix package link target triplet folders="" folder
    [[ -z $dry ]] && compgen -G '.gpu-deps/*.deb' >/dev/null || return 0
    if [[ ! -e $prefix/.whole ]]; then
        mkdir -p "$prefix"
        for package in .gpu-deps/*.deb; do dpkg -x "$package" "$prefix" || echo "gpu-check: $package could not be unpacked" >&2; done
        find "$prefix" -type l | while read -r link; do
            target=$(readlink "$link")
            [[ $target == /* && -e $prefix$target ]] && ln -sfn "$prefix$target" "$link"
        done
        touch "$prefix/.whole"
    fi
    triplet=$(gcc -dumpmachine)
    for folder in "$prefix/usr/lib/$triplet" "$prefix/lib/$triplet" "$prefix/usr/lib"; do
        [[ -d $folder ]] && folders=$folders${folders:+:}$folder
    done
    export CMAKE_PREFIX_PATH=$prefix/usr PATH=$prefix/usr/bin:$PATH PKG_CONFIG_PATH=$prefix/usr/lib/$triplet/pkgconfig
    export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LIBRARY_PATH=$folders${LIBRARY_PATH:+:$LIBRARY_PATH}
    export CPATH=$prefix/usr/include${CPATH:+:$CPATH}
}

phase_build() {
    local generator=() keep_going=(-k)
    [[ -n $dry ]] && return 0
    command -v ninja >/dev/null && generator=(-G Ninja) keep_going=(-k 0)
    step configure 60 cmake -S . -B "$build" "${generator[@]}" -DFERRY_CUDA=ON -DFERRY_TOOLS=ON -DFERRY_TESTS=ON \
        "-DFERRY_CUDA_ARCHITECTURES=$capability" || return
    # What does not build is a failure, but no reason not to look at the rest: device time is dear.
    step build 480 cmake --build "$build" --parallel "$(nproc)" -- "${keep_going[@]}"
}

# ---- right: the card alone, then everything else ----

phase_right() {
    local only=(-L 'conformance|ops') rest=()
    if [[ -n $dry ]]; then only=(-R '^conformance_device$') rest=(-R '^unit_cuda_describe$'); fi
    json_step info 30 "$ferry" info --json
    # REQUIRE: a device that does not open is a failure here, not a skip. Tests with a device of their own (orders of the simulator) come below.
    FERRY_TEST_DEVICE=$device FERRY_TEST_REQUIRE=1 step card-suite 300 ctest --test-dir "$build" "${only[@]}" \
        -E 'fake_cuda|cuda_source|_lazy$|_random$' --output-on-failure --timeout 250 --output-junit "$work/card-suite.xml"
    step suite 240 ctest --test-dir "$build" "${rest[@]}" --parallel "$(nproc)" --timeout 200 --output-junit "$work/suite.xml"
}

# ---- sanitize: the checkers slow kernels down by an order of magnitude, so a few programs each ----

phase_sanitize() {
    local tool op tests=$build/bin/tests ops=(softmax matmul sum conv2d)
    if ! command -v compute-sanitizer >/dev/null; then
        note memcheck "skipped: there is no compute-sanitizer" 0
        return
    fi
    [[ -n $dry ]] && ops=(softmax)
    for tool in memcheck racecheck initcheck synccheck; do
        FERRY_TEST_DEVICE=$device FERRY_TEST_REQUIRE=1 step "$tool-transfers" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/test_conformance_transfer"
        for op in "${ops[@]}"; do
            FERRY_TEST_DEVICE=$device FERRY_TEST_REQUIRE=1 FERRY_TEST_OP=$op step "$tool-$op" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/test_ops_op_matrix"
        done
    done
}

# ---- fast: figures of the card, what the simulator predicts from them, and peers in the same run ----

# beside NAME SECONDS ARGUMENT...: a subcommand on the simulated card and on the card; then both, with a bound of 15 %.
beside() {
    local name=$1 limit=$2
    shift 2
    json_step "$name-predicted" "$limit" "$ferry" "$@" --device "sim:0?profile=$work/card.profile.json&numerics=off" --json || return
    json_step "$name" "$limit" "$ferry" "$@" --device "$device" --json || return
    "$ferry" compare "$work/$name-predicted.json" "$work/$name.json"
    json_step "$name-compared" 20 "$ferry" compare "$work/$name-predicted.json" "$work/$name.json" --within 0.15 --json
}

phase_fast() {
    local short=() cases=() calibrated=$device suite
    # Rates of the fake driver are noise: a dry run measures the simulated device instead.
    if [[ -n $dry ]]; then short=(--rounds 1 --round-ms 1) cases=(--case mlp) calibrated='sim:0?numerics=off'; fi
    if step calibrate 120 "$ferry" calibrate "$calibrated" --out "$work/card.profile.json"; then
        cp "$work/card.profile.json" "$out/"
        beside roundtrip 45 experiment roundtrip
        [[ -n $dry ]] || beside link-overlap 45 experiment link --overlap
        beside bench-train 60 bench train "${short[@]}" "${cases[@]}"
    fi
    for suite in dispatch gemm copy; do
        [[ -n $dry && $suite != dispatch ]] && continue
        json_step "bench-$suite" 45 "$ferry" bench "$suite" "${short[@]}" --device "$device" --json
    done
    [[ -n $dry ]] || json_step bench-alloc 45 "$ferry" bench alloc --quick --device "$device" --json
    [[ -n $dry ]] || json_step link 60 "$ferry" experiment link --device "$device" --json
    json_step torch 240 python3 bench/gpu_torch.py "$ferry" "$device"
    [[ -s $work/torch.json ]] && cp "$work/torch.json" "$out/"
}

# ---- train: the same losses as the simulator's, and what it learns ----

phase_train() {
    local n=50 epochs=10 data=${FERRY_DATA:-} folder accuracy short=()
    for folder in shared/data ../shared/data; do [[ -z $data && -d $folder/mnist ]] && data=$folder; done
    [[ -n $data ]] && export FERRY_DATA=$data
    if [[ -n $dry ]]; then n=2 epochs=1 short=(--limit-samples 256 --max-steps 2); fi
    json_step losses-sim 120 "$ferry" train mnist2018 --device sim:0 --seed 1 --log-every 1 --max-steps "$n" --limit-samples 6400 --json
    json_step losses 60 "$ferry" train mnist2018 --device "$device" --seed 1 --log-every 1 --max-steps "$n" --limit-samples 6400 --json
    json_step losses-compared 20 "$ferry" compare "$work/losses-sim.json" "$work/losses.json" --key train_loss --within 0.02 --json
    json_step train-graph 120 "$ferry" train mnist2018 --device "$device" --epochs 1 --graph "${short[@]}" --json
    json_step train 300 "$ferry" train mnist2018 --device "$device" --epochs "$epochs" --log-every 0 --save "$work/mnist2018.safetensors" "${short[@]}" --json
    accuracy=$(number "$work/train.json" test_accuracy)
    if [[ -z $data ]]; then
        note accuracy "skipped: no MNIST here, trained on made-up data" 0
    elif [[ -n $dry ]]; then
        note accuracy "skipped: dry run" 0
    elif awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 0.98) }'; then
        note accuracy "ok: $accuracy" 0
    else
        note accuracy "FAILED: ${accuracy:-none}, not 0.98" 0
    fi
}

# ---- the report ----

report() {
    local gpu bad=0 comma="" p name result wall
    gpu=$(head -n 1 "$work/gpu.csv" | tr -dc "[:alnum:] .:,_-")
    {
        printf '{"gpu":"%s","device":"%s","dry_run":%s,"accuracy":%s,"uploads":%s,"upload_bytes":%s,"steps":[' "$gpu" "$device" \
            "$([[ -n $dry ]] && echo true || echo false)" "$(number "$work/train.json" test_accuracy | grep . || echo null)" \
            "$(number "$work/train.json" count | grep . || echo null)" "$(number "$work/train.json" bytes | grep . || echo null)"
        while IFS=$'\t' read -r p name result wall; do
            printf '%s\n{"phase":"%s","name":"%s","result":"%s","wall_s":%d}' "$comma" "$p" "$name" "$result" "$wall"
            comma=,
        done <"$steps"
        printf ']}\n'
    } >"$out/summary.json"
    {
        printf '%s\n%-10s %-26s %6s  %s\n' "$gpu" phase step s result
        while IFS=$'\t' read -r p name result wall; do printf '%-10s %-26s %6d  %s\n' "$p" "$name" "$wall" "$result"; done <"$steps"
    } >"$out/summary.txt"
    printf '\n'
    cat "$out/summary.txt"
    tar -czf "$out/logs.tar.gz" -C "$work" --exclude='*.safetensors' . 2>/dev/null
    while IFS=$'\t' read -r p name result wall; do
        [[ $result == ok* || $result == skipped* ]] || bad=1
    done <"$steps"
    exit $bad
}

use_packages
if [[ -n $dry ]]; then
    fake=$build/lib/tests/libfake_cuda.so
    export FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=none
else
    [[ -d /usr/local/cuda/bin ]] && export PATH=$PATH:/usr/local/cuda/bin
    [[ -d /usr/local/cuda/lib64 ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
    unset FERRY_CUDA_DRIVER FERRY_CUBLASLT FERRY_CUDNN # the real ones
fi
ferry=$build/bin/ferry
export FERRY_PLUGIN_PATH=$build/lib/ferry FERRY_BUILD_DIR=$build
touch "$steps"
for phase in "${phases[@]}"; do
    # Again is instead: what an earlier call noted of this phase goes.
    awk -F '\t' -v p="$phase" '$1 != p' "$steps" >"$steps.new" && mv "$steps.new" "$steps"
    if [[ $phase != build && ! -x $ferry ]]; then
        note "$phase" "FAILED: $ferry was not built" 0
        continue
    fi
    case $phase in
    build) phase_build ;;
    right) phase_right ;;
    sanitize) phase_sanitize ;;
    fast) phase_fast ;;
    train) phase_train ;;
    esac
done
report
