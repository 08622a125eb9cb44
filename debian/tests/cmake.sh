#!/usr/bin/env bash
# The README's program by find_package, shared and static.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
readme_program
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(quick LANGUAGES C)
find_package(ferry 0.1 CONFIG REQUIRED COMPONENTS train static)
foreach(kind ferry train dist ferry_static train_static)
    add_executable(${kind} quick.c)
    target_link_libraries(${kind} PRIVATE ferry::${kind})
endforeach()
END
if ! { cmake -S "$work" -B "$work/build" && cmake --build "$work/build"; } >"$work/log" 2>&1; then
    cat "$work/log" && fail "it does not build"
fi
for program in ferry train dist ferry_static train_static; do prints_w "$work/build/$program"; done
