#!/usr/bin/env bash
# `ferry compare`: which numbers of two documents are compared, the bound, and files that are not
# documents. Usage: test_compare.sh BUILD_DIR
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

cat >"$work/a.json" <<'END'
{"clock": "wall", "variants": [{"name": "copies", "ns_per_iter": 7, "model_ns_per_iter": 100, "worst_ns_per_iter": 9, "bytes": 5}],
 "train_loss": [2, 1, 0.5]}
END
cat >"$work/b.json" <<'END'
{"clock": "wall", "variants": [{"name": "copies", "ns_per_iter": 110, "model_ns_per_iter": null, "worst_ns_per_iter": 900, "bytes": 5}],
 "train_loss": [2, 1.001, 0.5]}
END
echo '{"clock": "model", "upload_ns": 50}' >"$work/c.json"
echo '{"clock": "wall", "upload_ns": 40, "syncs": 3}' >"$work/d.json"

expect 0 compare --help
says out "usage: ferry compare PREDICTED MEASURED"
expect 2 compare "$work/a.json"
says err "two files"

# A model figure is compared with the wall time that it predicts.
expect 0 compare "$work/a.json" "$work/b.json" --json
says out '"what": "variants/copies/ns_per_iter"'
says out '"predicted": 100'
says out '"measured": 110'
says out '"ratio": 1.1'
if grep -q 'worst\|bytes' "$work/out"; then fail "what is no time was compared"; fi
expect 0 compare "$work/a.json" "$work/b.json" --within 0.11
expect 1 compare "$work/a.json" "$work/b.json" --within 0.09
says out "1 of 1 differ by more than 0.09"
# A document on the model clock has separate names for its figures.
expect 0 compare "$work/c.json" "$work/d.json" --json
says out '"ratio": 0.8'
# Wall times are not predictions.
expect 1 compare "$work/d.json" "$work/c.json"
says err "the first must be of a simulated device"
silent out

# Other numbers are compared by name.
expect 0 compare "$work/a.json" "$work/b.json" --key train_loss --within 0.002
says out "0 of 3 differ"
expect 1 compare "$work/a.json" "$work/b.json" --key train_loss --within 0.0005 --json
says out '"outside": 1'
expect 1 compare "$work/a.json" "$work/b.json" --key nothing
says err "no nothing in common"

# Files that are not documents.
echo '{"a": ' >"$work/bad.json"
expect 1 compare "$work/a.json" "$work/bad.json"
says err "$work/bad.json, line"
expect 1 compare "$work/none.json" "$work/a.json"
says err "cannot open $work/none.json"

[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
