"""Reads the JSON of the ferry command and checks keys, types and bars. Run by test_json.sh with $FERRY, the command.

Every key of a shape must be there with the type given; others may be added. No times are asserted, only that they are numbers.
"""

import json
import os
import subprocess
import sys
import tempfile

FERRY = os.environ["FERRY"]
number = (int, float)
nothing = type(None)
TYPES = {
    "bool": bool,
    "int": int,
    "int?": (int, nothing),
    "list": list,
    "number": number,
    "number?": (*number, nothing),
    "str": str,
    "str?": (str, nothing),
}
failures = 0
skipped = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def run(command, *arguments, status=0):
    """command: words with spaces between; arguments: words that may have spaces."""
    arguments = (*command.split(), *arguments)
    done = subprocess.run(
        [FERRY, *arguments], capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode != status:
        fail(
            f"ferry {' '.join(arguments)}: exit status {done.returncode}, not {status}: {done.stderr[:300]}"
        )
    return done


def document(command, *arguments):
    text = run(command, *arguments, "--json").stdout
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"ferry {command} {' '.join(arguments)} --json: {error}: {text[:200]!r}")
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


def keys(*rows, **inner):
    """{key: type}, of rows "TYPE: KEY KEY ..."; inner: keys with a shape of their own.

    The type "spread" is that of a median measured in rounds, with the keys beside it."""
    wanted = dict(inner)
    for kind, names in (row.split(": ") for row in rows):
        for name in names.split():
            if kind == "spread":
                ends = ("", "_q1", "_q3", "_low", "_high", "_half_percent")
                wanted |= {name + end: TYPES["number?"] for end in ends} | {"rounds": int}
            else:
                wanted[name] = TYPES[kind]
    return wanted


STATISTICS = keys(
    "int: rounds most_rounds confidence_percent resamples seed",
    "number?: until_percent",
    "str?: warm_up",
    "str: interval",
)
MACHINE = keys("int: cores", "number?: load_1min", "str?: governor")


def named(rows, name):
    return next((row for row in rows if row.get("name") == name), {})


def check_roundtrip(device):
    doc = document(f"experiment roundtrip --device {device} --iters 10")
    if doc is None:
        return
    variants = keys(
        "str: name",
        "spread: ns_per_iter model_ns_per_iter",
        "number: uploads_per_iter downloads_per_iter bytes_per_iter",
    )
    wanted = keys(
        "str: experiment device", "int: size iters", "number: max_abs_diff", variants=[variants]
    )
    shape(doc, wanted, "roundtrip")
    if failures:
        return
    if [doc["size"], doc["iters"]] != [200, 10]:
        fail(f"roundtrip: size {doc['size']}, iters {doc['iters']}")
    if sorted(v["name"] for v in doc["variants"]) != ["copies", "host", "resident"]:
        fail("roundtrip: variants " + str([v["name"] for v in doc["variants"]]))
    resident, copies = named(doc["variants"], "resident"), named(doc["variants"], "copies")
    for name, row, want in (("resident", resident, [0, 0, 0]), ("copies", copies, [2, 1, 480000])):
        got = [row.get(key + "_per_iter") for key in ("uploads", "downloads", "bytes")]
        if got != want:
            fail(f"roundtrip on {device}: uploads, downloads and bytes of {name} are {got}")
    if not 0 <= doc["max_abs_diff"] <= 1e-3:
        fail(f"roundtrip on {device}: max_abs_diff {doc['max_abs_diff']}")
    if device.startswith("sim") and not all(
        isinstance(v["model_ns_per_iter"], number) for v in (resident, copies)
    ):
        fail("roundtrip on sim: no model time")


def check_minibatch(device):
    global skipped
    doc = document(f"experiment minibatch --device {device} --init zero")
    if doc is None:
        return
    runs = keys(
        "str: name",
        "int: batch epochs uploads downloads bytes_up bytes_down",
        "number: lr",
        "spread: sec_per_epoch model_sec_per_epoch",
        losses=[number],
    )
    shape(doc, {"runs": [runs]}, "minibatch")
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
    doc = document("experiment parallel lenet --batch 32 --steps 3 --device sim:0")
    if not doc:
        return
    runs = keys(
        "int: devices",
        "number: first_loss last_loss difference worst_tensor",
        "number: peer_bytes_per_step peer_transfers_per_step model_ns_per_step ns_per_step",
        "str: replicas_equal status",
    )
    wanted = keys("str: model data clock refusal", "int: batch steps", "number: lr", runs=[runs])
    shape(doc, wanted, "parallel")
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
    doc = document("experiment speedups --device sim:0")
    if not doc:
        return
    rows = keys(
        "int: row",
        "str: technique compared unit status holds",
        "number?: without effect",
        "number: with",
    )
    shape(doc, keys("str: clock", rows=[rows]), "speedups")
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
    doc = document("experiment speedups --only 12,3")
    if doc and [row["row"] for row in doc["rows"]] != [3, 12]:
        fail("speedups --only 12,3: other rows")


def check_train():
    doc = document("train mlp --device sim:0 --limit-samples 256 --batch 32 --epochs 2 --log-every 4")
    if doc is None:
        return
    crossed = keys("int: count bytes")
    wanted = keys(
        "str: model device clock",
        "int: params steps skipped_steps epochs",
        "number: test_accuracy images_per_s",
        train_loss=[number],
        ledger=keys("int: syncs device_allocs_steady", uploads=crossed, downloads=crossed),
    )
    shape(doc, wanted, "train")
    if failures:
        return
    got = (doc["model"], doc["params"], doc["steps"], doc["epochs"], len(doc["train_loss"]))
    if got != ("mlp", 101770, 16, 2, 4):
        fail(f"train: {doc}")
    if doc["ledger"]["device_allocs_steady"] != 0 or not 0 <= doc["test_accuracy"] <= 1:
        fail(f"train: {doc}")


def check_bench_train():
    doc = document("bench train --case chain --device sim:0 --rounds 1 --round-ms 1")
    if doc is None:
        return
    rows = keys(
        "str: case mode",
        "spread: ns_per_step",
        "number: worst_ns_per_step",
        "number?: ns_per_op batch images_per_s roofline_share model_ns_per_step",
    )
    shape(doc, keys("str: clock", rows=[rows]), "bench train")
    if not failures and {row["mode"] for row in doc["rows"]} != {"eager", "graph"}:
        fail(f"bench train: modes {[row['mode'] for row in doc['rows']]}")


def check_bench_layers():
    doc = document("bench train --layers --case mnist --device host --rounds 1 --round-ms 1")
    if doc is None:
        return
    rows = keys(
        "str: model layer direction type",
        "int: count batch",
        "spread: ns",
        "number: worst_ns share",
        "number?: gflops gb_per_s roofline_share model_ns",
        "str?: implementation",
    )
    shape(doc, keys("str: clock", rows=[rows]), "bench train --layers")
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


def check_link_rows(doc, mode, direction, sizes, pieces):
    rows = [row for row in doc["rows"] if (row["mode"], row["direction"]) == (mode, direction)]
    what = f"link by {doc['clock']}: {mode} {direction}"
    if [row["nbytes"] for row in rows] != sizes or {row["pieces"] for row in rows} != {pieces}:
        fail(f"{what} moves {[(row['nbytes'], row['pieces']) for row in rows]}")
    copies = {row["copies"] for row in rows}
    if mode == "loop" and copies != {pieces}:
        fail(f"{what} takes {copies} copies")
    if mode == "coalesced" and doc["clock"] == "model" and copies != {1}:
        fail(f"{what} takes {copies} copies")


def check_link(device):
    doc = document(f"experiment link --device {device} --sizes 4,4KiB,1MiB --pieces 256")
    if doc is None:
        return
    rows = keys(
        "str: mode direction clock",
        "int: nbytes pieces copies",
        "spread: ns",
        "number: bytes_per_s",
    )
    wanted = keys("str: experiment clock", statistics=STATISTICS, machine=MACHINE, rows=[rows])
    shape(doc, wanted, "link")
    if failures:
        return
    clock = "model" if device.startswith("sim") else "wall"
    if doc["clock"] != clock or {row["clock"] for row in doc["rows"]} != {clock}:
        fail(f"link on {device}: the clock is not {clock}")
    for mode, sizes, pieces in (
        ("pinned", [4, 4096, 1 << 20], 1),
        ("staged", [4, 4096, 1 << 20], 1),
        ("loop", [1024, 1 << 20], 256),
        ("coalesced", [1024, 1 << 20], 256),
    ):
        for direction in ("up", "down"):
            check_link_rows(doc, mode, direction, sizes, pieces)
    # the model clock needs no arithmetic
    where = "sim:0?numerics=off" if device == "sim:0" else device + " --compute 1"
    doc = document(f"experiment link --overlap --steps 16 --device {where}")
    if doc is None:
        return
    overlap = keys(
        "int: steps",
        "spread: pipelined_ns_per_step serial_ns_per_step",
        "number: upload_ns compute_ns download_ns",
    )
    shape(doc, keys("str: clock", overlap=overlap), "link --overlap")
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
    doc = document("experiment vectorize --device sim:0")
    if doc is not None:
        variants = keys("str: name via", "number?: gflops", "number: max_abs_err", "spread: ns")
        shape(doc, {"variants": [variants]}, "vectorize")
        for row in doc["variants"]:
            if not 0 <= row["max_abs_err"] <= 1e-3:
                fail(f"vectorize {row['name']} via {row['via']}: error {row['max_abs_err']}")
        names = sorted({row["name"] for row in doc["variants"]})
        if names != ["block", "column", "element", "full"]:
            fail(f"vectorize: variants {names}")
    doc = document("bench dispatch --device host")
    if doc is not None:
        rows = keys("str: op", "spread: ns_per_op peer_ns_per_op", "str?: peer")
        shape(doc, {"rows": [rows]}, "dispatch")
    doc = document("info")
    if doc is not None:
        wanted = keys(
            "str: version host_allocator",
            devices=[keys("str: spec")],
            plugins=[keys("str: name reason", "bool: loaded")],
        )
        shape(doc, wanted, "info")
        if "host" not in [device["spec"] for device in doc["devices"]]:
            fail("info: no host")


CATEGORIES = ["activations", "gradients", "optimizer_state", "staging", "weights", "workspace"]


def check_plan():
    wanted = keys(
        "str: model version device clock",
        "int: batch peak_bytes reserved_bytes limit_bytes step_model_ns step_flops",
        "int?: params max_batch",
        "bool: fits",
        "str?: verdict",
        by_category=keys("int: " + " ".join(CATEGORIES)),
    )
    small = "--device sim:0?limit=16MiB"
    doc = document("plan mlp --batch 64 --fit " + small)
    if doc is None:
        return
    shape(doc, wanted, "plan")
    shape(doc, {"largest": [keys("str: recompute", "int: f32 bf16")]}, "plan --fit")
    if failures:
        return
    if (
        sorted(doc["by_category"]) != CATEGORIES
        or sum(doc["by_category"].values()) != doc["peak_bytes"]
    ):
        fail(f"plan: {doc['by_category']} is not {doc['peak_bytes']}")
    got = (doc["model"], doc["batch"], doc["params"], doc["fits"], doc["verdict"])
    if got != ("mlp", 64, 101770, True, None):
        fail(f"plan: {doc}")
    choices = document("plan gpt --batch 8 --recompute auto")
    way = keys(
        "str: recompute",
        "int: saved_bytes added_flops reserved_bytes pinned_bytes step_model_ns",
        "bool: fits taken",
        "list: segments",
    )
    shape(choices, {"choices": [way]}, "plan --recompute auto")
    most = str(doc["max_batch"])
    for batch, status, fits in ((most, 0, True), (str(int(most) + 1), 4, False)):
        out = run(f"plan mlp --batch {batch} {small} --json", status=status).stdout
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
        "nothing",
        "",
        "mlp --batch 0",
        "mlp --batch -1",
        "mlp --device cuda:0",
        "mlp --device sim:0?capcity=1GiB",
    ):
        if run(f"plan {arguments} --json", status=2).stdout:
            fail(f"plan {arguments}: a failure with something on standard output")


def check_alloc():
    doc = document("bench alloc --quick --max-live 1MiB --min-bytes 4KiB --max-bytes 4KiB")
    if doc is None:
        return
    rows = keys("str: allocator pattern", "int: nbytes threads live_blocks", "number: ns_per_pair")
    shape(doc, keys("str: clock", rows=[rows]), "alloc")
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
            "experiment roundtrip --device sim:0 --iters 2 --record",
            events,
            "--snapshot",
            snapshot,
        )
        doc = document("replay", events)
        rows = keys(
            "str: file pool policy",
            "int: events peak_requested_bytes peak_reserved_bytes segments refusals",
            "number: reserved_per_peak",
        )
        if doc is not None:
            shape(doc, {"rows": [rows]}, "replay")
        limited = ["--pool", "sim:0", "--limit", "4KiB"]
        refused = run("replay", events, *limited, "--json", status=4).stdout
        rows = keys("int: refusals refused_event refused_bytes", "str: refused_text")
        shape(json.loads(refused), keys("int: limit_bytes", rows=[rows]), "replay --limit")
        doc = document("memory", snapshot)
        if doc is not None:
            wanted = keys(
                "str: device",
                "list: categories scopes",
                pools=[keys("str: pool kind", "int: live_bytes reserved_bytes")],
                alloc_stats=[keys("str: stage", "int: count")],
            )
            shape(doc, wanted, "memory")
        for command, file in (
            ("replay", snapshot),
            ("memory", events),
            ("replay", folder),
            ("memory", os.path.join(folder, "none")),
        ):
            if run(command, file, "--json", status=1).stdout:
                fail(f"{command} {file}: a failure with something on standard output")


def check_statuses():
    run("experiment roundtrip --device sim:0?capacity=1KiB", status=4)  # out of memory
    run("experiment roundtrip --device sim:0?limit=64KiB", status=4)
    run("experiment roundtrip --size -3", status=2)
    run("experiment roundtrip --device sim:0?capcity=1GiB", status=2)
    run("experiment nothing", status=2)
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
