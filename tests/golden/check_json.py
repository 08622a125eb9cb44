"""Reads the JSON of the ferry command and checks keys, types and bars. Run by test_json.sh with
$FERRY, the command.

Every key of a shape must be there with the type given; others may be added. No times are asserted,
only that they are numbers.
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


class Unusable(Exception):
    """A document without what the rest of a check reads; what it lacks is reported."""


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def same(what, got, want):
    if got != want:
        fail(f"{what}: {got}, not {want}")


def holds(what, condition, got):
    if not condition:
        fail(f"{what}: {got}")


def run(command, *arguments, status=0):
    """command: words with spaces between; arguments: words that may have spaces."""
    arguments = (*command.split(), *arguments)
    done = subprocess.run(
        [FERRY, *arguments], capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode != status:
        fail(f"ferry {' '.join(arguments)}: {done.returncode}, not {status}: {done.stderr[:300]}")
    return done.stdout


def document(wanted, command, *arguments, status=0):
    """The document of the command, which has the shape; run's arguments."""
    text = run(command, *arguments, "--json", status=status)
    before = failures
    try:
        value = json.loads(text)
        shape(value, wanted, command)
    except ValueError as error:
        fail(f"ferry {command} {' '.join(arguments)} --json: {error}: {text[:200]!r}")
    if failures > before:
        raise Unusable
    return value


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


def clocked(*rows):
    """The shape of a document with a clock, and rows of that shape."""
    return keys("str: clock", rows=[keys(*rows)])


STATISTICS = keys(
    "int: rounds most_rounds confidence_percent resamples seed",
    "number?: until_percent",
    "str?: warm_up",
    "str: interval",
)
MACHINE = keys("int: cores", "number?: load_1min", "str?: governor")


def check_roundtrip(device):
    variants = keys(
        "str: name",
        "spread: ns_per_iter model_ns_per_iter",
        "number: uploads_per_iter downloads_per_iter bytes_per_iter",
    )
    wanted = keys(
        "str: experiment device", "int: size iters", "number: max_abs_diff", variants=[variants]
    )
    doc = document(wanted, f"experiment roundtrip --device {device} --iters 10")
    same("roundtrip: size, iters", [doc["size"], doc["iters"]], [200, 10])
    rows = {row["name"]: row for row in doc["variants"]}
    same("roundtrip: variants", sorted(rows), ["copies", "host", "resident"])
    for name, want in (("host", [0, 0, 0]), ("resident", [0, 0, 0]), ("copies", [2, 1, 480000])):
        got = [rows[name][key + "_per_iter"] for key in ("uploads", "downloads", "bytes")]
        same(f"roundtrip on {device}: uploads, downloads and bytes of {name}", got, want)
        has_model_ns = rows[name]["model_ns_per_iter"] is not None
        same(f"roundtrip: {name} has model time", has_model_ns, device != "host")
    difference = doc["max_abs_diff"]
    holds(f"roundtrip on {device}: max_abs_diff", 0 <= difference <= 1e-3, difference)


def check_minibatch(device):
    global skipped
    runs = keys(
        "str: name",
        "int: batch epochs uploads downloads bytes_up bytes_down",
        "number: lr",
        "spread: sec_per_epoch model_sec_per_epoch",
        losses=[number],
    )
    doc = document({"runs": [runs]}, f"experiment minibatch --device {device} --init zero")
    names = [row["name"] for row in doc["runs"]]
    same("minibatch: runs", names, ["gd", "sgd", "mini100", "mini10"])
    same("minibatch: batches", [row["batch"] for row in doc["runs"]], [1500, 1, 100, 10])
    same("minibatch: rates", [row["lr"] for row in doc["runs"]], [1, 0.005, 0.4, 0.05])
    same("minibatch: epochs", [row["epochs"] for row in doc["runs"]], [10, 2, 2, 2])
    for row, recorded in zip(doc["runs"], (10, 15, 15, 15)):
        got = (len(row["losses"]), row["downloads"], row["bytes_down"])
        what = f"minibatch {row['name']}: losses, downloads, bytes down"
        same(what, got, (recorded, recorded, 4 * recorded))
    uploads = doc.get("data_uploads", 0) + sum(row["uploads"] for row in doc["runs"])
    same("minibatch: uploads of the data set", uploads, 1)
    if not str(doc.get("data", "")).endswith("airfoil_self_noise.dat"):
        print("skipped: the losses' bars need the airfoil data ($FERRY_DATA, else data/)")
        skipped += 1
        return
    published = [0.2757, 0.2503, 0.2465, 0.2455, 0.2451, 0.2451, 0.2453, 0.2456, 0.2462, 0.2470]
    for i, (loss, want) in enumerate(zip(doc["runs"][0]["losses"], published)):
        holds(f"minibatch gd on {device}: loss {i + 1}, not {want}", abs(loss - want) <= 5e-4, loss)
    for row in doc["runs"]:
        last = row["losses"][-1]
        holds(f"minibatch {row['name']} on {device}: last loss", 0.2416 <= last <= 0.260, last)


def check_parallel():
    runs = keys(
        "int: devices",
        "number: first_loss last_loss difference worst_tensor",
        "number: peer_bytes_per_step peer_transfers_per_step model_ns_per_step ns_per_step",
        "str: replicas_equal status",
    )
    wanted = keys("str: model data clock refusal", "int: batch steps", "number: lr", runs=[runs])
    doc = document(wanted, "experiment parallel lenet --batch 32 --steps 3 --device sim:0")
    same("parallel: devices", [row["devices"] for row in doc["runs"]], [1, 2, 4])
    once = doc["runs"][1]["peer_bytes_per_step"] / 2
    for row in doc["runs"]:
        n = row["devices"]
        got = (row["status"], row["replicas_equal"], row["peer_bytes_per_step"])
        same(f"parallel on {n}", got, ("ok", "yes", 2 * (n - 1) * once))
        holds(f"parallel on {n}", row["difference"] <= 1e-5, row)
    holds("parallel: refusal", "lives on sim:3" in doc["refusal"], doc["refusal"])


def check_speedups():
    wanted = clocked(
        "int: row",
        "str: technique compared unit status holds",
        "number?: without effect",
        "number: with",
    )
    doc = document(wanted, "experiment speedups --device sim:0")
    same("speedups: rows", [row["row"] for row in doc["rows"]], [*range(1, 20)])
    # Statuses and figures of each row: tests/unit/tools/test_speedups.sh.
    for which in (3, 4, 5, 8, 9, 10, 11, 14, 15, 16, 18, 19):
        row = doc["rows"][which - 1]
        holds("speedups: no effect", row["effect"] > 1, row)
    doc = document({"rows": [keys("int: row")]}, "experiment speedups --only 12,3")
    same("speedups --only 12,3: rows", [row["row"] for row in doc["rows"]], [3, 12])


def check_train():
    crossed = keys("int: count bytes")
    wanted = keys(
        "str: model device clock",
        "int: params steps skipped_steps epochs",
        "number: test_accuracy images_per_s",
        train_loss=[number],
        ledger=keys("int: syncs device_allocs_steady", uploads=crossed, downloads=crossed),
    )
    small = "--limit-samples 256 --batch 32 --epochs 2 --log-every 4"
    doc = document(wanted, f"train mlp --device sim:0 {small}")
    got = (doc["model"], doc["params"], doc["steps"], doc["epochs"], len(doc["train_loss"]))
    same("train", got, ("mlp", 101770, 16, 2, 4))
    same("train: clock", doc["clock"], "wall")
    same("train: steady allocations", doc["ledger"]["device_allocs_steady"], 0)
    holds("train: accuracy", 0 <= doc["test_accuracy"] <= 1, doc["test_accuracy"])


def check_bench_train():
    wanted = clocked(
        "str: case mode",
        "spread: ns_per_step",
        "number: worst_ns_per_step",
        "number?: ns_per_op batch images_per_s roofline_share model_ns_per_step",
    )
    doc = document(wanted, "bench train --case chain --device sim:0 --rounds 1 --round-ms 1")
    same("bench train: modes", {row["mode"] for row in doc["rows"]}, {"eager", "graph"})


def check_bench_layers():
    wanted = clocked(
        "str: model layer direction type",
        "int: count batch",
        "spread: ns",
        "number: worst_ns share",
        "number?: gflops gb_per_s roofline_share model_ns",
        "str?: implementation",
    )
    command = "bench train --layers --case mnist --device host --rounds 1 --round-ms 1"
    doc = document(wanted, command)
    names, ways = ("conv1", "conv2", "fc1", "fc2"), ("forward", "backward input", "backward params")
    ways = {(name, way) for name in names for way in ways} - {("conv1", "backward input")}
    found = {(row["model"], row["layer"], row["direction"]) for row in doc["rows"]}
    wanted = {(model, *way) for model in ("mnist", "mnist2018") for way in ways}
    same("bench train --layers", {key for key in found if key[1] in names}, wanted)
    products = [row for row in doc["rows"] if row["type"] in ("conv2d", "linear")]
    others = [row for row in doc["rows"] if row not in products]
    holds("bench train --layers: no other layers", others, doc["rows"])
    for row in products:
        is_slow = row["implementation"] == "plain loops" or row["implementation"].startswith("ref")
        holds("bench train --layers", row["gflops"] > 0 and not is_slow, row)
    for row in others:
        holds("bench train --layers", row["gb_per_s"] > 0, row)


def check_link_rows(doc, mode, direction, sizes, pieces):
    rows = [row for row in doc["rows"] if (row["mode"], row["direction"]) == (mode, direction)]
    what = f"link by {doc['clock']}: {mode} {direction}"
    moved = [(row["nbytes"], row["pieces"]) for row in rows]
    same(f"{what}: bytes, pieces", moved, [(size, pieces) for size in sizes])
    copies = {row["copies"] for row in rows}
    if mode == "loop":
        same(f"{what}: copies", copies, {pieces})
    if mode == "coalesced" and doc["clock"] == "model":
        same(f"{what}: copies", copies, {1})


def check_link(device):
    rows = keys(
        "str: mode direction clock",
        "int: nbytes pieces copies",
        "spread: ns",
        "number: bytes_per_s",
    )
    wanted = keys("str: experiment clock", statistics=STATISTICS, machine=MACHINE, rows=[rows])
    doc = document(wanted, f"experiment link --device {device} --sizes 4,4KiB,1MiB --pieces 256")
    clock = "model" if device.startswith("sim") else "wall"
    clocks = {doc["clock"]} | {row["clock"] for row in doc["rows"]}
    same(f"link on {device}: clocks", clocks, {clock})
    for direction in ("up", "down"):
        for mode in ("pinned", "staged"):
            check_link_rows(doc, mode, direction, [4, 4096, 1 << 20], 1)
        for mode in ("loop", "coalesced"):
            check_link_rows(doc, mode, direction, [1024, 1 << 20], 256)


def check_overlap(device):
    overlap = keys(
        "int: steps",
        "spread: pipelined_ns_per_step serial_ns_per_step",
        "number: upload_ns compute_ns download_ns",
    )
    wanted = keys("str: clock", overlap=overlap)
    # the model clock needs no arithmetic
    where = "sim:0?numerics=off" if device == "sim:0" else device + " --compute 1"
    doc = document(wanted, f"experiment link --overlap --steps 16 --device {where}")
    o = doc["overlap"]
    longest = max(o["upload_ns"], o["compute_ns"], o["download_ns"])
    overlaps = 0.999 * longest <= o["pipelined_ns_per_step"] <= 1.02 * longest
    holds(f"link --overlap on {device}", overlaps or doc["clock"] != "model", o)


def check_vectorize():
    variants = keys("str: name via", "number?: gflops", "number: max_abs_err", "spread: ns")
    doc = document({"variants": [variants]}, "experiment vectorize --device sim:0")
    for row in doc["variants"]:
        holds("vectorize: error", 0 <= row["max_abs_err"] <= 1e-3, row)
    names = sorted({row["name"] for row in doc["variants"]})
    same("vectorize: variants", names, ["block", "column", "element", "full"])


def check_dispatch():
    rows = keys("str: op", "spread: ns_per_op peer_ns_per_op", "str?: peer")
    document({"rows": [rows]}, "bench dispatch --device host")


def check_info():
    wanted = keys(
        "str: version host_allocator",
        devices=[keys("str: spec")],
        plugins=[keys("str: name reason", "bool: loaded")],
    )
    doc = document(wanted, "info")
    holds("info: no host", "host" in [device["spec"] for device in doc["devices"]], doc)


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
    largest = {"largest": [keys("str: recompute", "int: f32 bf16")]}
    doc = document(wanted | largest, "plan mlp --batch 64 --fit " + small)
    same("plan: categories", sorted(doc["by_category"]), CATEGORIES)
    same("plan: sum of categories", sum(doc["by_category"].values()), doc["peak_bytes"])
    got = (doc["model"], doc["batch"], doc["params"], doc["fits"], doc["verdict"])
    same("plan", got, ("mlp", 64, 101770, True, None))
    way = keys(
        "str: recompute",
        "int: saved_bytes added_flops reserved_bytes pinned_bytes step_model_ns",
        "bool: fits taken",
        "list: segments",
    )
    document({"choices": [way]}, "plan gpt --batch 8 --recompute auto")
    for batch, status in ((doc["max_batch"], 0), (doc["max_batch"] + 1, 4)):
        doc = document(wanted, f"plan mlp --batch {batch} {small}", status=status)
        got = (doc["fits"], doc["verdict"] is None, doc["max_batch"])
        same(f"plan of {batch}: fits, no verdict, max_batch", got, (not status, not status, None))
    for arguments in (
        "nothing",
        "",
        "mlp --batch 0",
        "mlp --batch -1",
        "mlp --device cuda:0",
        "mlp --device sim:0?capcity=1GiB",
    ):
        same(f"plan {arguments}: standard output", run(f"plan {arguments} --json", status=2), "")


def check_alloc():
    wanted = clocked(
        "str: allocator pattern", "int: nbytes threads live_blocks", "number: ns_per_pair"
    )
    command = "bench alloc --quick --max-live 1MiB --min-bytes 4KiB --max-bytes 4KiB"
    doc = document(wanted, command)
    same("alloc: patterns", {row["pattern"] for row in doc["rows"]}, {"same", "random"})
    same("alloc: threads", {row["threads"] for row in doc["rows"]}, {1, 4})
    found = {row["allocator"] for row in doc["rows"]}
    for name in {"ferry", "malloc", "jemalloc", "mimalloc"} - found:
        is_named = f"{name} is left out" in (doc["left_out"] or "")
        holds(f"alloc: no row of {name}; left_out", is_named, doc["left_out"])


def check_memory():
    with tempfile.TemporaryDirectory() as folder:
        events = os.path.join(folder, "events.jsonl")
        snapshot = os.path.join(folder, "snapshot.json")
        command = "experiment roundtrip --device sim:0 --iters 2 --record"
        run(command, events, "--snapshot", snapshot)
        rows = keys(
            "str: file pool policy",
            "int: events peak_requested_bytes peak_reserved_bytes segments refusals",
            "number: reserved_per_peak",
        )
        document({"rows": [rows]}, "replay", events)
        rows = keys("int: refusals refused_event refused_bytes", "str: refused_text")
        wanted = keys("int: limit_bytes", rows=[rows])
        document(wanted, "replay", events, "--pool", "sim:0", "--limit", "4KiB", status=4)
        wanted = keys(
            "str: device",
            "list: categories scopes",
            pools=[keys("str: pool kind", "int: live_bytes reserved_bytes")],
            alloc_stats=[keys("str: stage", "int: count")],
        )
        document(wanted, "memory", snapshot)
        for command, other in (("replay", snapshot), ("memory", events)):
            for file in (other, folder, os.path.join(folder, "none")):
                same(f"{command} {file}: output", run(command, file, "--json", status=1), "")


def check_statuses():
    run("experiment roundtrip --device sim:0?capacity=1KiB", status=4)  # out of memory
    run("experiment roundtrip --device sim:0?limit=64KiB", status=4)
    run("experiment roundtrip --size -3", status=2)
    run("experiment roundtrip --device sim:0?capcity=1GiB", status=2)
    run("experiment nothing", status=2)
    run("nothing", status=2)


def main():
    on_devices = (check_roundtrip, check_minibatch, check_link, check_overlap)
    checks = [(each, (device,)) for device in ("sim:0", "host") for each in on_devices]
    checks += [
        (each, ())
        for each in (
            check_parallel,
            check_speedups,
            check_train,
            check_bench_train,
            check_bench_layers,
            check_vectorize,
            check_dispatch,
            check_info,
            check_plan,
            check_alloc,
            check_memory,
            check_statuses,
        )
    ]
    for check, arguments in checks:
        try:
            check(*arguments)
        except Unusable:
            continue
    if failures == 0:
        print("JSON and bars hold" + (" (some skipped, see above)" if skipped else ""))
    sys.exit(1 if failures else 77 if skipped else 0)


main()
