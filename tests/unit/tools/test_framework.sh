#!/usr/bin/env bash
# examples/framework trains LeNet to the bits of `ferry train lenet`, on the same files, and its
# allocator sees every byte (it fails otherwise). It includes no private header. Usage: BUILD-FOLDER
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
set -e
needs bin/framework
cd "$root"
# Of Ferry's files it reads include/ and the examples' own only.
read_files=$("${CC:-cc}" -MM -Iinclude -I. examples/framework/framework.c)
private=$(tr ' ' '\n' <<<"$read_files" | grep -vE '^(include/ferry/.*|examples/.*|framework.o:|\\|)$' || true)
[ -z "$private" ] || { echo "private headers are included: $private" && exit 1; }
# MNIST's format: 64 images of the bytes of this script, again and again, and their labels
for set in train t10k; do
    printf '\0\0\x8\x3\0\0\0\x40\0\0\0\x1c\0\0\0\x1c' >"$work/$set-images-idx3-ubyte"
    for _ in {1..64}; do cat "$0"; done | head -c 50176 >>"$work/$set-images-idx3-ubyte" || true
    printf '\0\0\x8\x1\0\0\0\x40' >"$work/$set-labels-idx1-ubyte"
    for i in {0..63}; do printf '%b' "\\x$((i * 7 % 10))"; done >>"$work/$set-labels-idx1-ubyte"
done
"$build/bin/ferry" train lenet --data "$work" --device sim:0 --batch 16 --epochs 2 --save "$work/ferry" >"$work/log" 2>&1 ||
    { cat "$work/log" && exit 1; }
"$build/bin/framework" "$work" "$work/framework" sim:0
header=$(od -An -tu8 -N8 "$work/ferry")
tail -c +$((header + 9)) "$work/ferry" >"$work/weights"
cmp "$work/weights" "$work/framework"
echo "$(stat -c %s "$work/framework") bytes of weights are the same"
