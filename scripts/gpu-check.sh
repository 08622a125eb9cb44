#!/usr/bin/env bash
# Checks Ferry on a machine with an NVIDIA card and no network: builds from source, runs the suite, the conformance tests on the card,
# compute-sanitizer over some of them, and the benchmarks. Every step has a time limit; the whole ends within ten minutes.
# Results: ${OUT:-build/gpu-check} (logs, JSON, summary.json); a short table is the last thing printed. Exit 0: every step passed.
# Not here: what a card must reach (docs/results) and installing anything: needed .deb files may lie in .gpu-deps/ and are only unpacked.
set -u -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
out=${OUT:-build/gpu-check}
build=${FERRY_GPU_BUILD:-build/gpu}
device=${FERRY_GPU_DEVICE:-cuda:0}
budget_s=${FERRY_GPU_BUDGET_S:-570}
began=$SECONDS
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
names=() results=() walls=()

# A card, and a driver that this process may use.
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$out/gpus.txt" 2>&1 || ! grep -q '^GPU ' "$out/gpus.txt"; then
    echo "gpu-check: no usable NVIDIA GPU here: nvidia-smi is missing or lists none. Nothing was checked." >&2
    exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv >"$out/gpu.csv" 2>&1
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')

# step NAME SECONDS COMMAND...: runs it within its limit and what is left of the whole; output to NAME.log.
step() {
    local name=$1 limit=$2 left=$((budget_s - (SECONDS - began))) started=$SECONDS status
    shift 2
    names+=("$name")
    if ((left < 5)); then
        results+=("not run: no time left") walls+=(0)
        return 1
    fi
    ((limit > left)) && limit=$left
    echo "== $name (at most ${limit} s)"
    timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    walls+=($((SECONDS - started)))
    case $status in
    0) results+=("ok") ;;
    77) results+=("skipped") ;;
    124 | 137) results+=("TIME LIMIT") ;;
    *) results+=("FAILED ($status)") ;;
    esac
    ((status == 0)) || tail -n 15 "$out/$name.log"
    return $status
}

# As step, for a command that prints one JSON document: it goes to NAME.json.
json_step() {
    local name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2016 # the inner shell expands them
    step "$name" "$limit" bash -c 'json=$1; shift; "$@" >"$json"' _ "$out/$name.json" "$@"
}

finish() {
    local i bad=0 comma="" gpu
    gpu=$(sed -n 2p "$out/gpu.csv")
    {
        printf '{"gpu":"%s","device":"%s","wall_s":%d,"steps":[' "${gpu//\"/}" "$device" $((SECONDS - began))
        for i in "${!names[@]}"; do
            printf '%s{"name":"%s","result":"%s","wall_s":%d}' "$comma" "${names[i]}" "${results[i]}" "${walls[i]}"
            comma=,
        done
        printf ']}\n'
    } >"$out/summary.json"
    printf '\n%s\n' "$gpu"
    printf '%-24s %-22s %6s\n' step result s
    for i in "${!names[@]}"; do
        printf '%-24s %-22s %6d\n' "${names[i]}" "${results[i]}" "${walls[i]}"
        [[ ${results[i]} == ok || ${results[i]} == skipped ]] || bad=1
    done
    exit $bad
}

# ---- what the build needs and this machine lacks ----
if compgen -G '.gpu-deps/*.deb' >/dev/null; then
    prefix=$root/build/gpu-prefix
    mkdir -p "$prefix"
    for package in .gpu-deps/*.deb; do dpkg -x "$package" "$prefix" || echo "gpu-check: $package could not be unpacked" >&2; done
    libraries=$prefix/usr/lib/$(gcc -dumpmachine)
    [[ -d $libraries ]] || libraries=$(dirname "$(find "$prefix/usr/lib" -name '*.so*' -print -quit)")
    export CMAKE_PREFIX_PATH=$prefix/usr PATH=$prefix/usr/bin:$PATH
    export LD_LIBRARY_PATH=$libraries:$prefix/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LIBRARY_PATH=$libraries
    export CPATH=$prefix/usr/include${CPATH:+:$CPATH}
fi
[[ -d /usr/local/cuda/bin ]] && export PATH=$PATH:/usr/local/cuda/bin
[[ -d /usr/local/cuda/lib64 ]] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
unset FERRY_CUDA_DRIVER FERRY_CUBLASLT # the real ones

jobs=$(nproc)
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
step configure 60 cmake -S . -B "$build" "${generator[@]}" -DFERRY_CUDA=ON -DFERRY_TOOLS=ON -DFERRY_TESTS=ON \
    "-DFERRY_CUDA_ARCHITECTURES=$capability" || finish
keep_going=(-k)
((${#generator[@]})) && keep_going=(-k 0)
# What does not build is a failure, but no reason not to look at the rest: device time is dear.
step build 240 cmake --build "$build" --parallel "$jobs" -- "${keep_going[@]}"
[[ -e $build/lib/ferry/libferry_cuda.so ]] || finish
build=$(cd "$build" && pwd)
export FERRY_PLUGIN_PATH=$build/lib/ferry FERRY_BUILD_DIR=$build

# ---- right: first the card alone, then everything else ----
step info 30 "$build/bin/ferry" info
# REQUIRE: a device that does not open is a failure here, not a skip. Entries with a device of their own (orders of the simulator) come below.
FERRY_TEST_DEVICE=$device FERRY_TEST_REQUIRE=1 step conformance-cuda 120 ctest --test-dir "$build" -L 'conformance|ops' -E 'fake_cuda|cuda_source|_lazy$|_[a-z]+_random$' --output-on-failure --timeout 100 \
    --output-junit "$out/conformance-cuda.xml"
step suite 150 ctest --test-dir "$build" --parallel "$jobs" --timeout 100 --output-junit "$out/suite.xml"
if command -v compute-sanitizer >/dev/null; then
    # One program, its device part only: the checker slows kernels down by an order of magnitude.
    program=$(find "$build/bin/tests" -name 'test_conformance_*' -type f -perm -u+x | sort | head -n 1)
    [[ -n $program ]] && FERRY_TEST_DEVICE=$device step memcheck 60 compute-sanitizer --error-exitcode 9 "$program"
    [[ -n $program ]] && FERRY_TEST_DEVICE=$device step racecheck 40 compute-sanitizer --tool racecheck --error-exitcode 9 "$program"
else
    names+=(memcheck) results+=(skipped) walls+=(0)
fi

# ---- fast ----
json_step info-json 20 "$build/bin/ferry" info --json
for suite in copy gemm dispatch train; do json_step "bench-$suite" 45 "$build/bin/ferry" bench "$suite" --device "$device" --json; done
json_step bench-alloc 45 "$build/bin/ferry" bench alloc --quick --device "$device" --json
for experiment in roundtrip minibatch; do
    json_step "experiment-$experiment" 45 "$build/bin/ferry" experiment "$experiment" --device "$device" --json
done
json_step train 60 "$build/bin/ferry" train mnist2018 --device "$device" --epochs 1 --json
json_step experiment-link 60 "$build/bin/ferry" experiment link --device "$device" --json
json_step experiment-link-overlap 45 "$build/bin/ferry" experiment link --overlap --device "$device" --json
finish
