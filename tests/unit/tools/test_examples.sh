#!/usr/bin/env bash
# Every example that a subcommand's --help prints runs unchanged, one after the other, in an empty
# folder; every subcommand has one.
# Usage: test_examples.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

export OMP_WAIT_POLICY=passive
PATH=$(dirname "$ferry"):$PATH
cd "$work" || exit 1
yes 'It was the best of times,' | head -c 1000 >book.txt
commands=(info train generate plan ledger timeline advise report predict watch run memory replay calibrate compare)
for name in batchsize link minibatch parallel roundtrip speedups vectorize; do commands+=("experiment $name"); done
for name in alloc copy dispatch gemm train; do commands+=("bench $name"); done
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086 # two words
    "$ferry" $command --help >"$work/help" || fail "ferry $command --help exits with $?"
    sed -n '/^examples:$/,$ s/^  //p' "$work/help" >"$work/examples"
    [ -s "$work/examples" ] || fail "ferry $command --help has no example"
    while read -r line; do
        if ! timeout 240 bash -c "$line" >"$work/out" 2>"$work/err" </dev/null; then
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

[ $failures -eq 0 ] && echo "ok"
exit $((failures != 0))
