#!/usr/bin/env bash
# scripts/gpu-check.sh from end to end where there is no card: nvidia-smi and compute-sanitizer are small stand-ins, the driver is the fake
# one, the build is this one, every phase is shortened. So the script itself is known to work; it says nothing about a card.
# Usage: test_gpu_check.sh BUILD_DIR
set -uo pipefail
build=$(realpath -m "$1")
root=$(cd "$(dirname "$0")/../../.." && pwd)
for needed in bin/ferry lib/tests/libfake_cuda.so lib/ferry/libferry_cuda.so bin/tests/test_ops_op_matrix; do
    if [ ! -e "$build/$needed" ]; then
        echo "skipped: $build/$needed is not built"
        exit 77
    fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
check() { FERRY_GPU_DRY=$build FERRY_GPU_WORK=$work/work OUT=$work/out PATH=$work/bin:$PATH "$root/scripts/gpu-check.sh" "$@" >"$work/said" 2>&1; }
result() { awk -F '\t' -v name="$1" '$2 == name { print $3 }' "$work/work/steps.tsv"; }
is() { [[ $(result "$1") == "$2"* ]] || fail "step $1: '$(result "$1")', not '$2': $(tail -n 5 "$work/work/$1.log" 2>/dev/null)"; }

# ---- no card ----
mkdir -p "$work/bin" "$work/empty"
printf '#!/bin/sh\necho "No devices were found"\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
check right
[ $? -eq 1 ] || fail "without a card the exit status is not 1"
grep -q "no usable NVIDIA GPU here" "$work/said" || fail "it does not say that there is no card"
check wrong
[ $? -eq 2 ] || fail "an unknown phase is no usage error"

check --help || fail "--help fails"
for text in "Checks Ferry on a machine" FERRY_GPU_BUDGET_S; do grep -q "$text" "$work/said" || fail "--help does not say '$text'"; done

# ---- a card that is not there ----
cat >"$work/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in
-L) echo "GPU 0: Fake GPU (UUID: GPU-0)" ;;
*name,driver_version*) echo "Fake GPU, 580.00, 4096 MiB, 9.0" ;;
*compute_cap*) echo "9.0" ;;
esac
END
# Runs the program as it is; fails for one tool, so that a failing step is seen to stop nothing.
cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/sh
[ "$2" = racecheck ] && exit 9
shift 4
exec "$@"
END
printf '#!/bin/sh\necho "gpu_torch: a stand-in for python3" >&2\nexit 77\n' >"$work/bin/python3"
chmod +x "$work/bin/"*
check all
status=$?
[ $status -eq 1 ] || fail "exit status $status, not 1: racecheck failed"
for step in info card-suite suite memcheck-transfers memcheck-softmax initcheck-softmax synccheck-transfers bench-dispatch losses-sim losses losses-compared train; do
    is "$step" ok
done
is racecheck-softmax "FAILED (9)"
is torch "skipped: gpu_torch: a stand-in for python3"
is accuracy skipped
for step in calibrate roundtrip-predicted roundtrip bench-train-predicted bench-train; do is "$step" ok; done
# Nothing runs on a card here, so how near a prediction comes is open: only that it was asked.
for name in roundtrip bench-train; do
    [ -n "$(result $name-compared)" ] || fail "$name was not compared"
    grep -q '"ratio"' "$work/work/$name-compared.json" || fail "comparing $name gave no rows"
done
for file in card.profile.json summary.json summary.txt logs.tar.gz; do [ -s "$work/out/$file" ] || fail "there is no $file"; done
grep -q '"dry_run":true' "$work/out/summary.json" || fail "summary.json does not say that this was a dry run"
tar -tzf "$work/out/logs.tar.gz" >"$work/list" # no pipe: a grep that has seen enough would end tar with a signal
grep -q 'info.json' "$work/list" || fail "the logs are not in logs.tar.gz"
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "more than eight files came out"
if command -v python3 >/dev/null; then
    /usr/bin/env python3 -m json.tool "$work/out/summary.json" >/dev/null || fail "summary.json is no JSON: $(cat "$work/out/summary.json")"
fi

# ---- one phase again is instead, and leaves the others' results ----
sed -i 's/racecheck/nothing/' "$work/bin/compute-sanitizer"
check sanitize
is racecheck-softmax ok
is info ok
[ "$(result racecheck-softmax | wc -l)" -eq 1 ] || fail "a phase that ran again stands there twice"

# ---- no time ----
FERRY_GPU_BUDGET_S=1 check right
is suite "not run: no time left"

[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
