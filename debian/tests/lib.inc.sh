# What the tests of the packages share: a folder to work in, and the program of README.md. Sourced in
# the root of the source package; a test prints its reason and exits with 1 if it fails.
# shellcheck shell=bash disable=SC2034  # read by the tests
set -euo pipefail
source_folder=$PWD
work=$(mktemp -d "${AUTOPKGTEST_TMP:-/tmp}/ferry.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" && exit 1; }
# readme_program: quick.c in $work.
readme_program() {
    awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$work/quick.c"
    grep -q '^int main' "$work/quick.c" || fail "README.md has no program"
}
# prints_w PROGRAM: runs it, and compares its output with the README's.
prints_w() {
    local printed
    printed=$("$1") || fail "$1 exits with $?"
    [ "$printed" = 'sim:0: w = 3.0000' ] || fail "$1 prints: $printed"
}
