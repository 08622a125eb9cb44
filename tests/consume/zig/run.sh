#!/usr/bin/env bash
# Builds and runs a program in Zig against a build of Ferry. Zig is PyPI's package ziglang, which
# is installed into a folder of its own. Usage: tests/consume/zig/run.sh BUILD FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "${1:?usage: run.sh BUILD FOLDER}") folder=$(realpath -m "${2:?usage: run.sh BUILD FOLDER}")
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check 'ziglang==0.17.1'
zig() { "$folder/bin/python" -m ziglang "$@"; }
cp "$here/main.zig" "$folder/"
cd "$folder"
echo '#include <ferry/ferry.h>' >all.h
zig translate-c -lc -I"$here/../../../include" all.h >ferry.zig
zig build-exe main.zig -lc -L"$build/lib" -lferry -rpath "$build/lib"
./main
echo "built and run by zig $(zig version)"
