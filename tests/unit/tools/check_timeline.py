"""Checks a trace that `ferry timeline` wrote, against the events it was made of. Run by test_timeline.sh.

Usage: check_timeline.py EVENTS TRACE CLOCK LEDGER.json
Checks what importers of the format require (scopes that nest, no overlap in a track, arrows that begin and end in
slices), and that slices, counters and arrows are those of the events.
"""

import collections
import json
import sys

HOST = {"model": 1, "wall": 2}


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def check_tracks(trace):
    """Slices of a track nest or follow each other; returns the intervals of each track."""
    open_scopes = collections.defaultdict(list)
    last = collections.Counter()
    found = collections.defaultdict(list)
    for event in trace:
        track = event["pid"], event["tid"]
        if event["ph"] in "BE":
            assert nanoseconds(event["ts"]) >= last[track], f"a track goes back: {event}"
            last[track] = nanoseconds(event["ts"])
        if event["ph"] == "B":
            open_scopes[track].append(nanoseconds(event["ts"]))
        elif event["ph"] == "E":
            found[track].append((open_scopes[track].pop(), nanoseconds(event["ts"])))
            assert found[track][-1][0] <= found[track][-1][1]
        elif event["ph"] == "X":
            start = nanoseconds(event["ts"])
            end = start + nanoseconds(event["dur"])
            assert start >= last[track], f"slices overlap: {event}"
            assert not open_scopes[track] or start >= open_scopes[track][-1], f"a slice begins before its scope: {event}"
            last[track] = end
            found[track].append((start, end))
    assert not any(open_scopes.values()), "a scope is left open"
    return found


def check_arrows(trace, found):
    begins = {event["id"]: event for event in trace if event["ph"] == "s"}
    ends = {event["id"]: event for event in trace if event["ph"] == "f"}
    assert begins.keys() == ends.keys()
    for event in list(begins.values()) + list(ends.values()):
        at = nanoseconds(event["ts"])
        slices = found[event["pid"], event["tid"]]
        assert any(start <= at <= end for start, end in slices), f"an arrow outside any slice: {event}"
    for number, event in begins.items():
        assert event["ts"] <= ends[number]["ts"], "an arrow into the past"
    return collections.Counter(event["name"].split(":")[0] for event in begins.values())


def main():
    events_path, trace_path, clock, ledger_path = sys.argv[1:]
    with open(events_path, encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    with open(trace_path, encoding="utf-8") as file:
        trace = json.load(file)["traceEvents"]
    with open(ledger_path, encoding="utf-8") as file:
        pools = {pool["pool"]: pool for pool in json.load(file)["pools"]}
    arrows = check_arrows(trace, check_tracks(trace))
    names = {(event["pid"], event["tid"], event["args"]["name"]) for event in trace if event.get("name") == "thread_name"}

    if clock == "model":
        requests = [event for event in events if event["ev"] in ("op", "transfer", "started") and "model_end_ns" in event]
        drawn = [event for event in trace if event["ph"] == "X" and event["pid"] >= 10]
        assert len(requests) == len(drawn) > 0, f"{len(requests)} requests, {len(drawn)} slices"
        for request, event in zip(requests, drawn):
            assert nanoseconds(event["ts"]) == request["model_start_ns"]
            assert nanoseconds(event["dur"]) == request["model_end_ns"] - request["model_start_ns"]
        for stream in ("compute", "upload", "download"):
            assert any(name == stream for _, _, name in names), f"no track '{stream}'"
        assert arrows["data"] and arrows["arrived"], f"arrows: {arrows}"
        flying = [event["args"]["bytes"] for event in trace if event["ph"] == "C" and event["name"] == "bytes in flight"]
        assert flying and max(flying) > 0 and flying[-1] == 0
    waits = [event for event in trace if event.get("cat") == "wait" and event["pid"] == HOST[clock]]
    assert waits, "no wait of the host"
    for name, pool in pools.items():
        key = "peak_live_bytes", f"live: {name}"
        values = [event["args"]["bytes"] for event in trace if event["ph"] == "C" and event.get("name") == key[1] and event["pid"] == HOST[clock]]
        if name != "host":
            assert max(values, default=0) == pool[key[0]], f"{name}: {max(values, default=0)}, not {pool[key[0]]}"
    print("ok")


main()
