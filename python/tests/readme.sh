#!/usr/bin/env bash
# Runs the example of python/README.md and compares what it prints with what the page has.
# Usage: python/tests/readme.sh PYTHON
set -euo pipefail
page=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/README.md
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# The first block is the program, the second one the session with its output.
awk '/^```/ { n++; next } n == 1' "$page" >"$temp/fit.py"
awk '/^```/ { n++; next } n == 3 && !/^\$/' "$page" >"$temp/expected"
cd "$temp"
"$1" -B fit.py >printed
diff -u expected printed && echo "python/README.md: its example prints what the page has"
