#!/usr/bin/env bash
# The installed examples compile against the installed headers, and the first one runs.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
folder=/usr/share/doc/ferry-doc
count=0
for source in "$folder"/examples/*.c "$folder"/examples/framework/*.c; do
    # shellcheck disable=SC2046  # one word per option is meant
    cc -std=gnu11 -I"$folder" "$source" -o "$work/$(basename "$source" .c)" $(pkg-config --cflags --libs ferry-train) -lm -pthread ||
        fail "$source does not compile"
    count=$((count + 1))
done
[ "$count" -ge 10 ] || fail "only $count examples are installed"
"$work/01_linear" | grep '^traffic: ' || fail "01_linear prints no traffic"
