#!/usr/bin/env bash
# What data-parallel training promises, a line each: docs/distributed.md. The MPIs take
# the lines alternately; with $FERRY_BARS=all (nightly) each MPI runs every line.
set -euo pipefail
build=${1:?usage: test_bars.sh BUILD}
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"
ddp=$build/bin/tests/ddp shards=$build/bin/tests/shards
read -ra list <<<"$(mpis | xargs)"
if [ ${#list[@]} = 0 ]; then skip_without_mpi; fi

# ddp CASE: 20 steps; parameters equal one process to 1e-5, the same bits on all ranks; a bucket for
# each parameter equals one bucket; accumulation over 4 batches sends a quarter of the bytes.
# shards: divided optimizer state has the bits of whole state, 1 / ranks of the bytes, and the same
# checkpoint.
lines=(
    "2 $ddp plain host"
    "2 $ddp plain sim:0"
    "4 $ddp plain host"
    "4 $ddp plain sim:0"
    "2 $ddp mlp sim:0"
    "4 $ddp accumulate host"
    "4 $shards sim:0 FOLDER few"
)
number=0
for line in "${lines[@]}"; do
    for i in "${!list[@]}"; do
        if [ -z "${FERRY_BARS:-}" ] && [ $((number % ${#list[@]})) != "$i" ]; then continue; fi
        folder=$temp/$number.$i
        mkdir "$folder"
        read -ra words <<<"${line//FOLDER/$folder}"
        succeed "${list[i]}" "${words[@]}"
    done
    number=$((number + 1))
done
