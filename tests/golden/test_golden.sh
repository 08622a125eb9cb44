#!/usr/bin/env bash
# Golden traffic: requests, uploads, downloads, bytes and syncs of every example, every experiment
# and a training on sim:0, against traffic.txt.
# A difference fails and prints both. A program without a line, or a line without a program, fails
# too.
# Usage: test_golden.sh BUILD_DIR [--update]     (--update rewrites traffic.txt; read the diff
# before you commit it)
set -uo pipefail
build=$(realpath -m "$1")
cd "$(dirname "$0")/../.." || exit 1
golden=$PWD/tests/golden/traffic.txt
now=$(mktemp)
trap 'rm -f "$now" "$now.err"' EXIT
failures=0

# record NAME COMMAND...: one line "NAME requests=... syncs=..." from the command's last "traffic:"
# line.
record() {
    local name=$1 line
    shift
    line=$("$@" 2>"$now.err" | grep '^traffic: ' | tail -n 1)
    if [ -z "$line" ]; then
        echo "FAILED: $name: '$*' printed no traffic line: $(head -c 400 "$now.err")"
        failures=$((failures + 1))
        return
    fi
    echo "$name ${line#traffic: }" >>"$now"
}

ran=""
if [ -d "$build/bin/examples" ]; then
    ran="example"
    for program in "$build"/bin/examples/*; do
        [ -x "$program" ] && record "example/$(basename "$program")" "$program" sim:0
    done
else
    echo "skipped: no examples in this build"
fi
if [ -x "$build/bin/ferry" ]; then
    ran="$ran experiment"
    for name in roundtrip vectorize minibatch link; do
        record "experiment/$name" "$build/bin/ferry" experiment "$name" --device sim:0 --traffic
    done
    record experiment/parallel "$build/bin/ferry" experiment parallel lenet --devices 2 --batch 64 --steps 3 --device sim:0 --traffic
    record experiment/speedups "$build/bin/ferry" experiment speedups --only 5,7,11,14 --device sim:0 --traffic
    # Synthetic data everywhere. Weights are made on the device and downloaded once; the data set is
    # uploaded once, or a batch a step.
    export FERRY_DATA=/nonexistent
    record experiment/train-mnist2018 "$build/bin/ferry" train mnist2018 --epochs 2 --limit-samples 640 --device sim:0 --traffic
    record experiment/train-mnist-stream "$build/bin/ferry" train mnist --epochs 1 --limit-samples 256 --stream-data --device sim:0 --traffic
    record experiment/link-overlap "$build/bin/ferry" experiment link --overlap --steps 16 --device 'sim:0?numerics=off' --traffic
else
    echo "skipped: no ferry command in this build"
fi
[ -n "$ran" ] || exit 77

sort -o "$now" "$now"
if [ "${2:-}" = --update ]; then
    [ "$ran" = "example experiment" ] || { echo "not updated: this build has only: $ran"; exit 1; }
    [ $failures -eq 0 ] || exit 1
    cp "$now" "$golden"
    echo "wrote $(wc -l <"$golden") lines to $golden"
    exit 0
fi
while read -r name want; do
    case " $ran " in *" ${name%%/*} "*) ;; *) continue ;; esac # the other half is not part of this build
    got=$(grep "^$name " "$now" | cut -d' ' -f2-)
    if [ "$got" != "$want" ]; then
        printf 'FAILED: %s\n  golden: %s\n  now:    %s\n' "$name" "$want" "${got:-(no such program)}"
        failures=$((failures + 1))
    fi
done <"$golden"
while read -r name got; do
    grep -q "^$name " "$golden" && continue
    printf 'FAILED: %s has no line in traffic.txt\n  now:    %s\n  Add it with: %s BUILD_DIR --update\n' "$name" "$got" "$0"
    failures=$((failures + 1))
done <"$now"
[ $failures -eq 0 ] && echo "$(wc -l <"$now") programs move what they moved before"
exit $((failures > 0))
