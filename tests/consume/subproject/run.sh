#!/usr/bin/env bash
# Builds Ferry as a part of an application (add_subdirectory), runs it with the shared library and
# with the archive, and checks that Ferry installs nothing and adds no tests.
# Usage: tests/consume/subproject/run.sh [FOLDER]      the build folder, kept; else a temporary one
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -gt 0 ]; then
    mkdir -p "$1" && build=$(cd "$1" && pwd)
else
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi

ferry=$(cd "$here/../../.." && pwd)
if ! { cmake -S "$here" -B "$build" -DCMAKE_BUILD_TYPE=Release -DFERRY_SOURCE="$ferry" -DFERRY_CUDA=OFF &&
    cmake --build "$build" -j "${FERRY_JOBS:-$(nproc)}"; } >"$build/log" 2>&1; then
    tail -n 40 "$build/log"
    exit 1
fi
"$build/with_ferry"
"$build/with_ferry_static"
if readelf -dW "$build/with_ferry_static" | grep 'NEEDED.*libferry'; then exit 1; fi
rm -rf "$build/installed"
cmake --install "$build" --prefix "$build/installed" >>"$build/log"
installed=$(cd "$build/installed" && find . -type f)
if [ "$installed" != ./bin/with_ferry ]; then echo "installed by the application: $installed" && exit 1; fi
if ctest --test-dir "$build" -N | grep 'Test *#'; then echo "Ferry's tests are in the application" && exit 1; fi
echo "subproject: the application ran with libferry.so and with libferry.a"
