#!/usr/bin/env bash
# `ferry run`: a program with recording on, then the advice; exit statuses; files; usage.
# Usage: test_run.sh BUILD_DIR.
# shellcheck disable=SC2016  # the programs are expanded by their own shells
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# The program's output, then the advice; no file stays.
expect 0 run --advise "$ferry" experiment roundtrip --device sim:0 --iters 10
says out "  copies   "
says out "FA01  the same bytes are uploaded in each step"
[ "$(grep -n "copies" "$work/out" | head -n 1 | cut -d : -f 1)" -lt "$(grep -n "FA01" "$work/out" | head -n 1 | cut -d : -f 1)" ] ||
    fail "the advice comes before the program's output"
expect 0 run --advise --prove --all -- "$ferry" experiment roundtrip --device sim:0 --iters 10
says out "proved   "
[ -z "$(ls -A "$TMPDIR")" ] || fail "a file stays behind: $(ls -A "$TMPDIR")"

# The program's environment is that of the command.
FERRY_WATCH=1 expect 0 run --record "$work/run.jsonl" bash -c 'echo "$FERRY_WATCH ${OMP_WAIT_POLICY-unset} ${FERRY_RECORD##*/}"; exec "$0" info' "$ferry"
says out "1 ${OMP_WAIT_POLICY-unset} run.jsonl"
[ -s "$work/run.jsonl" ] || fail "--record keeps no events"

# The exit status is the program's; what it recorded is advised about.
expect 7 run --advise bash -c '"$0" experiment roundtrip --device sim:0 --iters 10; exit 7' "$ferry"
says out "FA01"
expect 143 run --advise bash -c 'kill -TERM $$'
says err "ended by signal 15"
expect 127 run --advise "$work/nowhere"
says err "cannot run"
expect 126 run --advise "$work"
says err "cannot run"
silent out

# A program that records nothing.
expect 1 run --advise true
says err "true recorded nothing"
expect 3 run --advise bash -c 'exit 3'
says err "bash recorded nothing"
expect 1 run --advise --record "$work/run.jsonl" true
says err "true recorded nothing" # of an older run
expect 1 run --advise --record "$work/%p.jsonl" true
says err "has no %p"

# Usage; files that cannot be written.
expect 0 run --help
says out "usage: ferry run --advise [options] CMD ARGS"
expect 2 run
says err "which program?"
expect 2 run --advise
says err "which program?"
expect 2 run true
says err "for what?"
expect 2 run --prove true
expect 2 run --advice true
says err "advise"
expect 2 run --record
expect 1 run --advise --record "$work/no/where" true
says err "IO"
TMPDIR=$work/nowhere expect 1 run --advise true
says err "cannot make a file in $work/nowhere"
[ -z "$(ls -A "$TMPDIR")" ] || fail "a file stays behind: $(ls -A "$TMPDIR")"

[ $failures -eq 0 ] && echo "ok"
exit $((failures != 0))
