#!/usr/bin/env bash
# `ferry watch`: the figures of a running process, as text and as JSON; processes that have ended,
# that share nothing, and pages that are not this user's or no pages. Any `ferry watch` of this user
# removes pages of ended processes, also one of another run of this test. Usage: test_watch.sh BUILD_DIR
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
[ -w /dev/shm ] || skip "no /dev/shm to share figures in"

pids=()
# shellcheck disable=SC2317  # the end of the test calls it
clean_up() { kill -9 "${pids[@]}" 2>/dev/null; }
# Has the process shared figures? Its page begins with zeros until then.
# shellcheck disable=SC2317  # wait_until calls it
shares() { [ "$(head -c 8 "$page" 2>/dev/null | tr -d '\0')" ]; }
# start OPTION...: a process that shares its figures; its number is $pid, its page $page.
start() {
    FERRY_WATCH=1 "$ferry" experiment roundtrip --device sim:0 --size 16 "$@" >"$work/run" 2>&1 &
    pid=$!
    pids+=("$pid")
    page=/dev/shm/ferry-watch-$pid
    wait_until shares || fail "the process shares nothing: $(cat "$work/run")"
}

prints "usage: ferry watch [PID|FILE]" watch --help
expect 0 watch

start --iters 100000000
prints "$pid" watch
[ "$(stat -c '%a %u' "$page")" = "600 $(id -u)" ] || fail "the page has mode and owner $(stat -c '%a %u' "$page")"
expect 0 watch "$pid" --once --interval-ms 300
silent err
says out "process $pid"
matches out '^ +upload +[0-9]' '^ +sim:0 +[0-9]'
if grep -q $'\033' "$work/out"; then fail "escapes without a terminal"; fi
expect 0 watch "$page" --json --interval-ms 300
says out "\"watch\": $pid" '"ended": false' '"direction": "download"' '"requests_per_s": ' '"device": "sim:0"' '"last_refusals": ['
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not d["requests_per_s"] > 0)' "$work/out" ||
        fail "the process makes no requests"
fi
prints "$pid" watch

# Pages that are not to be read.
cp "$page" "$work/page"
chmod 600 "$work/page"
expect 0 watch "$work/page" --once --interval-ms 100
chmod 644 "$work/page"
refuses 1 "mode 644, not 600" watch "$work/page" --once
chmod 600 "$work/page"
ln -s "$work/page" "$work/link"
refuses 1 "cannot open" watch "$work/link" --once
head -c 100 "$work/page" >"$work/short"
head -c 100000 /dev/zero >"$work/zeros"
chmod 600 "$work/short" "$work/zeros"
refuses 1 "it has 100 bytes" watch "$work/short"
refuses 1 "no page of this version" watch "$work/zeros"
expect 1 watch "$work"
expect 1 watch "$work/none"
if [ "$(id -u)" -eq 0 ]; then
    chown 65534 "$work/page"
    refuses 1 "belongs to user 65534, not to you" watch "$work/page"
else
    echo "skipped: only root can make a file of another user"
fi

# A process that was killed is reported, and its page removed.
kill -9 "$pid"
wait "$pid" 2>/dev/null
pids=()
[ "$(id -u)" -eq 0 ] && chown "$(id -u)" "$work/page"
prints "process $pid has ended; its last figures:" watch "$work/page" --interval-ms 200
[ ! -e "$page" ] || fail "the page of a killed process stays"
# The reason why output is lost is that of the write, not of a later call.
if [ -c /dev/full ]; then
    "$ferry" watch "$work/page" --interval-ms 100 >/dev/full 2>"$work/err" && fail "watch >/dev/full succeeds"
    says err "IO: cannot write to standard output: No space left"
fi
refuses 1 "process $pid has ended" watch "$pid"

# A page whose number another process has by now is of an ended one.
cp "$work/page" "$work/other" # of a process that was killed
chmod 600 "$work/other"
printf '%b' "\\x$(printf %02x $(($$ & 255)))\\x$(printf %02x $(($$ >> 8 & 255)))\\x$(printf %02x $(($$ >> 16 & 255)))" |
    dd of="$work/other" bs=1 seek=16 conv=notrunc 2>/dev/null
prints "process $$ has ended" watch "$work/other" --interval-ms 100
cp "$work/other" "$work/many"
printf '\377\377\377\377\377\377\377\377' | dd of="$work/many" bs=1 seek=184 conv=notrunc 2>/dev/null # refusals
expect 0 watch "$work/many" --once --interval-ms 100
cp "$work/other" "/dev/shm/ferry-watch-$$"
chmod 600 "/dev/shm/ferry-watch-$$"
expect 0 watch
[ ! -e "/dev/shm/ferry-watch-$$" ] || fail "a page of an ended process with the number of another one stays"

# One that ends while it is watched, too; its page is gone.
FERRY_WATCH=1 "$ferry" train linear --device sim:0 --epochs 1000000 >"$work/run" 2>&1 &
pid=$! page=/dev/shm/ferry-watch-$!
pids+=("$pid")
wait_until shares
wait_until grep -q '^epoch' "$work/run"
"$ferry" watch "$pid" --interval-ms 100 >"$work/out" 2>"$work/err" &
watcher=$!
wait_until grep -q "^process $pid" "$work/out"
kill -INT "$pid" # ends in order
wait $watcher || fail "ferry watch: exit status $?: $(cat "$work/err")"
says out "has ended; its last figures:"
wait "$pid"
pids=()
[ ! -e "$page" ] || fail "a process that exits leaves its page"

# A process without the variable shares nothing.
"$ferry" experiment roundtrip --device sim:0 --size 16 --iters 100000000 >/dev/null 2>&1 &
pids+=($!)
refuses 1 "start it with FERRY_WATCH=1" watch $! --once
FERRY_WATCH=maybe "$ferry" info >/dev/null 2>"$work/err"
[ $? -eq 2 ] || fail "FERRY_WATCH=maybe is no error"
says err "FERRY_WATCH"
