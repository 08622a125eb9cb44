#!/usr/bin/env bash
# Trainings on 4 ranks in which one is killed, stopped, or makes another call, at seeded moments:
# faults.c; all others name it, and a resumed training ends with the bits of an undisturbed one.
# $FERRY_MOMENTS (1; nightly: 20) moments of each kind. Then `ferry train`: its exit status.
set -euo pipefail
build=${1:?usage: test_faults.sh BUILD}
faults=$build/bin/tests/faults ferry=$(realpath "$build")/bin/ferry
# shellcheck source=SCRIPTDIR/mpi.inc.sh
. "$(dirname "$0")/mpi.inc.sh"

# Ranks that are left after each kind of fault; `differ` leaves all.
left_of() { case $1 in differ) echo 4 ;; *) echo 3 ;; esac }
# Open MPI's first number; nothing for MPICH.
version_of() { sed -n 's/.*(Open[^)]*) \([0-9]*\).*/\1/p' <<<"$("mpirun.$1" --version 2>&1)"; }
tested=0
for mpi in $(mpis); do
    tested=$((tested + 1))
    kinds='kill'
    if [ $tested = 1 ] || [ -n "${FERRY_MOMENTS:-}" ]; then kinds="kill stop differ"; fi
    first=11 # so that the first one is rank 0, which writes checkpoints, behind an update without
    for kind in $kinds; do
        first=$((first + 1))
        for seed in $(seq "$first" "$((first + ${FERRY_MOMENTS:-1} - 1))"); do
            folder=$temp/$mpi.$kind.$seed
            # mpirun ends all ranks when one is killed, but Open MPI 4's with this option. Then
            # the last checkpoint is there. Open MPI 5's ends them when the first has exited.
            recovery=() least=$(left_of "$kind")
            case $(version_of "$mpi") in
            4) recovery=(--enable-recovery) ;;
            5) if [ "$kind" = kill ]; then least=0; else least=1; fi ;;
            *) if [ "$kind" = kill ]; then least=0; fi ;;
            esac
            start "$mpi" 4 "${recovery[@]}" "$faults" "$kind" "$seed" "$folder" || true
            [ "$(grep -c 'ends well' "$temp/out")" -ge "$least" ] || fail "$mpi $kind $seed"
            start "$mpi" 4 "$faults" resume 0 "$folder" || fail "$mpi resume after $kind $seed"
            echo "ok: $mpi $kind $seed: $(grep resumed "$temp/out")"
        done
    done
done
if [ $tested = 0 ]; then skip_without_mpi; fi

# `ferry train`: the second of 3 ranks is stopped once there is a checkpoint. The others write
# another one, if there was an update since, and leave with status 5.
mpi=$(mpis | sed -n 1p) # head would end the pipe early
train=("$ferry" train lenet --device sim:0 --limit-samples 300 --max-steps 60 --epochs 60 --dist auto)
start "$mpi" 3 "${train[@]}" || fail "ferry train"
want=$(grep '^weights: ' "$temp/out")
cat >"$temp/rank" <<'END'
folder=$1 signal=$2 rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
shift 2
"$@" &
process=$!
if [ "$rank" = 1 ]; then
    until [ -e "$folder/step-00000005.safetensors" ]; do sleep 0.02; done
    kill -"$signal" "$process"
fi
if [ "$rank$signal" != 1STOP ]; then
    status=0
    wait "$process" || status=$?
    echo "status $status"
    touch "$folder.status.$rank"
fi
# mpirun ends all ranks when the first one leaves.
until [ -e "$folder.status.0" ] && [ -e "$folder.status.2" ]; do sleep 0.1; done
if [ "$rank$signal" = 1STOP ]; then kill -KILL "$process"; fi
END
start "$mpi" 3 sh "$temp/rank" "$temp/run" STOP "${train[@]}" --checkpoint "$temp/run" --checkpoint-every 5 --keep 9 || true
cat "$temp/out" "$temp/err" >"$temp/both"
if [ "$(grep -c '^status 5$' "$temp/both")" != 2 ]; then fail "exit status after a lost rank"; fi
grep -q 'ferry: RANK_LOST: .*rank 1 (host' "$temp/err" || fail "the lost rank is not named"
start "$mpi" 3 "${train[@]}" --checkpoint "$temp/run" --resume || fail "resume"
if [ "$(grep '^weights: ' "$temp/out")" != "$want" ]; then fail "a resumed run has other parameters ($want)"; fi
# A signal to one rank ends all of them, with its status.
for signal in TERM INT; do
    start "$mpi" 3 sh "$temp/rank" "$temp/$signal" "$signal" "${train[@]}" --checkpoint "$temp/$signal" --checkpoint-every 5 || true
    cat "$temp/out" "$temp/err" >"$temp/both"
    if [ "$(grep -cE '^status (143|130)$' "$temp/both")" != 3 ]; then fail "SIG$signal to one rank: $(grep '^status' "$temp/both")"; fi
    grep -q "^status $((128 + $(kill -l $signal)))\$" "$temp/both" || fail "SIG$signal: no rank says so"
    [ "$(grep -c 'as another rank got a signal' "$temp/err")" = 2 ] || fail "SIG$signal: the others do not say why"
done
# A rank that ends before it calls MPI, while the others wait in MPI_Init, which has no deadline.
# Launchers end the others when the first one leaves.
cat >"$temp/early" <<'END'
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then exit 0; fi
status=0
"$@" || status=$?
echo "status $status"
END
for mpi in $(mpis); do
    start "$mpi" 3 sh "$temp/early" "$ferry" train linear --dist auto --dist-deadline 5 || true
    grep -q '^status 5$' "$temp/out" || fail "$mpi: exit status after a rank that ended before MPI_Init"
    grep -q 'ferry: RANK_LOST: group_open: MPI_Init has waited for 5 s for all ranks' "$temp/err" || fail "$mpi: a rank that ended before MPI_Init"
done
# A rank that beats and makes no call: it opens a pipe that has no reader.
mkfifo "$temp/events.1"
if start "$mpi" 2 "$ferry" train linear --dist auto --dist-deadline 10 --record "$temp/events"; then fail "a rank that makes no call"; fi
grep -q 'ferry: RANK_LOST: rank 1 (host .* took no part in .* within 10 s' "$temp/err" || fail "--dist-deadline"
if "$ferry" train lenet --dist-deadline 3 2>"$temp/err"; then fail "--dist-deadline without --dist"; fi
echo "ok: ferry train, status 5, resumed"
