#!/usr/bin/env bash
# Compiles a CUDA kernel file, or copies what another build folder has compiled from the same
# contents. cuda.cmake calls it.
# Usage: compile-once.sh SHARED OUTPUT [LAUNCHER...] -- COMPILER FLAG... SOURCE
# Writes OUTPUT and, for Make and Ninja, OUTPUT.d. A shared result is SHARED/NAME/KEY.SUM:
# 1. KEY is the hash of all that a result depends on: the compiler's version, flags and variables;
#    name and content of each file that the compiler lists (-M) in this run. nvcc lists the files of
#    every architecture. Whole files are hashed: a preprocessed text has one architecture's lines.
# 2. A result is stored only if all files have the same contents after the compiler has run.
# 3. A result is stored only if the compiler printed nothing. So flags that make warnings errors
#    are no part of KEY.
# 4. A result has its name only when it is complete. SUM is its hash, which each reader checks.
# 5. Of each NAME the four results that were used last are kept.
set -euo pipefail
kept=4

output=$2
shared=$1/$(basename "$2")
shift 2
launcher=()
while [ "$1" != -- ]; do launcher+=("$1") && shift; done
shift

mkdir -p "$shared"
work=$(mktemp -d "$shared/new.XXXXXX")
trap 'rm -rf "$work"' EXIT

hash_of() { sha256sum | cut -c 1-64; }
contents() { xargs -0 sha256sum -- <"$work/files"; }

"$@" -M -MF "$output.d" -MT "$output"
# The names without the target and the escapes of Make.
sed -e '1s/^[^:]*://' -e 's/\\$//' -e $'s/\\\\ /\001/g' -e 's/\\#/#/g' -e 's/\$\$/$/g' "$output.d" |
    tr -s ' \001' '\n ' | grep . | tr '\n' '\0' >"$work/files"
contents >"$work/contents"
key=$({
    "$1" --version
    env | grep '^NVCC_' | LC_ALL=C sort || true
    printf '%s\n' "$PWD" "$@" | grep -vE '^-W(no-)?error'
    cat "$work/contents"
} | hash_of)

for found in "$shared/$key".*; do
    # Another build may remove it at any time.
    if cp "$found" "$work/result" 2>/dev/null && [ "$(hash_of <"$work/result")" = "${found##*.}" ]; then
        touch -c "$found"
        mv -f "$work/result" "$output"
        exit
    fi
    rm -f "$found"
done

# ccache hashes a preprocessed text, that of the first architecture.
cut -c 1-64 "$work/contents" >"$work/sums"
export CCACHE_EXTRAFILES=$work/sums${CCACHE_EXTRAFILES:+:$CCACHE_EXTRAFILES}
status=0
"${launcher[@]}" "$@" -c -o "$work/result" >"$work/printed" 2>&1 || status=$?
cat "$work/printed" >&2
if [ $status -ne 0 ]; then exit $status; fi
cp "$work/result" "$work/output"
mv -f "$work/output" "$output"
if [ ! -s "$work/printed" ] && contents 2>/dev/null | cmp -s - "$work/contents"; then
    mv -f "$work/result" "$shared/$key.$(hash_of <"$work/result")"
fi
# Files that another build removes meanwhile are no error.
{
    find "$shared" -maxdepth 1 -type f -printf '%T@ %p\0' | sort -zrn | tail -zn "+$((kept + 1))" | cut -zd ' ' -f 2- | xargs -0r rm -f --
    find "$shared" -maxdepth 1 -name 'new.*' -mmin +1440 -exec rm -rf {} +
} 2>/dev/null || true
