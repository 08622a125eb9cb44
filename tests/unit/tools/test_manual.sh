#!/usr/bin/env bash
# docs/ferry.1 has exactly the commands of `ferry --help`, in that order, and the version.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
page=docs/ferry.1

expect 0 --help
sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$work/out" >"$work/commands"
sed -n '/^\.SH COMMANDS/,/^\.SH EXIT/s/^\.B \([a-z]*\)$/\1/p' "$page" >"$work/listed"
[ -s "$work/commands" ] || fail "no commands in the help"
diff "$work/commands" "$work/listed" || fail "$page has other commands than ferry --help"
expect 0 info --json
version=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' "$work/out" | sed -n 1p)
grep -q "^\.TH FERRY 1 \"\" \"ferry $version\"" "$page" || fail "$page is not of version $version"
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$page" >"$work/page" 2>"$work/warnings" || fail "groff refuses $page"
    [ ! -s "$work/warnings" ] || fail "groff: $(cat "$work/warnings")"
    grep -q 'ferry experiment roundtrip --device sim:0' "$work/page" || fail "an example of $page is not printed"
fi
