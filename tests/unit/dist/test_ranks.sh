#!/usr/bin/env bash
# Groups of 2 and 4 ranks under each MPI that is here, and one rank without MPI: ranks.c, ddp.c and
# `ferry train --dist auto`. $FERRY_MOMENTS: faults at so many random moments of each kind (nightly:
# 20); unset, one moment, and fewer trainings.
set -euo pipefail
build=${1:?usage: test_ranks.sh BUILD}
ranks=$build/bin/tests/ranks ddp=$build/bin/tests/ddp ferry=$build/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"

"$ranks" calls host | grep '^1 ranks, $' >/dev/null
"$ranks" calls sim:0 >/dev/null
if WORLD_SIZE=2 "$ranks" calls host 2>"$temp/err"; then echo "WORLD_SIZE=2 without MPI was accepted" && exit 1; fi
grep -q 'WORLD_SIZE=2, but no MPI started this process' "$temp/err"

"$ddp" all host >/dev/null
if WORLD_SIZE=2 "$ferry" train linear --dist auto 2>"$temp/err"; then echo "ferry train: WORLD_SIZE=2 without MPI was accepted" && exit 1; fi
grep -q 'ferry: UNAVAILABLE: .*WORLD_SIZE=2' "$temp/err"

# The command: rank 0 alone prints, and its epochs are those of one process.
epochs() { grep '^epoch' "$1" | sed 's/  [0-9]* samples.*//'; }
train=("$ferry" train lenet --device sim:0 --limit-samples 300 --epochs 2 --log-every 2)
"${train[@]}" >"$temp/one" 2>/dev/null
# lost MPI N PATTERN COUNT ARGUMENT...
lost() { later says "${@:1:4}" "$ranks" "${@:5}"; }
# A rank's own deadline has passed, or another one's, whose report came first.
late='took no part\|is lost, as rank'
few=${FERRY_MOMENTS:-}
# takes MPI N: with both MPIs each has one number of ranks, as both of both take twice the time.
takes() { [ "$few" ] || [ "$1 $2" = "openmpi 2" ] || [ "$1 $2" = "mpich 4" ]; }
tested=0
for mpi in $(mpis); do
    tested=$((tested + 1))
    for n in 2 4; do
        if [ "$(mpis | wc -l)" = 2 ] && ! takes "$mpi" $n; then continue; fi
        for device in host sim:0; do
            succeed "$mpi" "$n" env LD_PRELOAD="$(counter "$mpi")" "$ranks" calls "$device"
            [ -z "$(counter "$mpi")" ] || [ "$(grep -c '^conserved' "$temp/out")" = "$n" ] || fail "the bytes of $mpi are not counted"
        done
        succeed "$mpi" "$n" "$ddp" all sim:0
        for case in plain accumulate; do succeed "$mpi" "$n" "$ddp" $case host; done
    done
    if [ "$mpi" = openmpi ]; then n=4; else n=2; fi # the other number
    takes "$mpi" $n || succeed "$mpi" $n "$ddp" plain sim:0
    start "$mpi" 2 "$ddp" lost host || true
    grep '^kept' "$temp/out" || fail "$mpi ddp lost"
    start "$mpi" 3 "${train[@]}" --dist auto --record "$temp/events" --csv "$temp/losses" --checkpoint "$temp/run.$mpi"
    [ "$(epochs "$temp/out")" = "$(epochs "$temp/one")" ] || { cat "$temp/one" && fail "$mpi ferry train"; }
    grep -q '^ranks: 3, ' "$temp/out"
    # Each rank's event file has the calls of the group.
    calls=$(sed -n 's/^ranks: .*; \([0-9]*\) calls of rank 0,.*/\1/p' "$temp/out")
    for rank in 0 1 2; do
        file=$temp/events
        if [ $rank != 0 ]; then file=$file.$rank; fi
        found=$("$ferry" ledger "$file" --json | sed -n 's/.*"collectives": \([0-9]*\),*/\1/p' | sed -n 1p)
        ran=$(grep -c "\"collective_ran\".*\"rank\":$rank,.*\"status\":\"OK\"" "$file")
        [[ $found = "$calls" && $ran = "$calls" ]] || fail "$mpi $file: $calls calls, $found recorded, $ran ran"
        "$ferry" timeline "$file" --out "$temp/trace" --clock wall >/dev/null
        drawn=$(grep -c '"name":"group_.*"cat":"wait".*"rank":'"$rank,"'"number":' "$temp/trace" || true)
        [ "$drawn" = "$calls" ] || fail "$mpi: the timeline of rank $rank has $drawn of $calls calls"
    done
    start "$mpi" 2 "${train[@]}" --dist auto --epochs 3 --checkpoint "$temp/run.$mpi" --resume
    grep -q '^epoch 3/3' "$temp/out" # with another number of ranks
    # shellcheck disable=SC2016 # the ranks expand it
    if start "$mpi" 2 sh -c 'exec "$@" --batch $((16 + ${OMPI_COMM_WORLD_RANK:-$PMI_RANK}))' sh "${train[@]}" --dist auto; then
        fail "$mpi ferry train: two batch sizes were accepted"
    fi
    grep -q 'ferry: INVALID_ARGUMENT: the ranks differ' "$temp/err"
    grep -q 'rank 1: data: 300 samples in batches of 17' "$temp/err"
    echo "ok: $mpi ferry train"
    lost "$mpi" 3 "call different things" 3 differ
    lost "$mpi" 3 "$late" 2 stop
    lost "$mpi" 3 "its last call: barrier 2" 2 silent
    lost "$mpi" 3 "its last call: barrier 2" 2 silent-async
    # A rank that is killed: mpirun ends the others, too, without --enable-recovery (Open MPI 4).
    if [ "$mpi" = openmpi ] && grep -q '(Open[^)]*) 4' <<<"$(mpirun.openmpi --version)"; then
        OMPI_MCA_orte_enable_recovery=1 lost "$mpi" 3 "its last call: barrier 2" 2 silent-kill
    fi
    wait_for_all
    # One of 4 ranks at a random moment. All others name it; it names itself if it still runs.
    for seed in $(seq 1 "${few:-1}"); do
        lost "$mpi" 4 "call different things" 4 moment differ "$seed"
        lost "$mpi" 4 "$late" 3 moment stop "$seed"
        wait_for_all
    done
done
if [ $tested = 0 ]; then skip_without_mpi; fi
