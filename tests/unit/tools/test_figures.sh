#!/usr/bin/env bash
# The generated figures of README.md and docs/ are those that the programs of this build print; a
# figure that was changed by hand is detected. Usage: test_figures.sh BUILD_DIR
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh"
needs bin/examples/01_linear
"$root/scripts/figures.sh" --check "$build" || fail "the figures above are not current"

# In a copy, one digit of a block is changed: the check fails and names the page; writing restores
# the page.
mkdir -p "$work/tree/scripts" "$work/tree/docs"
cp "$root/scripts/figures.sh" "$work/tree/scripts/"
cp "$root/README.md" "$work/tree/"
sed -i 's/^| resident | \([0-9]*\) |/| resident | 9\1 |/' "$work/tree/README.md"
if cmp -s "$root/README.md" "$work/tree/README.md"; then fail "README.md has no row 'resident'"; fi
if "$work/tree/scripts/figures.sh" --check "$build" >"$work/out" 2>&1; then
    fail "a changed figure is not noticed"
fi
says out "README.md: a generated block is not current"
"$work/tree/scripts/figures.sh" "$build" >"$work/out" 2>&1 ||
    fail "writing fails: $(head -c 300 "$work/out")"
cmp -s "$root/README.md" "$work/tree/README.md" || fail "writing does not restore the page"
