#!/usr/bin/env bash
# In which folders a plugin for an MPI is looked for: beside libferry_dist, also if the loader found
# that by a relative name, or in $FERRY_PLUGIN_PATH; never in the current folder.
# Usage: test_folders.sh BUILD_DIR.
set -euo pipefail
build=$(realpath "${1:?usage: test_folders.sh BUILD_DIR}")
temp=$(realpath "$(mktemp -d)")
trap 'rm -rf "$temp"' EXIT
unset FERRY_PLUGIN_PATH
export FERRY_MPI=openmpi
name=libferry-mpi-openmpi.so plugin=$build/lib/tests/libforeign.so
mkdir -p "$temp"/own/lib/ferry "$temp"/other/lib/ferry "$temp/plugins"
cp "$build"/lib/libferry_dist.so.* "$temp/own/lib"
cd "$temp/own"
# says PATTERN: so the program says after a change to the folder that has a file at lib/ferry.
says() {
    out=$(LD_LIBRARY_PATH=lib "$build/bin/tests/folders" ../other)
    grep -qF "$1" <<<"$out" || { echo "failed: not '$1', but: $out" && exit 1; }
}
cp "$plugin" "$temp/other/lib/ferry/$name"
says "no plugin for openmpi: no $name in $temp/own/lib/ferry"
cp "$plugin" "$temp/own/lib/ferry/$name"
says "the test's plugin ran"
FERRY_PLUGIN_PATH=lib/ferry says "FERRY_PLUGIN_PATH=lib/ferry was skipped: no folder in it is absolute"
FERRY_PLUGIN_PATH=$temp/plugins says "no $name in $temp/plugins"
mkfifo "$temp/plugins/$name" # opening it would wait for its writer
FERRY_PLUGIN_PATH=$temp/plugins says "$temp/plugins/$name is no regular file"
mkdir "$temp/more"
cp "$build/lib/libferry_dist.so" "$temp/more/$name"
FERRY_PLUGIN_PATH=$temp/more says "is no plugin of this version: it has no symbol fyd_transport_open_2"
cp "$build/lib/tests/libforeign_old.so" "$temp/more/$name"
FERRY_PLUGIN_PATH=$temp/more says "is no plugin of this version: it has no symbol fyd_transport_open_2"
cp "$plugin" "$temp/own/own.so" && mv "$temp/own/own.so" "$temp/more/$name"
FERRY_PLUGIN_PATH=lib/ferry:$temp/plugins:$temp/more says "the test's plugin ran"
echo "ok: folders of plugins"
