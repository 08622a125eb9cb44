#!/usr/bin/env bash
# `ferry run`: a program with recording on, then the advice; exit statuses; files; usage.
# shellcheck disable=SC2016  # the programs are expanded by their own shells
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# The program's output, then the advice; no file stays.
prints "  copies   " run --advise "$ferry" experiment roundtrip --device sim:0 --iters 10
says out "FA01  the same bytes are uploaded in each step"
[ "$(grep -n "copies" "$work/out" | head -n 1 | cut -d : -f 1)" -lt "$(grep -n "FA01" "$work/out" | head -n 1 | cut -d : -f 1)" ] ||
    fail "the advice comes before the program's output"
prints "proved   " run --advise --prove --all -- "$ferry" experiment roundtrip --device sim:0 --iters 10
[ -z "$(ls -A "$TMPDIR")" ] || fail "a file stays behind: $(ls -A "$TMPDIR")"

# The program's environment is that of the command.
FERRY_WATCH=1 expect 0 run --record "$work/run.jsonl" bash -c 'echo "$FERRY_WATCH ${OMP_WAIT_POLICY-unset} ${FERRY_RECORD##*/}"; exec "$0" info' "$ferry"
says out "1 ${OMP_WAIT_POLICY-unset} run.jsonl"
[ -s "$work/run.jsonl" ] || fail "--record keeps no events"

# The exit status is the program's; what it recorded is advised about.
expect 7 run --advise bash -c '"$0" experiment roundtrip --device sim:0 --iters 10; exit 7' "$ferry"
says out "FA01"
refuses 143 "ended by signal 15" run --advise bash -c 'kill -TERM $$'
refuses 127 "cannot run" run --advise "$work/nowhere"
refuses 126 "cannot run" run --advise "$work"
silent out

# A program that records nothing.
refuses 1 "true recorded nothing" run --advise true
refuses 3 "bash recorded nothing" run --advise bash -c 'exit 3'
expect 1 run --advise --record "$work/run.jsonl" true
says err "true recorded nothing" # of an older run
refuses 1 "has no %p" run --advise --record "$work/%p.jsonl" true

# Usage; files that cannot be written.
prints "usage: ferry run --advise [options] CMD ARGS" run --help
refuses 2 "which program?" run
refuses 2 "which program?" run --advise
refuses 2 "for what?" run true
expect 2 run --prove true
refuses 2 "advise" run --advice true
expect 2 run --record
refuses 1 "IO" run --advise --record "$work/no/where" true
TMPDIR=$work/nowhere refuses 1 "cannot make a file in $work/nowhere" run --advise true
[ -z "$(ls -A "$TMPDIR")" ] || fail "a file stays behind: $(ls -A "$TMPDIR")"
