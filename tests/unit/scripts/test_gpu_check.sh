#!/usr/bin/env bash
# scripts/gpu-check.sh without a card: its refusals, the staged files, and its calls from a folder
# that was moved. PATH has bash, coreutils and stand-ins for
# compute-sanitizer, ncu and python3; the fake driver is used. It proves nothing about a card.
# In a bare root, with all test programs: gpu_check_bare.sh. Usage: test_gpu_check.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs bin/ferry bin/bench/cuda_probe lib/tests/libfake_cuda.so lib/ferry/libferry_cuda.so bin/tests/test_ops bin/tests/test_conformance
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
for text in "prepare \[--arch 90\]" "run \[--results DIR\] \[--before DIR\] CALL" FERRY_GPU_PYTHON "Exit status 0:"; do says "$text" --help; done
asked 2
asked 2 wrong
says "'wrong' is no command" "an unknown command"
asked 2 run
asked 2 run wrong
says "there is no call 'wrong'; calls are right figures learn" "an unknown call"
asked 2 run right figures
says "one call at a time; 'right' and 'figures' were given" "two calls"
asked 2 prepare --wrong
asked 2 prepare --arch 9.0
says "'9.0' is none" "a wrong --arch"
asked 1 prepare --build "$work"
says "no $work/bin/ferry" "a --build without programs"
asked 1 run --results "$work/none" right
says "made; $root/scripts is none" "run in the source tree"
asked 0 plan # fails if the steps of a call may take longer than the call
awk '/all calls end within/ { found = $5 <= 780 } END { exit !found }' "$work/said" || fail "the calls of the plan take more than 780 s"

# ---- refusals while staging; wc is a fast stand-in for xz, which is called with -c, too ----
export XZ_OPT=-0
mkdir -p "$work/stand-ins" "$work/other" "$work/untested/bin" "$work/few/bin/tests" "$work/large"
echo content >"$work/other/file"
asked 1 prepare --build "$build" --out "$work/other"
says "has other files" "an --out that is in use"
[ -e "$work/other/file" ] || fail "prepare removed a file that is not its own"
for folder in untested few; do
    ln -s "$build/lib" "$work/$folder/lib"
    ln -s "$build/bin/ferry" "$build/bin/bench" "$work/$folder/bin/"
done
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do truncate -s 16M "$work/large/$name-ubyte.gz"; done
ln -s "$(command -v wc)" "$work/stand-ins/xz"
PATH=$work/stand-ins:$PATH asked 1 prepare --build "$work/untested" --data "$work/large" --out "$work/small"
says "has no tests" "a build without tests"
grep -q '^tests=0$' "$work/small/staged.txt" || fail "staged.txt does not say that there are no tests"
says "tracked files [0-9]*, [0-9]* more than the limit of 62914560 (60 MiB)" "a folder that is too large"

# ---- a folder, moved and with its x bits lost ----
ln -s "$build/bin/tests/test_ops" "$build/bin/tests/test_conformance" "$work/few/bin/tests/"
asked 0 prepare --build "$work/few" --fake --out "$work/small"
says "tracked files [0-9]* of at most 62914560, 2 test programs, the fake driver" prepare
folder="$work/moved there"
mv "$work/small" "$folder"
chmod -R a-x,a+X "$folder"
grep -q "losses-within-2-percent" "$folder/plan.txt" || fail "the plan has no step losses-within-2-percent"
[ "$(wc -l <"$folder/ops.txt")" -eq "$(sed -n 's/^ *FY_OP_BUILTIN_COUNT = //p' "$root/include/ferry/op_list.h")" ] || fail "ops.txt has not every op"
grep -rlF "$root" "$folder" --include='*.txt' --include='*.sh' && fail "staged files name this tree"

# Limits 20 times as long, but for the step that is to be killed: a loaded machine fails none.
limits=$folder/gpu-check/steps.inc.sh
cp "$limits" "$work/limits"
# shellcheck disable=SC2016 # for the script
sed -i 's/^ *IFS=.* read -r name limit words.*/&\n[[ $name == speed-of-light ]] || limit=$((20 * limit))/
    s/end=$((SECONDS + $2))/end=$((SECONDS + 20 * $2))/
    /^declare -A call_seconds=/s/=2[04]0/=4000/g' "$limits"
[ "$(diff "$work/limits" "$limits" | grep -c '^>')" -eq 3 ] || fail "the limits are not where this test looks for them"

# A PATH of bash and coreutils, and stand-ins for the tools of a machine with a card.
mkdir -p "$work/bin" "$work/venv/bin" "$work/site/nvidia/cu13/lib" "$work/site/nvidia/other/lib"
for name in bash env cat chmod cp head mkdir readlink rm sleep tail timeout touch wc; do ln -s "$(command -v $name)" "$work/bin/$name"; done
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

# called STATUS CALL: runs without the environment of this machine; its results go to the folder of
# that name.
called() {
    local want=$1 status
    results=$work/$2
    rm -rf "$results"
    env -i PATH="$work/bin" FERRY_GPU_WORK="$work/state" FERRY_GPU_PYTHON="$work/venv" ${setting:+"$setting"} \
        bash "$folder/gpu-check.sh" run --results "$results" "$2" >"$work/said" 2>&1
    status=$?
    [ $status -eq "$want" ] || fail "run $2: exit status $status, not $want: $(tail -n 60 "$work/said")"
}
verdict() { awk -F '\t' -v name="$1" '$2 == name { last = $3 } END { print last }' "$results/steps.tsv"; }
is() { [ "$(verdict "$1")" = "$2" ] || fail "step $1: '$(verdict "$1")', not '$2': $(tail -n 5 "$work/state/logs/$1.log" 2>/dev/null)"; }

setting="" called 1 right
for step in cudnn-log op-softmax op-gather own-conv2d_backward_params conformance-graph losses-mnist2018 losses-within-2-percent-mnist2018 \
    losses-within-2-percent-gpt memcheck-index_add; do
    is "$step" passed
done
is racecheck-index_add failed
[ "$(sed -n '/^call/{n;p;}' "$results/summary.txt" | tr -s ' ' | cut -d ' ' -f 2,4)" = "racecheck-index_add failed" ] || fail "the failure is not first in the table"
grep -q '======== op-softmax' "$results/logs.txt" || fail "the logs are not in logs.txt"
searched=$(eval "$(grep '^export LD_LIBRARY_PATH=' "$work/state/bin/ferry")" && echo "$LD_LIBRARY_PATH") # the script quotes it
[[ $searched == *"$work/site/nvidia/cu13/lib"* ]] || fail "cuBLASLt in site-packages was not found"
[[ $searched == *nvidia/other/lib* ]] && fail "a folder without a library of NVIDIA's is on the path"

# ---- another machine goes on where the results of the first end, here with the staged C library ----
mv "$work/right" "$folder/before"
rm -rf "$work/state"
sed -i '/racecheck/d' "$work/bin/compute-sanitizer"
setting=FERRY_GPU_LOADER=staged called 0 right
says "the staged one is used" "run with the staged C library"
is racecheck-index_add passed
is op-softmax passed
grep -q 'op-softmax\|losses' "$results/results.jsonl" && fail "a step that had passed was repeated"
grep -q 'C library: staged' "$results/summary.txt" || fail "summary.txt does not say that the staged C library was used"

setting="" called 0 figures
for step in probe kernels kernels-without-cudnn speed-of-light calibrate bench-copy bench-gemm; do is "$step" passed; done
is torch skipped
grep -q "no Python here imports torch" "$results/summary.txt" || fail "the table does not say why torch was skipped"
grep -q "launch of 128 bytes [0-9.]* ns" "$results/summary.txt" || fail "the table has no figure of the probe"
for file in card.profile.json results.jsonl steps.tsv summary.txt logs.txt; do [ -s "$results/$file" ] || fail "there is no $file"; done
[ "$(find "$results" -type f | wc -l)" -le 8 ] || fail "more than eight files came out"
if command -v python3 >/dev/null; then
    python3 - "$results/results.jsonl" <<'END' || fail "results.jsonl is not as promised"
import json, sys
steps = {step["step"]: step for step in map(json.loads, open(sys.argv[1], encoding="utf-8"))}
[probe], [kernels] = steps["probe"]["figures"], steps["kernels"]["figures"]
assert any(row["what"] == "launch_2120_bytes" and row["ns"] > 0 for row in probe["rows"])
assert [row["what"] for row in kernels["rows"]] == ["add", "layer_norm", "attention"]
assert steps["calibrate"]["figures"] == [] and steps["calibrate"]["limit_s"] == 20 * 25
END
fi

# ---- the last call does what remained, and failed ops under the checker ----
printf 'right\top-gather\tfailed\t1\t45\t-\nright\tconformance-graph\ttimeout\t9\t9\t-\n' >>"$work/state/steps.tsv"
setting="" called 0 learn
for step in epoch-as-a-graph ten-epochs op-gather conformance-graph roundtrip memcheck-gather racecheck-gather; do is "$step" passed; done
is accuracy skipped
grep -q '"op-softmax"' "$results/results.jsonl" && fail "the last call repeats what had passed"

# ---- a step that hangs is killed, and the next one runs; a device that does not open ends the call ----
printf '#!/bin/bash\nsleep 100\n' >"$work/bin/ncu"
sed -i 's/step speed-of-light [0-9]*/step speed-of-light 1/' "$folder/gpu-check/phases.inc.sh"
sed -i '/speed-of-light\|bench-gemm/d' "$work/state/steps.tsv"
setting="" called 1 figures
is speed-of-light timeout
is bench-gemm passed
setting=FERRY_GPU_DEVICE=cuda:7 called 1 learn
is device-of-learn failed
is learn notrun
says "-- .*libfake_cuda.so" "a device that does not open"
