#!/usr/bin/env bash
# The main job: the roundtrip and minibatch experiments, and an epoch of training, on cuda:0 if
# there is one, else on sim:0.
# Usage: scripts/demo.sh [--device SPEC] [--data DIR]
# Data: else $FERRY_DATA, else data/ (scripts/get-data.sh), else made up in the same format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

device=""
data=()
while [ $# -gt 0 ]; do
    case "$1" in
    --device) device=$2 && shift 2 ;;
    --data) data=(--data "$2") && shift 2 ;;
    *) echo "usage: scripts/demo.sh [--device SPEC] [--data DIR]" >&2 && exit 2 ;;
    esac
done

# In the C locale gnuplot warns about its own degree sign.
if [ -z "${LC_ALL:-}${LC_CTYPE:-}${LANG:-}" ]; then export LC_CTYPE=C.UTF-8; fi

ferry=build/release/bin/ferry
plots=build/demo
mkdir -p "$plots"
if [ -z "$device" ]; then
    if "$ferry" info --json 2>/dev/null | grep '"cuda:0"' >/dev/null; then device=cuda:0; else device=sim:0; fi
fi

heading() { printf '\n==== %s\n' "$*"; }

heading "ferry info"
"$ferry" info
heading "roundtrip on $device: one request on data that stays, against data that travels each time"
"$ferry" experiment roundtrip --device "$device" --plot "$plots/roundtrip.svg" --csv "$plots/roundtrip.csv"
heading "minibatch on $device: the data set goes up once, losses come down"
"$ferry" experiment minibatch --device "$device" --init zero --plot "$plots/minibatch.svg" --csv "$plots/minibatch.csv" "${data[@]}" |
    tee "$plots/minibatch.txt"
if grep -q '^data: synthetic' "$plots/minibatch.txt"; then
    echo "These data are made up; scripts/get-data.sh airfoil fetches the measured ones."
fi

heading "one epoch of mnist2018 on $device: data up once, weights down once, losses where asked for"
"$ferry" train mnist2018 --epochs 1 --device "$device" --plot "$plots/train.svg" --csv "$plots/train.csv" "${data[@]}"

heading "plots and tables"
ls -1 "$plots"/*.svg "$plots"/*.csv 2>/dev/null || echo "none (no gnuplot?)"
