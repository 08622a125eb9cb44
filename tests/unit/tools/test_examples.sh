#!/usr/bin/env bash
# Every example that a subcommand's --help prints runs unchanged, one after the other, in an empty
# folder; every subcommand has one.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

export OMP_WAIT_POLICY=passive
# The example of mpirun: as any user, more ranks than cores (Open MPI 4, 5), no search for networks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
has_mpi=0
if command -v mpirun >/dev/null && compgen -G "$(dirname "$ferry")/../lib/ferry/libferry-mpi-*.so" >/dev/null; then has_mpi=1; fi
PATH=$(dirname "$ferry"):$PATH
cd "$work" || exit 1
yes 'It was the best of times,' | head -c 1000 >book.txt
commands=(info train generate plan ledger timeline advise report predict watch run memory replay calibrate compare)
for name in batchsize link minibatch parallel roundtrip speedups vectorize; do commands+=("experiment $name"); done
for name in alloc copy dispatch gemm train; do commands+=("bench $name"); done
for command in "${commands[@]}"; do
    "$ferry" $command --help >"$work/help" || fail "ferry $command --help exits with $?"
    sed -n '/^examples:$/,$ s/^  //p' "$work/help" >"$work/examples"
    [ -s "$work/examples" ] || fail "ferry $command --help has no example"
    while read -r line; do
        if [[ $line == mpirun* && $has_mpi = 0 ]]; then
            echo "skipped: '$line': no mpirun, or no plugin for MPI"
            continue
        fi
        # MPI leaves memory unfreed in plugins that it no longer has loaded.
        if [[ $line == mpirun* ]]; then leaks=0; else leaks=1; fi
        # `ferry watch` behind `sleep 1`: on a machine with a high load its process may start later.
        for _ in {1..60}; do
            LSAN_OPTIONS=detect_leaks=$leaks TMPDIR=$work OMPI_MCA_btl_vader_backing_directory=$work timeout 1200 bash -c "$line" >"$work/out" 2>"$work/err" </dev/null
            status=$?
            grep -q 'shares no figures\|has ended, or never was' "$work/err" || break
        done
        if [ "$status" != 0 ]; then
            fail "'$line' does not run: $(head -c 300 "$work/err")"
        fi
    done <"$work/examples"
done
for command in $("$ferry" --help | sed -n '/^commands:/,/^$/ s/^  \([a-z]*\) .*/\1/p'); do
    case " ${commands[*]} " in
    *" $command "*) ;;
    *) fail "no example of 'ferry $command' is tested" ;;
    esac
done
