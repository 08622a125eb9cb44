#!/usr/bin/env bash
# examples/framework trains LeNet to the bits of `ferry train lenet`, on the same files, and its
# allocator sees every byte (it fails otherwise). It includes no private header. Usage: BUILD-FOLDER
set -euo pipefail
build=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
program=$build/bin/framework
[ -x "$program" ] || { echo "SKIP: no examples in this build" && exit 77; }
# Of Ferry's files it reads include/ and the examples' own only.
read_files=$("${CC:-cc}" -MM -Iinclude -I. examples/framework/framework.c)
private=$(tr ' ' '\n' <<<"$read_files" | grep -vE '^(include/ferry/.*|examples/.*|framework.o:|\\|)$' || true)
[ -z "$private" ] || { echo "private headers are included: $private" && exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# MNIST's format: 64 images of the bytes of this script, again and again, and their labels
for set in train t10k; do
    printf '\0\0\x8\x3\0\0\0\x40\0\0\0\x1c\0\0\0\x1c' >"$folder/$set-images-idx3-ubyte"
    for _ in {1..64}; do cat "$0"; done | head -c 50176 >>"$folder/$set-images-idx3-ubyte" || true
    printf '\0\0\x8\x1\0\0\0\x40' >"$folder/$set-labels-idx1-ubyte"
    for i in {0..63}; do printf '%b' "\\x$((i * 7 % 10))"; done >>"$folder/$set-labels-idx1-ubyte"
done
"$build/bin/ferry" train lenet --data "$folder" --device sim:0 --batch 16 --epochs 2 --save "$folder/ferry" >"$folder/log" 2>&1 ||
    { cat "$folder/log" && exit 1; }
"$program" "$folder" "$folder/framework" sim:0
header=$(od -An -tu8 -N8 "$folder/ferry")
tail -c +$((header + 9)) "$folder/ferry" >"$folder/weights"
cmp "$folder/weights" "$folder/framework"
echo "$(stat -c %s "$folder/framework") bytes of weights are the same"
