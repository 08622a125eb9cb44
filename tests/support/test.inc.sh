# What shell tests share; sourced with the build folder as its argument. $root: the sources; $here:
# the test's folder; $build; $work: a folder that is deleted at the end; `fail`. The test fails if
# `fail` was called, or if its last command or `exit` has another status than 0.
# shellcheck shell=bash disable=SC2034  # variables: read by who sources it
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath -m "$1")
work=$(mktemp -d)
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# skip REASON: the test cannot run here.
skip() {
    echo "skipped: $*"
    exit 77
}
# needs FILE...: of the build
needs() {
    local file
    for file in "$@"; do [ -e "$build/$file" ] || skip "$build/$file is not built"; done
}
# needs_command NAME...
needs_command() {
    local name
    for name in "$@"; do command -v "$name" >/dev/null || skip "there is no $name"; done
}
# split TEXT: sets $words, in which @ is $work, whose path may have spaces
split() {
    read -ra words <<<"$1"
    words=("${words[@]//@/$work}")
}
# Before $work is deleted; a test may define its own.
clean_up() { :; }
# shellcheck disable=SC2317  # the trap calls it
finish() {
    local status=$?
    clean_up
    rm -rf "$work"
    if [ $failures -ne 0 ]; then exit 1; fi # also of a test that then skips
    if [ $status -ne 0 ]; then exit $status; fi
    echo ok
}
trap finish EXIT
