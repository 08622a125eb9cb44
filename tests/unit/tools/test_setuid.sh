#!/usr/bin/env bash
# In a setuid program the variables that name files to load or to write count as unset. Needs root, to make such a program and to run it as
# another user. Usage: test_setuid.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null; then
    echo "skipped: making a setuid program needs root and setpriv"
    exit 77
fi
export OMP_WAIT_POLICY=passive
cp "$ferry" "$work/ferry"
mkdir "$work/out.d"
chmod 755 "$work"
chmod 1777 "$work/out.d"
# run NAME: the program, as nobody; its record is $work/out.d/NAME.
run() {
    FERRY_RECORD=$work/out.d/$1 FERRY_PLUGIN_PATH=$work/out.d/plugins setpriv --reuid=65534 --regid=65534 --clear-groups \
        "$work/ferry" experiment roundtrip --device sim:0 --size 16 --iters 2 >"$work/out" 2>"$work/err"
}
chmod 755 "$work/ferry"
if ! run plain; then
    echo "skipped: user 65534 cannot run the program: $(head -c 200 "$work/err")"
    exit 77
fi
[ -s "$work/out.d/plain" ] || fail "an ordinary program wrote no record"
chown 1 "$work/ferry"
chmod 4755 "$work/ferry"
# Where the file system or the container ignores the bit (nosuid, no_new_privs), there is nothing to test.
cp "$(command -v id)" "$work/id"
chown 1 "$work/id"
chmod 4755 "$work/id"
if [ "$(setpriv --reuid=65534 --regid=65534 --clear-groups "$work/id" -u)" != 1 ]; then
    echo "skipped: this machine ignores the setuid bit of files in $work"
    exit 77
fi
run setuid || fail "the setuid program fails: $(head -c 200 "$work/err")"
[ ! -e "$work/out.d/setuid" ] || fail "a setuid program wrote the file that FERRY_RECORD names"

[ $failures -eq 0 ] && echo "ok"
exit $((failures != 0))
