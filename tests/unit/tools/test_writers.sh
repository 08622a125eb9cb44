#!/usr/bin/env bash
# Every writer of complete files except profiles (test_cal.c), one row each, to every kind of
# target: a new file, a file, a link, a dangling link, a link to a link, a pipe, a device, a loop of
# links, a missing folder. Usage: test_writers.sh BUILD_DIR.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

cd "$work" || exit 1
export OMP_WAIT_POLICY=passive
"$ferry" experiment roundtrip --device sim:0 --size 16 --iters 1 --snapshot memory.json --record run.events >/dev/null 2>&1
# write NAME PLACE: runs the writer and returns its exit status.
write() {
    case $1 in
    weights) timeout 600 "$ferry" train linear --device host --epochs 1 --save "$2" ;;
    snapshot) timeout 600 "$ferry" experiment roundtrip --device sim:0 --size 16 --iters 1 --snapshot "$2" ;;
    page) timeout 600 "$ferry" report "$work/run.events" --out "$2" ;;
    picture) timeout 600 "$ferry" memory "$work/memory.json" --svg "$2" ;;
    esac >"$work/out" 2>"$work/err"
}
for writer in weights snapshot picture page; do
    rm -rf place && mkdir place && cd place || exit 1
    suffix=.json
    [ $writer = picture ] && suffix=.svg
    write $writer "new$suffix" || fail "$writer: a new file: $(head -c 200 "$work/err")"
    [ -s "new$suffix" ] || fail "$writer: no new file"
    echo old >"old$suffix"
    write $writer "old$suffix"
    if grep -qx old "old$suffix"; then fail "$writer: a file is not replaced"; fi
    echo old >target && ln -s target "link$suffix" && ln -s "$PWD/link$suffix" "second$suffix"
    for link in link second; do
        echo old >target
        write $writer "$link$suffix" || fail "$writer: $link: $(head -c 200 "$work/err")"
        [ -L "$link$suffix" ] || fail "$writer: $link is no link any more"
        ! grep -qx old target || fail "$writer: the target of $link is as it was"
    done
    ln -s later "dangling$suffix"
    write $writer "dangling$suffix" || fail "$writer: a link to nothing: $(head -c 200 "$work/err")"
    { [ -L "dangling$suffix" ] && [ -s later ]; } || fail "$writer: a link to nothing was replaced, or its target is not there"
    mkfifo "pipe$suffix"
    timeout 600 cat "pipe$suffix" >received &
    write $writer "pipe$suffix" || fail "$writer: a pipe: $(head -c 200 "$work/err")"
    wait
    { [ -p "pipe$suffix" ] && [ -s received ]; } || fail "$writer: the pipe is gone, or nothing came through it"
    ln -s /dev/null "null$suffix"
    write $writer "null$suffix" || fail "$writer: /dev/null: $(head -c 200 "$work/err")"
    [ -c /dev/null ] || { fail "$writer replaced /dev/null" && exit 1; }
    ln -s "b$suffix" "a$suffix" && ln -s "a$suffix" "b$suffix"
    if write $writer "a$suffix"; then fail "$writer: a loop of links is written to"; fi
    if write $writer "no/where$suffix"; then fail "$writer: a folder that is not there"; fi
    [ -z "$(find . -name '*.tmp' -o -name '*.part')" ] || fail "$writer left $(find . -name '*.tmp' -o -name '*.part')"
    cd "$work" || exit 1
done

# An output that is the input would replace it.
cd "$work" || exit 1
cp run.events kept.events
for command in "report run.events --out" "timeline run.events --out" "memory run.events --format pytorch --out" "predict run.events --csv"; do
    "$ferry" $command "$work/run.events" >"$work/out" 2>"$work/err" && fail "$command run.events replaces its input"
    grep -q "the file that is read" "$work/err" || fail "$command: $(head -c 200 "$work/err")"
    cmp -s run.events kept.events || fail "$command run.events changed its input"
done
