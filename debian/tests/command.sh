#!/usr/bin/env bash
# The installed command: devices, an experiment, its manual page.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
ferry info >"$work/info"
grep -q 'sim:0' "$work/info" || fail "ferry info lists no sim:0: $(cat "$work/info")"
ferry experiment roundtrip --device sim:0 --json >"$work/json"
grep -q '"upload_bytes"' "$work/json" || fail "the experiment printed: $(head -c 300 "$work/json")"
page=/usr/share/man/man1/ferry.1.gz
if [ -e "$page" ]; then gzip -dc "$page" | grep -q '^\.TH FERRY 1' || fail "$page is not the manual page"; fi
