"""Checks a page that `ferry report` wrote, without a browser. Run by test_report.sh.

Usage: check_report.py REPORT.html LEDGER.json...       beside each LEDGER.json.advice of ferry advise
The page loads nothing, its policy has the hashes of its script and style, its figures are those of
`ferry ledger --json`, and shares add up.
"""

import base64
import hashlib
import json
import re
import sys


def hash_of(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def check_policy(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page).group(1)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    styles = re.findall(r"<style>(.*?)</style>", page, re.S)
    assert len(scripts) == 1 and len(styles) == 1, f"{len(scripts)} scripts, {len(styles)} styles"
    assert f"script-src {hash_of(scripts[0])}" in policy, "the policy has another script's hash"
    assert f"style-src {hash_of(styles[0])}" in policy, "the policy has another style's hash"
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy, policy
    fixed = re.sub(r'<script type="application/json" id="data">.*?</script>', "", page, flags=re.S)
    found = re.search(r"https?://|<link|<img|<iframe|\bsrc=|\bhref=|\bon[a-z]+=\"|style=\"|@import|url\(", fixed)
    assert not found, f"the page loads something or has an inline handler: {found.group(0)}"


def check_run(run, ledger, ids):
    for key in ("scopes", "paths", "sites", "pools", "waits", "refusals", "faults", "events", "lost"):
        assert run[key] == ledger[key], f"{key} differ from ferry ledger"
    assert [each["id"] for each in run["advice"]["findings"]] == ids, "other findings than ferry advise"
    assert bool(run["whole"]) == ledger["whole"]
    assert sum(run["shares"]) == run["part_ns"], "the shares do not add up"
    assert len(run["times"]) == len(run["scopes"])
    for scope, times in zip(run["scopes"], run["times"]):
        assert sum(times["shares"]) == times["total_ns"], f"the shares of {scope['scope']} do not add up"
    for lane in run["lanes"]:
        assert len(lane["start"]) == len(lane["length"]) == lane["count"]
        assert all(start >= 0 for start in lane["start"]) and all(length >= 0 for length in lane["length"])
    peaks = {pool["pool"]: pool["peak_live_bytes"] for pool in ledger["pools"]}
    for pool in run["memory"]:
        assert pool["peak"] == peaks[pool["pool"]] == max(pool["total"]), f"peak of {pool['pool']}"
        for i, total in enumerate(pool["total"]):
            assert total == pool["before"] + sum(sizes[i] for sizes in pool["by_category"]), "categories do not add up"
        assert sum(pool["owners"][2::5]) + pool["before"] == pool["peak"] or pool["owners_in_all"] > 200, "owners do not add up"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        page = file.read()
    check_policy(page)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1)
    assert "<" not in data, "a text of the recording is not escaped"
    report = json.loads(data)
    assert len(report["runs"]) == len(sys.argv) - 2
    for run, path in zip(report["runs"], sys.argv[2:]):
        with open(path, encoding="utf-8") as file:
            ledger = json.load(file)
        with open(path + ".advice", encoding="utf-8") as file:
            check_run(run, ledger, [finding["id"] for finding in json.load(file)["findings"]])
    slices = sum(lane["count"] for run in report["runs"] for lane in run["lanes"])
    arrows = sum(len(run["arrows"]) // 5 for run in report["runs"])
    print(f"{slices} slices, {arrows} arrows, {len(page)} bytes: {report['summary']}")


main()
