#!/usr/bin/env bash
# Compares the binary interface of a build with the recorded one, or records it.
#   scripts/abi.sh check|record [BUILD]
# `check` accepts what old programs do not notice: new functions, fields behind the end of a struct
# with struct_size, enumerators before a _COUNT. It prints all other changes and fails.
# `record` writes tests/abi/*.abi: before a release, and where a change that breaks is meant.
# tests/abi/interface.py has their format and the comparison. Macros are not in it.
# Tables of plugins (fy_backend_t) are not in it: no function of the library takes one.
# BUILD (default: build/dev) has debug information and no sanitizer. Exit status 77: abidw or
# python3 is missing, or BUILD is of no use for this.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command=${1:-} build=${2:-build/dev}
case "$command" in
check | record) ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
skip() { echo "skipped: $1" && exit 77; }
command -v abidw >/dev/null || skip "no abidw here (Debian: abigail-tools)"
command -v python3 >/dev/null || skip "no python3 here"
[ -e "$build/lib/libferry.so" ] || skip "no $build/lib/libferry.so"
grep -q '\.debug_info' <<<"$(readelf -SW "$build/lib/libferry.so")" || skip "$build has no debug information"
if grep -Eq 'NEEDED.*(asan|tsan|ubsan)' <<<"$(readelf -dW "$build/lib/libferry.so")"; then skip "$build is built with a sanitizer"; fi

status=0 below=()
for library in libferry libferry_train libferry_dist; do
    if [ ! -e "$build/lib/$library.so" ]; then continue; fi
    python3 tests/abi/interface.py "$command" "$build/lib/$library.so" "tests/abi/$library.abi" "${below[@]}" || status=1
    below+=("tests/abi/$library.abi")
done
if [ $status -ne 0 ]; then
    echo "Programs that were built before this change would not work. If it is meant: scripts/abi.sh record, and say so in CHANGELOG.md"
fi
exit $status
