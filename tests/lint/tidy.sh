#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library's and the tools' sources. Usage: tests/lint/tidy.sh
# BUILD [FILE...] BUILD has a compile_commands.json. A clean file is not checked again until it or a
# header changes: BUILD/tidy/ lists clean files by the hash of the preprocessed source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=${1:?usage: tests/lint/tidy.sh BUILD [FILE...]}
shift
if ! command -v clang-tidy >/dev/null 2>&1; then echo "SKIP tidy: no clang-tidy here" && exit 0; fi
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
    mapfile -t files < <(find runtime alloc transfer ops backends train dist tools -name '*.c' -not -path 'backends/cuda/*' | LC_ALL=C sort)
fi

mkdir -p "$build/tidy"
# clang does not know options that only gcc has.
sed -E 's/ -(fprofile-update=atomic|Wduplicated-cond|Wlogical-op|fno-semantic-interposition|fno-tree-[a-z-]+|mtls-dialect=[a-z0-9]+|-coverage)//g; s/ -Werror//g; s/ -fopenmp//g' \
    "$build/compile_commands.json" >"$build/tidy/compile_commands.json"

check_file() {
    local file=$1 build=$2 key prelude=(--extra-arg=-include --extra-arg="$PWD/tests/lint/tidy_prelude.h")
    # The one source that defines functions which the prelude replaces by macros.
    if [ "$file" = runtime/base/fail.c ]; then prelude=(); fi
    if ! grep -q "\"[^\"]*/$file\"" "$build/tidy/compile_commands.json"; then return 0; fi
    key=$({ cat .clang-tidy tests/lint/tidy* "$file" && cc -E -D_GNU_SOURCE -I. -Iinclude "$file" 2>/dev/null; } | sha256sum | cut -c 1-32)
    if [ -e "$build/tidy/$key" ]; then return 0; fi
    if clang-tidy --quiet -p "$build/tidy" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-pragmas \
        "${prelude[@]}" "$file" \
        >"$build/tidy/$key.log" 2>/dev/null; then
        : >"$build/tidy/$key"
        rm -f "$build/tidy/$key.log"
    else
        sed "s|$PWD/||" "$build/tidy/$key.log"
        rm -f "$build/tidy/$key.log"
        return 1
    fi
}
export -f check_file
# shellcheck disable=SC2016  # $1 is the inner bash's
if printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I FILE bash -c 'check_file FILE "$1"' _ "$build"; then
    echo "PASS tidy (${#files[@]} files)"
else
    echo "FAIL tidy"
    exit 1
fi
