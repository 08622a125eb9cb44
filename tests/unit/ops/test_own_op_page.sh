#!/usr/bin/env bash
# The code of docs/ops.md, "Your own op", equals the example, character by character, and the
# example runs. On the host and in every order of a simulated device it computes, is refused by the
# hook, fails in the kernel, and continues. Usage: test_own_op_page.sh BUILD_DIR
set -uo pipefail
program=$(realpath -m "$1")/bin/examples/09_own_op
cd "$(dirname "$0")/../../.." || exit 1
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

blocks=0
while IFS= read -r -d '' block; do
    blocks=$((blocks + 1))
    case $(<examples/09_own_op.c) in
    *"$block"*) ;;
    *) fail "docs/ops.md: this block is not in examples/09_own_op.c word for word:"$'\n'"$block" ;;
    esac
done < <(awk '/^## / { here = /^## Your own op$/ }
              here && /^```c$/ { fenced = 1; next }
              fenced && /^```$/ { fenced = 0; printf "%c", 0; next }
              here && fenced' docs/ops.md)
[ "$blocks" -ge 3 ] || fail "docs/ops.md shows $blocks blocks of code under 'Your own op', not 3 or more"

if [ ! -x "$program" ]; then
    echo "skipped: $program is not built"
    [ $failures -eq 0 ] && exit 77
    exit 1
fi
for device in host sim:0 'sim:0?order=lazy' 'sim:0?order=random&seed=1' 'sim:0?order=random&seed=2'; do
    said=$("$program" "$device" 2>&1) || fail "$device: $said"
    for text in 'its sum is 21.1391' "UNSUPPORTED: mylib.swish: its kernel does not take this call on ${device%%\?*}: dense operands only" \
        'src0 [3x4 f32, strides 1 3]' 'mylib.swish: its kernel failed with BAD_VALUE: element 0 is no number' \
        '3. the gradient of its sum'$'\n''its sum is 13.0894' \
        'the first sum is still 21.1391'; do
        grep -qF -- "$text" <<<"$said" || fail "$device: '$text' is not in: $said"
    done
done
[ $failures -eq 0 ] || exit 1
echo "docs/ops.md, your own op: all good"
