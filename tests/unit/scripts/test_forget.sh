#!/usr/bin/env bash
# The next run of CMake notices installed, moved and removed things: cmake/forget.cmake in a small
# project; and each search of Ferry's build uses it. Usage: test_forget.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
# configured TOOL FOLDER [OPTION...]: what CMake finds
configured() {
    cmake -S "$work" -B "$work/build" "${@:3}" >"$work/out" 2>&1 || fail "cmake: $(cat "$work/out")"
    grep -qxF -- "-- found $1 $2" "$work/out" || fail "not '$1' and '$2', but: $(grep found "$work/out")"
}
# installed FOLDER
installed() { mkdir -p "$work/$1" && touch "$work/$1"/{head.h,tool} && chmod +x "$work/$1/tool"; }

cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(small NONE)
include("$root/cmake/forget.cmake")
ferry_find(program TOOL tool PATHS "$work/one" "$work/two" NO_DEFAULT_PATH)
ferry_find(path FOLDER head.h PATHS "$work/one" "$work/two" NO_DEFAULT_PATH)
message(STATUS "found \${TOOL} \${FOLDER}")
END
configured TOOL-NOTFOUND FOLDER-NOTFOUND
installed two
configured "$work/two/tool" "$work/two"
installed one # the first find is kept while it is there
configured "$work/two/tool" "$work/two"
rm "$work/two"/*
configured "$work/one/tool" "$work/one"
configured /nowhere/tool "$work/one" -DTOOL=/nowhere/tool
rm "$work/one"/*
configured TOOL-NOTFOUND FOLDER-NOTFOUND

searches() { grep -rnE --include='*.cmake' --include=CMakeLists.txt "^ *$1\\(" "$root"/{cmake,python,tests}; }
if searches 'find_(program|path|library)'; then fail "searches without ferry_find"; fi
count=$(searches ferry_find | wc -l)
[ "$count" -gt 10 ] || fail "only $count searches"
