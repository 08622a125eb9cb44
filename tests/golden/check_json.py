"""Reads the JSON of the ferry command and checks keys, types and bars. Run by test_json.sh with $FERRY, the command.

Every key listed in SHAPES must be there with the type given; others may be added. No times are asserted, only that they are numbers.
"""

import json
import os
import subprocess
import sys
import tempfile

FERRY = os.environ["FERRY"]
number = (int, float)
maybe = (int, float, type(None))
STATISTICS = {
    "rounds": int,
    "until_percent": maybe,
    "most_rounds": int,
    "warm_up": (str, type(None)),
    "interval": str,
    "confidence_percent": int,
    "resamples": int,
    "seed": int,
}
MACHINE = {"cores": int, "load_1min": maybe, "governor": (str, type(None))}
failures = 0
skipped = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def run(*arguments, status=0):
    done = subprocess.run(
        [FERRY, *arguments], capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode != status:
        fail(
            f"ferry {' '.join(arguments)}: exit status {done.returncode}, not {status}: {done.stderr[:300]}"
        )
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


def spread(key):
    """The keys beside a median that is measured in rounds."""
    ends = ("_q1", "_q3", "_low", "_high", "_half_percent")
    return {key: maybe, "rounds": int} | {key + end: maybe for end in ends}


def named(rows, name):
    return next((row for row in rows if row.get("name") == name), {})


def check_roundtrip(device):
    doc = document("experiment", "roundtrip", "--device", device, "--iters", "10")
    if doc is None:
        return
    shape(
        doc,
        {
            "experiment": str,
            "device": str,
            "size": int,
            "iters": int,
            "max_abs_diff": number,
            "variants": [
                {
                    "name": str,
                    **spread("ns_per_iter"),
                    **spread("model_ns_per_iter"),
                    "uploads_per_iter": number,
                    "downloads_per_iter": number,
                    "bytes_per_iter": number,
                }
            ],
        },
        "roundtrip",
    )
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
    for key, want in (
        ("uploads_per_iter", 2),
        ("downloads_per_iter", 1),
        ("bytes_per_iter", 480000),
    ):
        if copies.get(key) != want:
            fail(f"roundtrip on {device}: copies {key} is {copies.get(key)}")
    if not 0 <= doc["max_abs_diff"] <= 1e-3:
        fail(f"roundtrip on {device}: max_abs_diff {doc['max_abs_diff']}")
    if device.startswith("sim") and not all(
        isinstance(v["model_ns_per_iter"], number) for v in (resident, copies)
    ):
        fail("roundtrip on sim: no model time")


def check_minibatch(device):
    global skipped
    doc = document("experiment", "minibatch", "--device", device, "--init", "zero")
    if doc is None:
        return
    shape(
        doc,
        {
            "runs": [
                {
                    "name": str,
                    "batch": int,
                    "lr": number,
                    "epochs": int,
                    "losses": [number],
                    **spread("sec_per_epoch"),
                    **spread("model_sec_per_epoch"),
                    "uploads": int,
                    "downloads": int,
                    "bytes_up": int,
                    "bytes_down": int,
                }
            ]
        },
        "minibatch",
    )
    if failures:
        return
    wanted = {
        "gd": (1500, 1, 10, 10),
        "sgd": (1, 0.005, 2, 15),
        "mini100": (100, 0.4, 2, 15),
        "mini10": (10, 0.05, 2, 15),
    }
    if [r["name"] for r in doc["runs"]] != list(wanted):
        fail("minibatch: runs " + str([r["name"] for r in doc["runs"]]))
        return
    uploads = doc.get("data_uploads", 0)
    for run_ in doc["runs"]:
        batch, lr, epochs, recorded = wanted[run_["name"]]
        if (run_["batch"], run_["lr"], run_["epochs"]) != (batch, lr, epochs):
            fail(
                f"minibatch {run_['name']}: batch {run_['batch']}, lr {run_['lr']}, epochs {run_['epochs']}"
            )
        if (
            len(run_["losses"]) != recorded
            or run_["downloads"] != recorded
            or run_["bytes_down"] != 4 * recorded
        ):
            fail(
                f"minibatch {run_['name']}: {len(run_['losses'])} losses, {run_['downloads']} downloads, {run_['bytes_down']} bytes down, "
                f"{recorded} recorded"
            )
        uploads += run_["uploads"]
    if uploads != 1:
        fail(f"minibatch: the data set went up {uploads} times")
    if not str(doc.get("data", "")).endswith("airfoil_self_noise.dat"):
        print("skipped: the losses' bars need the airfoil data ($FERRY_DATA, else data/)")
        skipped += 1
        return
    published = [0.2757, 0.2503, 0.2465, 0.2455, 0.2451, 0.2451, 0.2453, 0.2456, 0.2462, 0.2470]
    for i, (loss, want) in enumerate(zip(named(doc["runs"], "gd")["losses"], published)):
        if abs(loss - want) > 5e-4:
            fail(f"minibatch gd on {device}: loss {i + 1} is {loss}, not {want} +- 5e-4")
    for run_ in doc["runs"]:
        if not 0.2416 <= run_["losses"][-1] <= 0.260:
            fail(f"minibatch {run_['name']} on {device} ends at {run_['losses'][-1]}")


def check_parallel():
    doc = document(
        "experiment", "parallel", "lenet", "--batch", "32", "--steps", "3", "--device", "sim:0"
    )
    if not doc:
        return
    shape(
        doc,
        {
            "model": str,
            "data": str,
            "batch": int,
            "steps": int,
            "lr": number,
            "clock": str,
            "refusal": str,
            "runs": [
                {
                    "devices": int,
                    "first_loss": number,
                    "last_loss": number,
                    "difference": number,
                    "worst_tensor": number,
                    "replicas_equal": str,
                    "peer_bytes_per_step": number,
                    "peer_transfers_per_step": number,
                    "model_ns_per_step": number,
                    "ns_per_step": number,
                    "status": str,
                }
            ],
        },
        "parallel",
    )
    if [row["devices"] for row in doc["runs"]] != [1, 2, 4]:
        fail(f"parallel: {doc['runs']}")
    once = doc["runs"][1]["peer_bytes_per_step"] / 2
    for row in doc["runs"]:
        n = row["devices"]
        if (
            row["status"] != "ok"
            or row["replicas_equal"] != "yes"
            or not row["difference"] <= 1e-5
            or row["peer_bytes_per_step"] != 2 * (n - 1) * once
        ):
            fail(f"parallel on {n}: {row}")
    if "lives on sim:3" not in doc["refusal"]:
        fail(f"parallel: refusal is {doc['refusal']!r}")


def check_speedups():
    doc = document("experiment", "speedups", "--device", "sim:0")
    if not doc:
        return
    shape(
        doc,
        {
            "clock": str,
            "rows": [
                {
                    "row": int,
                    "technique": str,
                    "compared": str,
                    "unit": str,
                    "without": maybe,
                    "with": number,
                    "effect": maybe,
                    "status": str,
                    "holds": str,
                }
            ],
        },
        "speedups",
    )
    if [row["row"] for row in doc["rows"]] != [*range(1, 20)]:
        fail(f"speedups: rows {[row['row'] for row in doc['rows']]}")
    rows = {row["row"]: row for row in doc["rows"]}
    for row in doc["rows"]:
        if row["status"] != "ok":
            fail(f"speedups: {row}")
    # Counts, bytes and the model's clock: the same in every run.
    if (rows[7]["without"], rows[7]["with"]) != (20, 0):
        fail(f"speedups: {rows[7]}")
    for which in (3, 4, 5, 8, 9, 10, 11, 14, 15, 16, 18, 19):
        if not rows[which]["effect"] > 1:
            fail(f"speedups: no effect in {rows[which]}")
    doc = document("experiment", "speedups", "--only", "12,3")
    if doc and [row["row"] for row in doc["rows"]] != [3, 12]:
        fail("speedups --only 12,3: other rows")


def check_train():
    doc = document(
        "train",
        "mlp",
        "--device",
        "sim:0",
        "--limit-samples",
        "256",
        "--batch",
        "32",
        "--epochs",
        "2",
        "--log-every",
        "4",
    )
    if doc is None:
        return
    crossed = {"count": int, "bytes": int}
    shape(
        doc,
        {
            "model": str,
            "device": str,
            "params": int,
            "steps": int,
            "skipped_steps": int,
            "epochs": int,
            "train_loss": [number],
            "test_accuracy": number,
            "images_per_s": number,
            "ledger": {
                "uploads": crossed,
                "downloads": crossed,
                "syncs": int,
                "device_allocs_steady": int,
            },
            "clock": str,
        },
        "train",
    )
    if failures:
        return
    if (doc["model"], doc["params"], doc["steps"], doc["epochs"], len(doc["train_loss"])) != (
        "mlp",
        101770,
        16,
        2,
        4,
    ):
        fail(f"train: {doc}")
    if doc["ledger"]["device_allocs_steady"] != 0 or not 0 <= doc["test_accuracy"] <= 1:
        fail(f"train: {doc}")


def check_bench_train():
    doc = document(
        "bench", "train", "--case", "chain", "--device", "sim:0", "--rounds", "1", "--round-ms", "1"
    )
    if doc is None:
        return
    shape(
        doc,
        {
            "clock": str,
            "rows": [
                {
                    "case": str,
                    "mode": str,
                    **spread("ns_per_step"),
                    "worst_ns_per_step": number,
                    "ns_per_op": maybe,
                    "batch": maybe,
                    "images_per_s": maybe,
                    "roofline_share": maybe,
                    "model_ns_per_step": maybe,
                }
            ],
        },
        "bench train",
    )
    if not failures and {row["mode"] for row in doc["rows"]} != {"eager", "graph"}:
        fail(f"bench train: modes {[row['mode'] for row in doc['rows']]}")


def check_bench_layers():
    doc = document(
        "bench",
        "train",
        "--layers",
        "--case",
        "mnist",
        "--device",
        "host",
        "--rounds",
        "1",
        "--round-ms",
        "1",
    )
    if doc is None:
        return
    shape(
        doc,
        {
            "clock": str,
            "rows": [
                {
                    "model": str,
                    "layer": str,
                    "direction": str,
                    "count": int,
                    **spread("ns"),
                    "worst_ns": number,
                    "share": number,
                    "gflops": maybe,
                    "gb_per_s": maybe,
                    "roofline_share": maybe,
                    "batch": int,
                    "type": str,
                    "implementation": (str, type(None)),
                    "model_ns": maybe,
                }
            ],
        },
        "bench train --layers",
    )
    if failures:
        return
    found = {(row["model"], row["layer"], row["direction"]) for row in doc["rows"]}
    ways = ("forward", "backward input", "backward params")
    wanted = {
        (model, layer, way)
        for model in ("mnist", "mnist2018")
        for layer in ("conv1", "conv2", "fc1", "fc2")
        for way in ways
        if (layer, way) != ("conv1", "backward input")
    }
    products = [row for row in doc["rows"] if row["type"] in ("conv2d", "linear")]
    found = {key for key in found if key[1] in ("conv1", "conv2", "fc1", "fc2")}
    slow = [
        row["layer"]
        for row in products
        if row["implementation"] == "plain loops" or row["implementation"].startswith("ref")
    ]
    others = [row for row in doc["rows"] if row not in products]
    if (
        found != wanted
        or slow
        or any(row["gflops"] <= 0 for row in products)
        or not others
        or any(row["gb_per_s"] <= 0 for row in others)
    ):
        fail(f"bench train --layers: {doc['rows']}")


def check_link(device):
    doc = document(
        "experiment", "link", "--device", device, "--sizes", "4,4KiB,1MiB", "--pieces", "256"
    )
    if doc is None:
        return
    shape(
        doc,
        {
            "experiment": str,
            "statistics": STATISTICS,
            "machine": MACHINE,
            "clock": str,
            "rows": [
                {
                    "mode": str,
                    "direction": str,
                    "nbytes": int,
                    "pieces": int,
                    **spread("ns"),
                    "bytes_per_s": number,
                    "copies": int,
                    "clock": str,
                }
            ],
        },
        "link",
    )
    if failures:
        return
    clock = "model" if device.startswith("sim") else "wall"
    if doc["clock"] != clock or {row["clock"] for row in doc["rows"]} != {clock}:
        fail(f"link on {device}: the clock is not {clock}")
    for mode, direction, sizes, pieces in (
        ("pinned", "up", [4, 4096, 1 << 20], 1),
        ("pinned", "down", [4, 4096, 1 << 20], 1),
        ("staged", "up", [4, 4096, 1 << 20], 1),
        ("staged", "down", [4, 4096, 1 << 20], 1),
        ("loop", "up", [1024, 1 << 20], 256),
        ("loop", "down", [1024, 1 << 20], 256),
        ("coalesced", "up", [1024, 1 << 20], 256),
        ("coalesced", "down", [1024, 1 << 20], 256),
    ):
        rows = [row for row in doc["rows"] if (row["mode"], row["direction"]) == (mode, direction)]
        if [row["nbytes"] for row in rows] != sizes or {row["pieces"] for row in rows} != {pieces}:
            fail(
                f"link on {device}: {mode} {direction} moves {[(row['nbytes'], row['pieces']) for row in rows]}"
            )
        if mode == "loop" and {row["copies"] for row in rows} != {pieces}:
            fail(
                f"link on {device}: {mode} {direction} takes {[row['copies'] for row in rows]} copies"
            )
        if mode == "coalesced" and clock == "model" and {row["copies"] for row in rows} != {1}:
            fail(
                f"link on {device}: {mode} {direction} takes {[row['copies'] for row in rows]} copies"
            )
    doc = document(
        "experiment",
        "link",
        "--overlap",
        "--steps",
        "16",
        "--device",
        # the model clock needs no arithmetic
        device + "?numerics=off" if device == "sim:0" else device,
        *(["--compute", "1"] if device == "host" else []),
    )
    if doc is None:
        return
    shape(
        doc,
        {
            "clock": str,
            "overlap": {
                "steps": int,
                **spread("pipelined_ns_per_step"),
                **spread("serial_ns_per_step"),
                "upload_ns": number,
                "compute_ns": number,
                "download_ns": number,
            },
        },
        "link --overlap",
    )
    if failures:
        return
    o = doc["overlap"]
    longest = max(o["upload_ns"], o["compute_ns"], o["download_ns"])
    if (
        doc["clock"] == "model"
        and not 0.999 * longest <= o["pipelined_ns_per_step"] <= 1.02 * longest
    ):
        fail(f"link --overlap on {device}: {o}")


def check_others():
    doc = document("experiment", "vectorize", "--device", "sim:0")
    if doc is not None:
        shape(
            doc,
            {"variants": [{"name": str, "via": str, "gflops": maybe, "max_abs_err": number} | spread("ns")]},
            "vectorize",
        )
        for row in doc["variants"]:
            if not 0 <= row["max_abs_err"] <= 1e-3:
                fail(f"vectorize {row['name']} via {row['via']}: error {row['max_abs_err']}")
        if sorted({row["name"] for row in doc["variants"]}) != [
            "block",
            "column",
            "element",
            "full",
        ]:
            fail("vectorize: variants " + str([row["name"] for row in doc["variants"]]))
    doc = document("bench", "dispatch", "--device", "host")
    if doc is not None:
        shape(
            doc,
            {
                "rows": [
                    {
                        "op": str,
                        **spread("ns_per_op"),
                        "peer": (str, type(None)),
                        **spread("peer_ns_per_op"),
                    }
                ]
            },
            "dispatch",
        )
    doc = document("info")
    if doc is not None:
        shape(
            doc,
            {
                "version": str,
                "devices": [{"spec": str}],
                "plugins": [{"name": str, "loaded": bool, "reason": str}],
                "host_allocator": str,
            },
            "info",
        )
        if "host" not in [device["spec"] for device in doc["devices"]]:
            fail("info: no host")


CATEGORIES = ["activations", "gradients", "optimizer_state", "staging", "weights", "workspace"]


def check_plan():
    wanted = {
        "model": str,
        "version": str,
        "device": str,
        "batch": int,
        "params": (int, type(None)),
        "clock": str,
        "peak_bytes": int,
        "by_category": {name: int for name in CATEGORIES},
        "reserved_bytes": int,
        "limit_bytes": int,
        "step_model_ns": int,
        "step_flops": int,
        "fits": bool,
        "max_batch": (int, type(None)),
        "verdict": (str, type(None)),
    }
    small = ["--device", "sim:0?limit=16MiB"]
    doc = document("plan", "mlp", "--batch", "64", "--fit", *small)
    if doc is None:
        return
    shape(doc, wanted, "plan")
    shape(doc, {"largest": [{"recompute": str, "f32": int, "bf16": int}]}, "plan --fit")
    if failures:
        return
    if (
        sorted(doc["by_category"]) != CATEGORIES
        or sum(doc["by_category"].values()) != doc["peak_bytes"]
    ):
        fail(f"plan: {doc['by_category']} is not {doc['peak_bytes']}")
    if (doc["model"], doc["batch"], doc["params"], doc["fits"], doc["verdict"]) != (
        "mlp",
        64,
        101770,
        True,
        None,
    ):
        fail(f"plan: {doc}")
    choices = document("plan", "gpt", "--batch", "8", "--recompute", "auto")
    way = {
        "recompute": str,
        "saved_bytes": int,
        "added_flops": int,
        "reserved_bytes": int,
        "pinned_bytes": int,
        "step_model_ns": int,
        "fits": bool,
        "taken": bool,
        "segments": list,
    }
    shape(choices, {"choices": [way]}, "plan --recompute auto")
    most = str(doc["max_batch"])
    for batch, status, fits in ((most, 0, True), (str(int(most) + 1), 4, False)):
        out = run("plan", "mlp", "--batch", batch, *small, "--json", status=status).stdout
        doc = json.loads(out)
        shape(doc, wanted, f"plan of {batch}")
        if (
            doc["fits"] is not fits
            or (doc["verdict"] is None) is not fits
            or doc["max_batch"] is not None
        ):
            fail(
                f"plan of {batch}: fits {doc['fits']}, verdict {doc['verdict']}, max_batch {doc['max_batch']}"
            )
    for arguments in (
        ["nothing"],
        [],
        ["mlp", "--batch", "0"],
        ["mlp", "--batch", "-1"],
        ["mlp", "--device", "cuda:0"],
        ["mlp", "--device", "sim:0?capcity=1GiB"],
    ):
        if run("plan", *arguments, "--json", status=2).stdout:
            fail(f"plan {arguments}: a failure with something on standard output")


def check_alloc():
    doc = document(
        "bench",
        "alloc",
        "--quick",
        "--max-live",
        "1MiB",
        "--min-bytes",
        "4KiB",
        "--max-bytes",
        "4KiB",
    )
    if doc is None:
        return
    shape(
        doc,
        {
            "clock": str,
            "rows": [
                {
                    "allocator": str,
                    "pattern": str,
                    "nbytes": int,
                    "threads": int,
                    "live_blocks": int,
                    "ns_per_pair": number,
                }
            ],
        },
        "alloc",
    )
    if failures:
        return
    if {row["pattern"] for row in doc["rows"]} != {"same", "random"} or {
        row["threads"] for row in doc["rows"]
    } != {1, 4}:
        fail(f"alloc: {doc['rows'][:2]}")
    missing = {"ferry", "malloc", "jemalloc", "mimalloc"} - {
        row["allocator"] for row in doc["rows"]
    }
    if any(f"{name} is left out" not in (doc["left_out"] or "") for name in missing):
        fail(f"alloc: no row of {missing}, and left_out says {doc['left_out']!r}")


def check_memory():
    with tempfile.TemporaryDirectory() as folder:
        events, snapshot = os.path.join(folder, "events.jsonl"), os.path.join(
            folder, "snapshot.json"
        )
        run(
            "experiment",
            "roundtrip",
            "--device",
            "sim:0",
            "--iters",
            "2",
            "--record",
            events,
            "--snapshot",
            snapshot,
        )
        doc = document("replay", events)
        if doc is not None:
            shape(
                doc,
                {
                    "rows": [
                        {
                            "file": str,
                            "pool": str,
                            "policy": str,
                            "events": int,
                            "peak_requested_bytes": int,
                            "peak_reserved_bytes": int,
                            "reserved_per_peak": number,
                            "segments": int,
                            "refusals": int,
                        }
                    ]
                },
                "replay",
            )
        refused = run(
            "replay", events, "--pool", "sim:0", "--limit", "4KiB", "--json", status=4
        ).stdout
        shape(
            json.loads(refused),
            {
                "limit_bytes": int,
                "rows": [
                    {
                        "refusals": int,
                        "refused_event": int,
                        "refused_bytes": int,
                        "refused_text": str,
                    }
                ],
            },
            "replay --limit",
        )
        doc = document("memory", snapshot)
        if doc is not None:
            shape(
                doc,
                {
                    "device": str,
                    "pools": [{"pool": str, "kind": str, "live_bytes": int, "reserved_bytes": int}],
                    "categories": list,
                    "scopes": list,
                    "alloc_stats": [{"stage": str, "count": int}],
                },
                "memory",
            )
        for command, file in (
            ("replay", snapshot),
            ("memory", events),
            ("replay", folder),
            ("memory", os.path.join(folder, "none")),
        ):
            if run(command, file, "--json", status=1).stdout:
                fail(f"{command} {file}: a failure with something on standard output")


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
check_parallel()
check_speedups()
check_train()
check_bench_train()
check_bench_layers()
check_others()
check_plan()
check_alloc()
check_memory()
check_statuses()
if failures == 0:
    print("JSON and bars hold" + (" (some skipped, see above)" if skipped else ""))
sys.exit(1 if failures else 77 if skipped else 0)
