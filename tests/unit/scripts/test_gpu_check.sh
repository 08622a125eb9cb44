#!/usr/bin/env bash
# scripts/gpu-check.sh without a card: its refusals, the staged files, and a shortened run of every
# phase from a folder that was moved. PATH has bash, coreutils and stand-ins for compute-sanitizer,
# ncu and python3; the fake driver is used. It proves nothing about a card.
# In a bare root and unshortened: gpu_check_bare.sh. Usage: test_gpu_check.sh BUILD_DIR
set -uo pipefail
build=$(realpath -m "$1")
root=$(cd "$(dirname "$0")/../../.." && pwd)
for needed in bin/ferry bin/bench/cuda_probe lib/tests/libfake_cuda.so lib/ferry/libferry_cuda.so bin/tests/test_ops_op_matrix; do
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
says() { grep -q -e "$1" "$work/said" || fail "$2 does not say '$1': $(tail -n 5 "$work/said")"; }
# asked STATUS ARGUMENT...: runs the script of the tree and expects that status.
asked() {
    local want=$1 status
    shift
    "$root/scripts/gpu-check.sh" "$@" >"$work/said" 2>&1
    status=$?
    [ $status -eq "$want" ] || fail "gpu-check.sh $*: exit status $status, not $want: $(tail -n 5 "$work/said")"
}

# ---- usage ----
asked 0 --help
for text in "prepare \[--arch 90\]" "run \[--results DIR\] PHASE" FERRY_GPU_PYTHON "Exit status 0:"; do says "$text" --help; done
asked 2
asked 2 wrong
says "'wrong' is no command" "an unknown command"
asked 2 run
asked 2 run right wrong
says "there is no phase 'wrong'; phases are right order figures learn and all" "an unknown phase"
asked 2 run right all
says "'all' is given together with other phases" "all beside a phase"
asked 2 prepare --wrong
asked 2 prepare --arch 9.0
says "'9.0' is none" "a wrong --arch"
asked 1 run right
says "a folder that 'gpu-check.sh prepare' made" "run in a source tree"
asked 0 plan
says "all phases end within 14[0-9][0-9] s" plan
awk '/ends within/ && $2 == "ends" && $4 >= 480 { exit 1 }' "$work/said" || fail "a phase of the plan takes 8 minutes or more"

# ---- refusals and log lines while staging; gzip is a fast stand-in here ----
mkdir -p "$work/stand-ins" "$work/other" "$work/untested/bin"
echo content >"$work/other/file"
asked 1 prepare --build "$build" --out "$work/other"
says "has other files" "an --out that is in use"
[ -e "$work/other/file" ] || fail "prepare removed a file that is not its own"
printf '#!/bin/sh\necho\n' >"$work/stand-ins/gzip"
chmod +x "$work/stand-ins/gzip"
ln -s "$build/lib" "$work/untested/lib"
ln -s "$build/bin/ferry" "$build/bin/bench" "$work/untested/bin/"
PATH=$work/stand-ins:$PATH asked 0 prepare --build "$work/untested" --out "$work/small"
says "has no tests" "a build without tests"
grep -q '^tests=0$' "$work/small/staged.txt" || fail "staged.txt does not say that there are no tests"
mkdir "$work/large"
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do truncate -s 16M "$work/large/$name-ubyte.gz"; done
PATH=$work/stand-ins:$PATH asked 1 prepare --build "$work/untested" --data "$work/large" --out "$work/small"
says "bytes, [0-9]* more than the limit of 62914560 (60 MiB)" "a folder that is too large"

# ---- a folder, moved and with its x bits lost ----
asked 0 prepare --build "$build" --fake --out "$work/small"
says "bytes of at most 62914560, 24 test programs, the fake driver" prepare
folder="$work/moved there"
mv "$work/small" "$folder"
chmod -R a-x,a+X "$folder"
[ "$(du -sb --apparent-size "$folder" | cut -f 1)" -le 62914560 ] || fail "the folder is larger than 60 MiB"
grep -q "losses-within-2-percent" "$folder/plan.txt" || fail "the plan has no step losses-within-2-percent"
grep -rlF "$root" "$folder" --include='*.txt' --include='*.sh' && fail "staged files name this tree"

# A PATH of bash and coreutils, and stand-ins for the tools of a machine with a card.
mkdir -p "$work/bin" "$work/venv/bin" "$work/site/nvidia/cu13/lib" "$work/site/nvidia/other/lib"
for name in bash env cat chmod cp head mkdir readlink rm tail timeout touch wc; do ln -s "$(command -v $name)" "$work/bin/$name"; done
touch "$work/site/nvidia/cu13/lib/libcublasLt.so.13"
cat >"$work/venv/bin/python3" <<END
#!/bin/sh
[ "\$2" = "import torch" ] && exit 1
echo "$work/site"
END
# Runs the program unchanged; fails for one tool, to show that a failing step does not stop the
# others.
cat >"$work/bin/compute-sanitizer" <<'END'
#!/bin/bash
[[ "$*" == *racecheck* ]] && echo "========= ERROR SUMMARY: 1 error" && exit 9
while [[ $1 != --error-exitcode ]]; do shift; done
shift 2
exec "$@"
END
printf '#!/bin/sh\nexit 0\n' >"$work/bin/ncu"
chmod +x "$work"/bin/{compute-sanitizer,ncu} "$work/venv/bin/python3"

# checked STATUS ARGUMENT...: runs without the environment of this machine.
checked() {
    local want=$1 status
    shift
    env -i PATH="$work/bin" FERRY_GPU_WORK="$work/state" FERRY_GPU_QUICK=1 FERRY_GPU_PYTHON="$work/venv" ${setting:+"$setting"} \
        bash "$folder/gpu-check.sh" run --results "$work/out" "$@" >"$work/said" 2>&1
    status=$?
    [ $status -eq "$want" ] || fail "run $*: exit status $status, not $want: $(tail -n 60 "$work/said")"
}
verdict() { awk -F '\t' -v name="$1" '$2 == name { print $3 }' "$work/state/steps.tsv"; }
is() { [ "$(verdict "$1")" = "$2" ] || fail "step $1: '$(verdict "$1")', not '$2': $(tail -n 5 "$work/state/logs/$1.log" 2>/dev/null)"; }

setting="" checked 1 all
for step in op-matrix op-matrix-own-convolutions conformance-device conformance-graph memcheck-probe memcheck-softmax memcheck-nvtx-softmax \
    initcheck-softmax synccheck-softmax probe bench-dispatch kernels-without-cudnn speed-of-light calibrate bench-gemm losses-sim losses \
    losses-within-2-percent epoch-as-a-graph ten-epochs; do
    is "$step" passed
done
is racecheck-softmax failed
is torch skipped
is accuracy skipped
grep -q "no Python here imports torch" "$work/out/summary.txt" || fail "the table does not say why torch was skipped"
[ "$(sed -n '/^phase/{n;p;}' "$work/out/summary.txt" | tr -s ' ' | cut -d ' ' -f 2,4)" = "racecheck-softmax failed" ] || fail "the failure is not first in the table"
grep -q "launch of 128 bytes [0-9.]* ns" "$work/out/summary.txt" || fail "the table has no figure of the probe"
for file in card.profile.json summary.json summary.txt logs.txt; do [ -s "$work/out/$file" ] || fail "there is no $file"; done
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "more than eight files came out"
grep -q '======== losses.log' "$work/out/logs.txt" || fail "the logs are not in logs.txt"
grep -q "$work/site/nvidia/cu13/lib" "$work/state/bin/ferry" || fail "cuBLASLt in site-packages was not found"
grep -q "nvidia/other/lib" "$work/state/bin/ferry" && fail "a folder without a library of NVIDIA's is on the path"
if command -v python3 >/dev/null; then
    python3 - "$work/out/summary.json" <<'END' || fail "summary.json is not as promised"
import json, sys
summary = json.load(open(sys.argv[1], encoding="utf-8"))
steps = {step["step"]: step for step in summary["steps"]}
assert summary["fake_driver"] is True and summary["card"].startswith("Fake GPU"), summary["card"]
assert summary["staged"]["tests"] == 24 and summary["versions"]["staged_c_library"] is False
assert summary["steps"][0]["step"] == "racecheck-softmax" and summary["steps"][0]["verdict"] == "failed"
assert any(row["what"] == "launch_2120_bytes" and row["ns"] > 0 for row in steps["probe"]["figures"]["rows"])
assert len(steps["kernels-without-cudnn"]["figures"]["rows"]) == 10
assert steps["op-matrix"]["figures"] is None and steps["op-matrix"]["limit_s"] == 240
END
fi

# ---- a repeated phase replaces its own results and keeps the others' ----
sed -i '/racecheck/d' "$work/bin/compute-sanitizer"
setting="" checked 0 order
is racecheck-softmax passed
is losses passed
[ "$(verdict racecheck-softmax | wc -l)" -eq 1 ] || fail "a phase that ran again is there twice"

# ---- the staged C library ----
setting=FERRY_GPU_LOADER=staged checked 0 right
says "the staged one is used" "run with the staged C library"
is op-matrix passed
grep -q '"staged_c_library": true' "$work/out/summary.json" || fail "summary.json does not say that the staged C library was used"

# ---- a device that does not open ----
setting=FERRY_GPU_DEVICE=cuda:7 checked 1 learn
is device-of-learn failed
is learn notrun
is losses ""
is op-matrix passed

[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
