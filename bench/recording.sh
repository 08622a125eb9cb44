#!/usr/bin/env bash
# What an event file costs, against its three goals: 250 ns an event on the calling thread, 3 % of a
# training step of resnet18, 60 bytes an event in a compressed file. Takes two to three minutes on a
# quiet machine. The first figure is the processor's time of the calling thread, so other programs
# change it less than the second, which is the wall clock's.
# Usage: bench/recording.sh [BUILD_DIR [ROUNDS]]      ROUNDS of training, default 7
# Exit 1: a goal is missed.
set -euo pipefail
build=${1:-build} rounds=${2:-7}
for each in "$build" "$build/release" "$build/dev"; do
    [ -x "$each/bin/bench/ledger_cost" ] && [ -x "$each/bin/ferry" ] && break
done
if [ ! -x "$each/bin/bench/ledger_cost" ] || [ ! -x "$each/bin/ferry" ]; then
    echo "recording.sh: no bin/bench/ledger_cost and bin/ferry under $build: build first, or name the build folder" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0

goal() { # FIGURE MOST UNIT WHAT
    local verdict=met
    awk -v figure="$1" -v most="$2" 'BEGIN { exit !(figure > most) }' && verdict=MISSED missed=1
    printf '%-46s %8s %-5s goal %s: %s\n' "$4" "$1" "$3" "$2" "$verdict"
}
# Events of a recording: its last line has their number, and that none is lost.
events_in() {
    zcat -f "$1" | tail -n 1 | sed -n 's/.*"events":\([0-9]*\),"lost":0}.*/\1/p'
}

for device in host 'sim:0?numerics=off'; do
    requests=20000
    "$each/bin/bench/ledger_cost" "$device" $requests "$work/small.jsonl" >"$work/cost"
    events=$(events_in "$work/small.jsonl")
    [ -n "$events" ] || { echo "recording.sh: events of $device were lost: the machine is too busy" >&2 && exit 1; }
    goal "$(awk -v requests=$requests -v events="$events" '
        $1 == "plain" { plain = $2 }
        $1 == "recorded" { printf "%.0f", ($2 - plain) * requests / events }' "$work/cost")" 250 ns "an event on ${device%%\?*}"
done

train() { # further arguments
    "$each/bin/ferry" train resnet18 --device host --batch 4 --max-steps 12 --limit-samples 48 --epochs 9 --json "$@" |
        sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p'
}
for ((i = 0; i < rounds; i++)); do
    train >>"$work/plain"
    train --record "$work/resnet18.jsonl.gz" >>"$work/recorded"
done
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'; }
goal "$(awk -v plain="$(median "$work/plain")" -v recorded="$(median "$work/recorded")" 'BEGIN { printf "%.1f", 100 * (plain / recorded - 1) }')" 3 % \
    "a step of resnet18, $rounds rounds"
events=$(events_in "$work/resnet18.jsonl.gz")
goal "$(awk -v bytes="$(wc -c <"$work/resnet18.jsonl.gz")" -v events="${events:-1}" 'BEGIN { printf "%.1f", bytes / events }')" 60 bytes "an event of that file, compressed"
exit $missed
