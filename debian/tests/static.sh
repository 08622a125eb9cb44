#!/usr/bin/env bash
# The README's program, linked to the installed archives as docs/linking.md says, also with -flto.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
readme_program
for option in -O2 '-O2 -flto'; do
    for package in ferry ferry-train; do
        # shellcheck disable=SC2046,SC2086  # one word per option is meant
        cc -std=c11 $option "$work/quick.c" $(pkg-config --static --cflags --libs $package | sed -E 's/-l(ferry\w*)/-l:lib\1.a/g') -o "$work/quick"
        if readelf -dW "$work/quick" | grep 'NEEDED.*libferry'; then fail "$package: it needs a shared library of Ferry"; fi
        prints_w "$work/quick"
    done
done
