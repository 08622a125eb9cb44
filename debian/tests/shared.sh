#!/usr/bin/env bash
# The README's program, linked to the installed shared library.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
readme_program
# shellcheck disable=SC2046  # one word per option is meant
cc -std=c11 -Wall -Wextra -Werror "$work/quick.c" -o "$work/quick" $(pkg-config --cflags --libs ferry)
prints_w "$work/quick"
readelf -dW "$work/quick" | grep -q 'NEEDED.*\[libferry\.so\.0\]' || fail "it is not linked to libferry.so.0"
# shellcheck disable=SC2046
cc -std=c11 "$work/quick.c" -o "$work/quick" -Wl,--no-as-needed $(pkg-config --cflags --libs ferry-train)
prints_w "$work/quick"
