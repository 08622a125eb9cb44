#!/usr/bin/env bash
# The model times in docs/results are those that the command computes now: those of roundtrip, and
# each cell of the link table. They are on the model clock, so they are the same on every machine.
# Generated blocks: test_figures.sh.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh"
needs_command python3
expect 0 experiment roundtrip --device sim:0 --json
mv "$work/out" "$work/roundtrip.json"
expect 0 experiment link --device 'sim:0?profile=h200' --csv "$work/link.csv"
python3 - "$work" "$root" <<'PY' || fail "a published figure is not what the command computes"
import csv, json, pathlib, re, sys
work, root = map(pathlib.Path, sys.argv[1:])
wrong = []
def quoted(page, text):
    if not re.search(text, (root / page).read_text()): wrong.append(f"{page} does not say {text!r}")
results = "docs/results/2026-11-21-two-cores.md"
for v in json.loads((work / "roundtrip.json").read_text())["variants"]:
    ns = v["model_ns_per_iter"]
    quoted(results, rf"{v['name']}\s+{ns:,}\s+ns")
sizes = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
link = {(r["mode"], r["direction"], int(r["nbytes"]) // int(r["pieces"])): r for r in csv.DictReader((work / "link.csv").open())}
checked = 0
table = (root / results).read_text().split("## Link, on the model clock")[1].split("\n## ")[0]
for line in table.splitlines():
    cells = [c.strip() for c in line.split("|")]
    size = re.fullmatch(r"(\d+) (B|KiB|MiB)", cells[1]) if len(cells) == 11 else None
    if not size: continue
    nbytes = int(size[1]) * sizes[size[2]]
    for i, cell in enumerate(cells[2:10]):
        row = link.get((("pinned", "staged", "loop", "coalesced")[i // 2], ("up", "down")[i % 2], nbytes))
        text = f"{float(row['ns']) / 1000:,.1f}" + (f" ({row['copies']})" if row["copies"] != row["pieces"] else "") if row else ""
        if cell != text: wrong.append(f"{results}: {cells[1]}, column {i + 1}: {cell!r} is {text!r}")
        checked += 1
if checked < 80: wrong.append(f"only {checked} cells of the link table were found")
print("\n".join(wrong))
sys.exit(bool(wrong))
PY
