#!/usr/bin/env bash
# In a setuid program, variables that name files to load or to write count as unset. Needs root, to
# make such a program and to run it as another user. Usage: test_setuid.sh BUILD_DIR.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

[ "$(id -u)" -eq 0 ] || skip "making a setuid program needs root"
needs_command setpriv
export OMP_WAIT_POLICY=passive
! grep -q libasan <<<"$(ldd "$ferry")" ||
    skip "AddressSanitizer looks for leaks by tracing, which a setuid process does not allow"
cp "$ferry" "$work/ferry"
mkdir "$work/out.d"
chmod 755 "$work"
chmod 1777 "$work/out.d"
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
# honours VARIABLE: succeeds if the program follows the variable, which names a file in $work/out.d.
# Its streams are in $work/out.
made=$work/out.d/made
mkdir -m 755 "$work/out.d/programs" "$work/out.d/plugins"
printf '#!/bin/sh\necho made >"%s"\n' "$made" >"$work/out.d/programs/gnuplot"
chmod 755 "$work/out.d/programs/gnuplot"
roundtrip="experiment roundtrip --size 16 --iters 2 --device"
honours() {
    local variable=$1 value=$made command="$roundtrip sim:0" sign=$made
    case $variable in
    FERRY_SNAPSHOT_ON_OOM) command="experiment roundtrip --size 1000 --iters 2 --device sim:0?limit=64KiB" ;;
    FERRY_PLUGIN_PATH) value=$work/out.d/plugins command="$roundtrip planted:0" sign= ;;
    FERRY_DATA) value=$work/out.d/data command="train mlp --device host --limit-samples 64 --max-steps 1" sign= ;;
    PATH) value=$work/out.d/programs command="experiment minibatch --device sim:0 --runs gd --plot @/out.d/plot.svg" ;;
    FERRY_CUDA_DRIVER) command="info" sign= ;;
    esac
    rm -f "$made"
    split "$command"
    as_nobody /usr/bin/env "$variable=$value" "$work/ferry" "${words[@]}" >"$work/out" 2>&1
    if [ "$sign" ]; then [ -e "$sign" ]; else grep -qF "$value" "$work/out"; fi
}
variables="FERRY_RECORD FERRY_SNAPSHOT_ON_OOM FERRY_PLUGIN_PATH FERRY_DATA PATH"
[ -e "$(dirname "$ferry")/../lib/ferry/libferry_cuda.so" ] && variables+=" FERRY_CUDA_DRIVER"
chmod 755 "$work/ferry"
as_nobody "$work/ferry" $roundtrip sim:0 >"$work/out" 2>&1 ||
    skip "user 65534 cannot run the program: $(head -c 200 "$work/out")"
for variable in $variables; do
    honours "$variable" || fail "an ordinary program does not do as $variable says: $(head -c 300 "$work/out")"
done
chown 1 "$work/ferry"
chmod 4755 "$work/ferry"
# Where the file system or the container ignores the bit (nosuid, no_new_privs), nothing can be
# tested.
cp "$(command -v id)" "$work/id"
chown 1 "$work/id"
chmod 4755 "$work/id"
[ "$(as_nobody "$work/id" -u)" = 1 ] || skip "this machine ignores the setuid bit of files in $work"
as_nobody "$work/ferry" $roundtrip sim:0 >"$work/out" 2>&1 || fail "the setuid program fails: $(head -c 200 "$work/out")"
for variable in $variables; do
    if honours "$variable"; then fail "a setuid program does as $variable says: $(head -c 300 "$work/out")"; fi
done

# Variables that need a card are read in the same way, and so is every variable that
# docs/environment.md lists as one that names a file.
# shellcheck disable=SC2016
listed=$(sed -n '/^Variables that name a file/,/^$/p' "$root/docs/environment.md" | grep -o '[`][A-Z_]*[`]' | tr -d '`')
[ "$(wc -w <<<"$listed")" -ge 9 ] || fail "docs/environment.md lists only: $listed"
for variable in $listed; do
    grep -rqF "fy__env_file(\"$variable\")" "$root"/{runtime,alloc,backends,tools} || fail "$variable is not read with fy__env_file"
    if grep -rF "fy__env_value(\"$variable\")" "$root"/{runtime,alloc,backends,tools}; then fail "$variable is read in setuid programs"; fi
done
