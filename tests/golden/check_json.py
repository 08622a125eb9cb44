"""Reads the JSON of the ferry command and checks keys, types and bars. Run by test_json.sh with $FERRY, the command.

Every key listed in SHAPES must be there with the type given; others may be added. No times are asserted, only that they are numbers.
"""
import json
import os
import subprocess
import sys

FERRY = os.environ["FERRY"]
number = (int, float)
maybe = (int, float, type(None))
failures = 0
skipped = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def run(*arguments, status=0):
    done = subprocess.run([FERRY, *arguments], capture_output=True, text=True, timeout=250, check=False)
    if done.returncode != status:
        fail(f"ferry {' '.join(arguments)}: exit status {done.returncode}, not {status}: {done.stderr[:300]}")
    return done


def document(*arguments):
    text = run(*arguments, "--json").stdout
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"ferry {' '.join(arguments)} --json: {error}: {text[:200]!r}")
        return None


def shape(value, wanted, path):
    """wanted: a type or tuple of types, {key: wanted}, or [wanted] for a list of at least one."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return fail(f"{path} is no object")
        for key, inner in wanted.items():
            if key in value:
                shape(value[key], inner, f"{path}.{key}")
            else:
                fail(f"{path} has no key {key!r}; it has {sorted(value)}")
    elif isinstance(wanted, list):
        if not isinstance(value, list) or not value:
            return fail(f"{path} is no list with an element")
        for i, item in enumerate(value):
            shape(item, wanted[0], f"{path}[{i}]")
    elif not isinstance(value, wanted) or (isinstance(value, bool) and wanted in (number, int)):
        fail(f"{path} is {value!r}")
    return None


def named(rows, name):
    return next((row for row in rows if row.get("name") == name), {})


def check_roundtrip(device):
    doc = document("experiment", "roundtrip", "--device", device, "--iters", "10")
    if doc is None:
        return
    shape(doc, {"experiment": str, "device": str, "size": int, "iters": int, "max_abs_diff": number,
                "variants": [{"name": str, "ns_per_iter": number, "model_ns_per_iter": maybe, "uploads_per_iter": number,
                              "downloads_per_iter": number, "bytes_per_iter": number}]}, "roundtrip")
    if failures:
        return
    if [doc["size"], doc["iters"]] != [200, 10]:
        fail(f"roundtrip: size {doc['size']}, iters {doc['iters']}")
    if sorted(v["name"] for v in doc["variants"]) != ["copies", "host", "resident"]:
        fail("roundtrip: variants " + str([v["name"] for v in doc["variants"]]))
    resident, copies = named(doc["variants"], "resident"), named(doc["variants"], "copies")
    for key, want in (("uploads_per_iter", 0), ("downloads_per_iter", 0), ("bytes_per_iter", 0)):
        if resident.get(key) != want:
            fail(f"roundtrip on {device}: resident {key} is {resident.get(key)}")
    for key, want in (("uploads_per_iter", 2), ("downloads_per_iter", 1), ("bytes_per_iter", 480000)):
        if copies.get(key) != want:
            fail(f"roundtrip on {device}: copies {key} is {copies.get(key)}")
    if not 0 <= doc["max_abs_diff"] <= 1e-3:
        fail(f"roundtrip on {device}: max_abs_diff {doc['max_abs_diff']}")
    if device.startswith("sim") and not all(isinstance(v["model_ns_per_iter"], number) for v in (resident, copies)):
        fail("roundtrip on sim: no model time")


def check_minibatch(device):
    global skipped
    doc = document("experiment", "minibatch", "--device", device, "--init", "zero")
    if doc is None:
        return
    shape(doc, {"runs": [{"name": str, "batch": int, "lr": number, "epochs": int, "losses": [number], "sec_per_epoch": number,
                          "uploads": int, "downloads": int, "bytes_up": int, "bytes_down": int}]}, "minibatch")
    if failures:
        return
    wanted = {"gd": (1500, 1, 10, 10), "sgd": (1, 0.005, 2, 15), "mini100": (100, 0.4, 2, 15), "mini10": (10, 0.05, 2, 15)}
    if [r["name"] for r in doc["runs"]] != list(wanted):
        fail("minibatch: runs " + str([r["name"] for r in doc["runs"]]))
        return
    uploads = doc.get("data_uploads", 0)
    for run_ in doc["runs"]:
        batch, lr, epochs, recorded = wanted[run_["name"]]
        if (run_["batch"], run_["lr"], run_["epochs"]) != (batch, lr, epochs):
            fail(f"minibatch {run_['name']}: batch {run_['batch']}, lr {run_['lr']}, epochs {run_['epochs']}")
        if len(run_["losses"]) != recorded or run_["downloads"] != recorded or run_["bytes_down"] != 4 * recorded:
            fail(f"minibatch {run_['name']}: {len(run_['losses'])} losses, {run_['downloads']} downloads, {run_['bytes_down']} bytes down, "
                 f"{recorded} recorded")
        uploads += run_["uploads"]
    if uploads != 1:
        fail(f"minibatch: the data set went up {uploads} times")
    if not str(doc.get("data", "")).endswith("airfoil_self_noise.dat"):
        print("skipped: the losses' bars need the airfoil data ($FERRY_DATA or ../shared/data)")
        skipped += 1
        return
    published = [.2757, .2503, .2465, .2455, .2451, .2451, .2453, .2456, .2462, .2470]
    for i, (loss, want) in enumerate(zip(named(doc["runs"], "gd")["losses"], published)):
        if abs(loss - want) > 5e-4:
            fail(f"minibatch gd on {device}: loss {i + 1} is {loss}, not {want} +- 5e-4")
    for run_ in doc["runs"]:
        if not .2416 <= run_["losses"][-1] <= .260:
            fail(f"minibatch {run_['name']} on {device} ends at {run_['losses'][-1]}")


def check_link(device):
    doc = document("experiment", "link", "--device", device, "--sizes", "4,4KiB,1MiB", "--pieces", "256")
    if doc is None:
        return
    shape(doc, {"experiment": str, "repeats": int, "clock": str,
                "rows": [{"mode": str, "direction": str, "nbytes": int, "pieces": int, "ns": number, "bytes_per_s": number,
                          "copies": int, "clock": str}]}, "link")
    if failures:
        return
    clock = "model" if device.startswith("sim") else "wall"
    if doc["clock"] != clock or {row["clock"] for row in doc["rows"]} != {clock}:
        fail(f"link on {device}: the clock is not {clock}")
    for mode, direction, sizes, pieces in (("pinned", "up", [4, 4096, 1 << 20], 1), ("pinned", "down", [4, 4096, 1 << 20], 1),
                                           ("staged", "up", [4, 4096, 1 << 20], 1),
                                           ("staged", "down", [4, 4096, 1 << 20], 1), ("loop", "up", [1024, 1 << 20], 256),
                                           ("loop", "down", [1024, 1 << 20], 256),
                                           ("coalesced", "up", [1024, 1 << 20], 256),
                                           ("coalesced", "down", [1024, 1 << 20], 256)):
        rows = [row for row in doc["rows"] if (row["mode"], row["direction"]) == (mode, direction)]
        if [row["nbytes"] for row in rows] != sizes or {row["pieces"] for row in rows} != {pieces}:
            fail(f"link on {device}: {mode} {direction} moves {[(row['nbytes'], row['pieces']) for row in rows]}")
        if mode == "loop" and {row["copies"] for row in rows} != {pieces}:
            fail(f"link on {device}: {mode} {direction} takes {[row['copies'] for row in rows]} copies")
        if mode == "coalesced" and clock == "model" and {row["copies"] for row in rows} != {1}:
            fail(f"link on {device}: {mode} {direction} takes {[row['copies'] for row in rows]} copies")
    doc = document("experiment", "link", "--overlap", "--steps", "16", "--device", device, *(["--compute", "1"] if device == "host" else []))
    if doc is None:
        return
    shape(doc, {"clock": str, "overlap": {"steps": int, "pipelined_ns_per_step": number, "serial_ns_per_step": number,
                                          "upload_ns": number, "compute_ns": number, "download_ns": number}}, "link --overlap")
    if failures:
        return
    o = doc["overlap"]
    longest = max(o["upload_ns"], o["compute_ns"], o["download_ns"])
    if doc["clock"] == "model" and not 0.999 * longest <= o["pipelined_ns_per_step"] <= 1.02 * longest:
        fail(f"link --overlap on {device}: {o}")


def check_others():
    doc = document("experiment", "vectorize", "--device", "sim:0")
    if doc is not None:
        shape(doc, {"variants": [{"name": str, "via": str, "gflops": maybe, "max_abs_err": number}]}, "vectorize")
        for row in doc["variants"]:
            if not 0 <= row["max_abs_err"] <= 1e-3:
                fail(f"vectorize {row['name']} via {row['via']}: error {row['max_abs_err']}")
        if sorted({row["name"] for row in doc["variants"]}) != ["block", "column", "element", "full"]:
            fail("vectorize: variants " + str([row["name"] for row in doc["variants"]]))
    doc = document("bench", "dispatch", "--device", "host")
    if doc is not None:
        shape(doc, {"rows": [{"op": str, "ns_per_op": maybe, "peer": (str, type(None)), "peer_ns_per_op": maybe}]}, "dispatch")
    doc = document("info")
    if doc is not None:
        shape(doc, {"version": str, "devices": [{"spec": str}], "plugins": [{"name": str, "loaded": bool, "reason": str}],
                    "host_allocator": str}, "info")
        if "host" not in [device["spec"] for device in doc["devices"]]:
            fail("info: no host")


def check_statuses():
    run("experiment", "roundtrip", "--device", "sim:0?capacity=1KiB", status=4)  # out of memory
    run("experiment", "roundtrip", "--device", "sim:0?limit=64KiB", status=4)
    run("experiment", "roundtrip", "--size", "-3", status=2)
    run("experiment", "roundtrip", "--device", "sim:0?capcity=1GiB", status=2)
    run("experiment", "nothing", status=2)
    run("nothing", status=2)


for where in ("sim:0", "host"):
    check_roundtrip(where)
    check_minibatch(where)
    check_link(where)
check_others()
check_statuses()
if failures == 0:
    print("JSON and bars hold" + (" (some skipped, see above)" if skipped else ""))
sys.exit(1 if failures else 77 if skipped else 0)
