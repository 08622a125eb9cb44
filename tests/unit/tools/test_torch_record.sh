#!/usr/bin/env bash
# Recordings of PyTorch scripts (python/ferry/torch_record): the commands read those that are stored
# here; python/tests/test_torch_record.py makes others. Usage: test_torch_record.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
file=$here/torch/mnist.jsonl.gz # of python/tests/torch/mnist.py

# 6 steps: 8 parameters, then a batch of 32 images and labels each; a loss of 4 bytes each
expect 0 ledger "$file" --format csv
line=$(grep '^everything,' "$work/out" | tr -d '\r')
IFS=, read -r _ requests uploads up_bytes _ _ _ downloads down_bytes _ <<<"$line"
[ "$uploads,$up_bytes,$downloads,$down_bytes" = 18,651112,6,24 ] || fail "the ledger has $line"
[ "$requests" -gt 150 ] || fail "only $requests requests"
prints "mnist.py:56" ledger "$file"
prints "6 steps 'step'" advise "$file"
says out "FA08" "mnist.py:61"
expect 0 predict "$file" --json
mapfile -t times < <(grep -o '"model_ns": [0-9]*' "$work/out")
[ "${times[0]}" = "${times[1]}" ] || fail "the same device takes ${times[1]}, not ${times[0]}"
prints "pinned memory of sim:0" replay "$file"
expect 0 report "$file" --out "$work/report.html"
expect 0 timeline "$file" --out "$work/trace.json"
expect 0 memory "$file" --format pytorch --out "$work/memory.pickle"

# attention, and recurrent layers on packed sequences: one op each, forward and backward
read_all() { # NAME REQUESTS
    file=$here/torch/$1.jsonl.gz
    expect 0 ledger "$file" --format csv
    IFS=, read -r _ requests _ <<<"$(grep '^everything,' "$work/out")"
    [ "$requests" = "$2" ] || fail "$1: $requests requests, not $2"
    expect 0 predict "$file" --json
    mapfile -t times < <(grep -o '"model_ns": [0-9]*' "$work/out")
    [ "${times[0]}" = "${times[1]}" ] || fail "$1: the same device takes ${times[1]}, not ${times[0]}"
    for command in advise replay; do expect 0 "$command" "$file"; done
    expect 0 report "$file" --out "$work/report.html"
}
read_all gpt 372
read_all packed 20
