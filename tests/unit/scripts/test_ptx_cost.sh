#!/usr/bin/env bash
# bench/ptx_cost.py on a stand-in for the program kernels, whose launches are known: units, the page,
# a bar that a call keeps or exceeds. The counts of the kernels themselves: .ci/run ptx.
# Usage: test_ptx_cost.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs_command python3
export PYTHONDONTWRITEBYTECODE=1

mkdir -p "$work"/{bench,there/bin/bench,there/lib/tests}
cp "$root/bench/ptx_cost.py" "$work/bench"
python3 "$work/bench/ptx_cost.py" "$work/there" >"$work/said" 2>&1
[ $? -eq 1 ] || fail "no bars are no failure: $(cat "$work/said")"
printf '# a comment\nadd\tf32\t32x32\t64\nattention\tbf16\t1x4x2x128\t7.5\n' >"$work/bench/ptx_bars.tsv"
python3 "$work/bench/ptx_cost.py" "$work/there" >"$work/said" 2>&1
[ $? -eq 77 ] || fail "a build without the fake driver is not skipped: $(cat "$work/said")"
touch "$work/there/lib/tests/libfake_cuda.so"
cat >"$work/there/bin/bench/kernels" <<'END'
#!/bin/sh
[ "$*" = "cuda:0 1/16 0 add attention" ] || exit 2
printf 'fy_generate_flat\t1\t9999\t0\t1\t0\ncuda:0 ns GB/s\n' >&2
printf 'fy_a\t1\t1024\t256\t128\t64\nfy_b\t1\t1024\t0\t0\t0\nadd 0 0\n' >&2
printf "fy_c\t1\t${PAIRS:-150}\t1\t1\t0\nattention 0 0\n" >&2
echo '{ "elements": 1024, "rows": [{ "what": "add", "bytes_per_element": 12 }, { "what": "attention", "bytes_per_element": 8 }] }' |
    sed "s/: 1024/: ${NELEM:-1024}/"
END
chmod +x "$work/there/bin/bench/kernels"
# 4 rows are 10 pairs a head.
python3 "$work/bench/ptx_cost.py" "$work/there" >"$work/page" 2>"$work/said" || fail "the page: $(cat "$work/said")"
grep -qx '| add | f32 | 32x32 | 2 | 64.0 | 64 | 1.00 | 31 | 4.0 | 4.0 |' "$work/page" || fail "the row of add: $(tail -n 2 "$work/page")"
grep -q '^| attention | bf16 | 1x4x2x128 | 1 | 7.5 | 7.5 | ' "$work/page" || fail "the row of attention: $(tail -n 1 "$work/page")"
python3 "$work/bench/ptx_cost.py" --check "$work/there" >"$work/said" 2>&1 || fail "bars that are kept: $(cat "$work/said")"
PAIRS=151 python3 "$work/bench/ptx_cost.py" --check "$work/there" >"$work/said" 2>&1
[ $? -eq 1 ] || fail "a bar that is exceeded passes: $(cat "$work/said")"
grep -q '^attention: 7.5[0-9]* instructions, above its bar of 7.5' "$work/said" || fail "which bar is exceeded: $(cat "$work/said")"
NELEM=4096 python3 "$work/bench/ptx_cost.py" --check "$work/there" >"$work/said" 2>&1
[ $? -eq 1 ] || fail "another size passes"
grep -q 'add has 4096 elements' "$work/said" || fail "another size is not named: $(cat "$work/said")"
printf 'unknown\tf32\t8\t9\n' >>"$work/bench/ptx_bars.tsv"
python3 "$work/bench/ptx_cost.py" --check "$work/there" >"$work/said" 2>&1
[ $? -eq 1 ] || fail "a call that kernels does not know passes"
[ "$failures" -eq 0 ]
