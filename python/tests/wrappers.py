"""Objects with handles for state_machine.py: made, used, copied, closed and used then; calls with
paths and lengths of every kind.

Each class has a row in KINDS: how one is made, and for each public method a use that checks what it
does, also on an object that is closed or used up. A class or a method without one fails.
"""

import copy
import io
import math
import os
import pickle
import shutil
import tempfile
from operator import index
from pathlib import Path

import numpy

import ferry
import test_copies
import test_files
import test_numbers
from ferry import _types, train
from mirror import read
from operands import Index

GONE = ValueError  # "is closed, waited for, or part of something else already"
VALUES = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def refused(kinds, function, *given, **options):
    try:
        result = function(*given, **options)
    except kinds as error:
        assert str(error), type(error)
        return
    raise AssertionError(f"not refused by {kinds}: {result!r}")


def check(is_right, *shown):
    assert is_right, shown


class Other:
    """An object, and what is known of it."""

    def __init__(self, kind, made, **facts):
        self.kind, self.made, self.is_gone = kind, made, False
        self.__dict__.update(facts)

    def expect(self, wanted, function, *given, **options):
        """The result is as wanted; or the object is gone, and the call is refused."""
        if self.is_gone:
            return refused(GONE, function, *given, **options)
        got = function(*given, **options)
        check(wanted(got) if callable(wanted) else got == wanted and type(got) is type(wanted), got, wanted)
        return got


def is_a(kind):
    return lambda got: type(got) is kind


def is_none(got):
    return got is None


# ---- one function a method ----


def device(way):
    made = ferry.Device("host" if way % 3 == 0 else "sim:0")
    return Other("Device", made, name=made.name)


def close_device(o):
    o.made.close()
    o.is_gone = True
    check(repr(o.made) == "ferry.Device(closed)")


DEVICE = {
    "name": lambda o: check(o.made.name == o.name),
    "info": lambda o: o.expect(lambda f: f["spec"] and f["memory_nbytes"] > 0, o.made.info),
    "facts": lambda o: o.expect(is_a(dict), o.made.facts),
    "clock": lambda o: o.expect(lambda f: f["kind"] in ("model", "wall"), o.made.clock),
    "memory": lambda o: o.expect(lambda f: "weights" in f["by_category"], o.made.memory),
    "wait": lambda o: o.expect(is_none, o.made.wait),
    "supports": lambda o: (o.expect(True, o.made.supports, "add", "f32", "f32"),
                           refused(GONE, o.made.supports, "no_op", "f32")),
    "close": close_device,
    "make": lambda o: o.expect(lambda t: t.device.name == o.name, ferry.zeros, 2, device=o.made),
    "upload": lambda o: o.name != "host" and o.expect(lambda t: read(t).tolist() == [1, 1], ferry.ones(2).upload, o.made),
    "equal": lambda o: check((o.made == ferry.Device(o.name)) == (not o.is_gone)),
    "stream": lambda o: o.expect(is_a(ferry.Stream), ferry.Stream, o.made) if o.is_gone or o.name != "host" else (
        refused(ferry.Unsupported, ferry.Stream, o.made)),
    "model": lambda o: o.expect(is_a(train.Model), train.Model, o.made, train.linear(2, 1), (2,)),
}  # fmt: skip


def ticket(way):
    t = ferry.ones(2, device="sim:0")
    return Other("Ticket", t.ticket if way % 2 else ferry.Stream("sim:0").record())


def on_done(o):
    seen = []
    o.made.on_done(seen.append)
    o.seen = seen


TICKET = {
    "is_done": lambda o: check(o.made.is_done in (True, False)),
    "wait": lambda o: o.expect(is_none, o.made.wait), "on_done": on_done,
    "cancel": lambda o: refused(ferry.Busy, o.made.cancel),
    "repr": lambda o: check(repr(o.made).startswith("ferry.Ticket(")),
}  # fmt: skip


def download(way):
    t = ferry.tensor(VALUES)
    return Other("Download", (t.upload("sim:0") if way % 2 else t).download())


def arrived(o):
    def wanted(t):
        if t is None:
            return True
        o.is_gone = True
        return t.is_host and t.tolist() == VALUES

    return wanted


DOWNLOAD = {
    "wait": lambda o: o.expect(arrived(o), o.made.wait), "poll": lambda o: o.expect(arrived(o), o.made.poll),
    "ticket": lambda o: o.expect(is_a(ferry.Ticket), lambda: o.made.ticket),
}  # fmt: skip


def stream(way):
    return Other("Stream", ferry.Stream("sim:0", ["s", None, ""][way % 3], priority=way % 2))


def in_a_stream(o):
    with o.made as s:
        t = ferry.ones(2, device="sim:0") + 1
    check(s is o.made and read(t).tolist() == [2, 2])


STREAM = {
    "record": lambda o: o.expect(is_a(ferry.Ticket), o.made.record),
    "wait": lambda o: (o.expect(is_none, o.made.wait, o.made.record()), refused(TypeError, o.made.wait, None)),
    "record_event": lambda o: refused(ferry.Unsupported, o.made.record_event, 4096),
    "wait_event": lambda o: refused(ferry.Unsupported, o.made.wait_event, 4096),
    "device": lambda o: check(o.made.device == ferry.Device("sim:0")), "enter": in_a_stream,
    "exit": lambda o: refused(RuntimeError, o.made.__exit__, None, None, None),
}  # fmt: skip


def tape(way):
    return Other("Tape", ferry.Tape(), w=ferry.tensor([1.0, 2.0, 3.0]), at=None)


def use_tape(o):
    """A recording, also after an earlier one."""
    o.made.watch(o.w)
    with o.made as entered:
        loss = ferry.sum(o.w * o.w)
        o.made.backward(loss)
        refused(ferry.InvalidArgument, o.made.backward, loss)
    o.at = [2.0, 4.0, 6.0]
    check(entered is o.made and o.made.grad(o.w).tolist() == o.at)


def grad(o):
    refused(ferry.InvalidArgument, o.made.grad, ferry.ones(2))
    if o.at:
        check(o.made.grad(o.w).tolist() == o.at)


TAPE = {
    "watch": lambda o: (refused(ferry.DtypeMismatch, o.made.watch, ferry.tensor([1])), refused(TypeError, o.made.watch, 3)),
    "backward": use_tape, "grad": grad, "info": lambda o: check(o.made.info()["is_recording"] == 0),
    "alone": lambda o: refused(ferry.InvalidArgument, o.made.backward, ferry.ones(())),
    "exit": lambda o: refused(RuntimeError, o.made.__exit__, None, None, None),
}  # fmt: skip


def without_tape(o):
    w, t = ferry.tensor([3.0]), ferry.Tape()
    t.watch(w)
    with t:
        with o.made as entered:
            z = w * 5
        t.backward(ferry.sum(w * 2 + z))
    check(entered is o.made and t.grad(w).tolist() == [2])


NO_TAPE = {"enter": without_tape, "exit": lambda o: refused(RuntimeError, o.made.__exit__, None, None, None)}


def scope(way):
    kind = way % 4
    made = [ferry.scope("s"), ferry.guard("g"), ferry.scope("w", memory="weights"), ferry.scope("h", autocast="bf16")]
    return Other("scope", made[kind], what=kind)


def in_a_scope(o):
    with o.made as entered:
        check(entered is o.made)
        refused(RuntimeError, o.made.__enter__)
        if o.what == 1:
            refused(ferry.RefusedByGuard, ferry.ones(2).upload, "sim:0")
        if o.what == 3:
            a = ferry.ones((2, 2))
            check((a @ a).dtype == "bf16" and (a + a).dtype == "f32")
    check(ferry.ones(2).upload("sim:0").shape == (2,))


SCOPE = {"name": lambda o: check(o.made.name == "sgwh"[o.what]), "enter": in_a_scope,
         "exit": lambda o: check(o.made.__exit__() is None)}  # fmt: skip


def graph(way):
    w = ferry.zeros(3, device="sim:0")
    made = ferry.Graph("sim:0")
    o = Other("Graph", made, w=w, x=ferry.ones(3, device="sim:0"), total=0.0, is_recorded=False)
    o.is_gone = True  # not yet
    return o


def record_graph(o):
    if o.is_recorded:
        return refused(RuntimeError, o.made.__enter__)
    with o.made:
        ferry.axpy(o.w, 2.0, o.x)
    o.is_recorded, o.is_gone = True, False
    return check(read(o.w).tolist() == [o.total] * 3)


def replay(o):
    if o.expect(is_a(ferry.Ticket), o.made.replay):
        o.total += 2
    check(read(o.w).tolist() == [o.total] * 3, o.total)


GRAPH = {
    "enter": record_graph, "replay": replay, "device": lambda o: check(o.made.device.name == "sim:0"),
    "info": lambda o: o.expect(lambda f: f["requests"] == 1 and f["device"].name == "sim:0", o.made.info),
    "explain": lambda o: o.expect(is_a(list), o.made.explain),
}  # fmt: skip


def layer(way):
    maker = [lambda: train.linear(2, 2), train.flatten, lambda: train.sequential([train.linear(2, 2)]),
             lambda: train.custom(lambda x: x)][way % 4]  # fmt: skip
    return Other("Layer", maker())


def take(o):
    """A model, or a container, takes it over."""
    o.expect(is_a(train.Model), train.Model, "host", o.made, (2,))
    o.is_gone = True


def take_twice(o):
    """A refusal changes nothing, so it is still there."""
    refused(GONE, train.sequential, [o.made, o.made])


LAYER = {"take": take, "twice": take_twice,
         "contain": lambda o: (o.expect(is_a(train.Layer), train.sequential, [o.made]), setattr(o, "is_gone", True)),
         "no layer": lambda o: refused((TypeError, GONE), train.sequential, [o.made, 5])}  # fmt: skip


def model(way):
    name = ["host", "sim:0"][way % 2]
    return Other("Model", train.Model(name, train.linear(2, 1), (2,)), on=name)


def weights(o):
    found = {k: read(v) for k, v in o.made.parameters().items()}
    return found["weight"], found["bias"]


def forward(o):
    w, b = weights(o)
    got = read(o.made(ferry.tensor(VALUES, device=o.on)))
    numpy.testing.assert_allclose(got, numpy.array(VALUES) @ w.T + b, rtol=1e-5)
    refused(ferry.Error, o.made, ferry.tensor([[1.0]], device=o.on))


def save(o):
    w, b = weights(o)
    o.made.save("model.safetensors")
    for value in o.made.parameters().values():
        ferry.fill(value, 0.0)
    check(not weights(o)[0].any())
    o.made.load("model.safetensors")
    check((weights(o)[0] == w).all() and (weights(o)[1] == b).all())
    os.remove("model.safetensors")
    refused(OSError, o.made.load, "model.safetensors")


def go_back(o):
    t = ferry.Tape()
    o.made.watch(t)
    with t:
        o.made.backward(t, ferry.sum(o.made(ferry.tensor(VALUES, device=o.on))))
    check(read(o.made.gradients()["weight"]).tolist() == [[9.0, 12.0]])
    check(read(o.made.gradients()["bias"]).tolist() == [3.0])


MODEL = {
    "call": forward, "save": save, "load": save, "backward": go_back, "watch": go_back, "gradients": go_back,
    "open": lambda o: refused(ferry.Error, train.Model.open, "host", "no model"),
    "names": lambda o: check("lenet" in train.Model.names()), "train": lambda o: check(o.made.train(False).train() is o.made),
    "parameters": lambda o: check([(k, v.shape) for k, v in o.made.parameters().items()] == [("weight", (1, 2)), ("bias", (1,))]),
    "buffers": lambda o: check(o.made.buffers() == {}),
    "info": lambda o: check(o.made.info()["params"] == 3 and o.made.info()["out_dims"] == [1]),
    "repr": lambda o: check("linear" in repr(o.made)),
}  # fmt: skip


def dataset(way):
    return Other("Dataset", train.Dataset(VALUES, [[1.0], [2.0], [3.0]]) if way % 2 else train.Dataset(VALUES, [0, 2, 1]),
                 classes=0 if way % 2 else 3)  # fmt: skip


def split(o):
    a, b = o.made.split(1, -1)
    check((len(a), len(b)) == (1, 2))
    refused(ferry.InvalidArgument, o.made.split, 9)
    refused((TypeError, OverflowError), o.made.split, 1.5)


def read_text(o):
    Path("text").write_bytes(b"abcdefgh")
    check(train.Dataset.read_text("text", 3).info()["dims"] == [3])
    os.remove("text")


DATASET = {
    "info": lambda o: check(o.made.info()["classes"] == o.classes and o.made.info()["dims"] == [2]), "split": split,
    "open": lambda o: refused(ferry.Error, train.Dataset.open, "none"), "read_text": read_text,
    "synthetic_digits": lambda o: check(len(train.Dataset.synthetic_digits(3)) == 3), "len": lambda o: check(len(o.made) == 3),
}  # fmt: skip


def loader(way):
    data = train.Dataset(VALUES, [[1.0], [2.0], [3.0]])
    on = ["host", "sim:0"][way % 2]
    return Other("Loader", train.Loader(on, data, batch=2, shuffle=0), loop=None, on=on)


def epoch(o):
    batches = [(read(x).tolist(), read(y).tolist()) for x, y in o.made]
    check(batches == [(VALUES[:2], [[1.0], [2.0]]), (VALUES[2:], [[3.0]])], batches)
    if o.loop:
        refused((RuntimeError, StopIteration), next, o.loop)
    o.loop = None


def begin(o):
    o.loop = iter(o.made)
    check(read(next(o.loop)[0]).tolist() == VALUES[:2])


def seek(o):
    o.made.seek(0, 1)
    check([read(x).tolist() for x, _ in o.made] == [VALUES[2:]])
    o.loop = None
    refused(ferry.InvalidArgument, o.made.seek, -1)


LOADER = {"epoch": epoch, "begin": begin, "seek": seek, "len": lambda o: check(len(o.made) == 2),
          "info": lambda o: check(o.made.info()["steps"] == 2 and o.made.info()["samples"] == 3)}  # fmt: skip


def optimizer(way):
    w, g = ferry.tensor([1.0, 2.0]), ferry.tensor([0.5, -1.0])
    return Other("Optimizer", train.Optimizer([(w, g)], lr=0.25), w=w, wanted=numpy.array([1.0, 2.0]), rate=0.25)


def step(o):
    o.made.step()
    o.wanted = o.wanted - o.rate * numpy.array([0.5, -1.0])
    numpy.testing.assert_allclose(read(o.w), o.wanted, rtol=1e-5, atol=1e-4)


def set_lr(o):
    o.rate = 0.5 if o.rate == 0.25 else 0.25
    o.made.lr = o.rate
    check(o.made.lr == o.rate)
    for wrong in ("1", None, [1.0]):
        refused(TypeError, setattr, o.made, "lr", wrong)


OPTIMIZER = {"step": step, "lr": set_lr, "options": lambda o: check(o.made.options()["lr"] == o.rate)}


def write_ledger(o):
    for format in ("json", "csv", "text"):
        o.made.write("ledger", format)
    os.remove("ledger")
    refused((ValueError, ferry.Error), o.made.write, "ledger", "xml")


def count_bytes(o):
    before = o.made.totals()
    ferry.ones(3).upload("sim:0")
    since = o.made.totals() - before
    check((since.upload_count, since.upload_nbytes, since.download_count) == (1, 12, 0))


def record_events(o):
    with o.made as entered:
        ferry.ones(2, device="sim:0")
    events = list(ferry.read_events("events"))
    check(entered is o.made and events[-1]["ev"] == "end")
    os.remove("events")


def in_a_budget(o):
    with o.made as entered:
        refused(ferry.RefusedByGuard, ferry.ones(2).upload, "sim:0")
    check(entered is o.made and ferry.ones(2).upload("sim:0").shape == (2,))


def draw(o):
    o.made({"is_epoch_end": True, "epoch": 0, "epoch_step": 1, "epoch_steps": 1, "epochs": 1, "loss": math.nan,
            "samples_per_s": 1.0, "test_accuracy": math.nan})  # fmt: skip
    check("epoch 1/1" in o.made.file.getvalue())


KINDS = {
    "Device": (device, DEVICE), "Ticket": (ticket, TICKET), "Download": (download, DOWNLOAD), "Stream": (stream, STREAM),
    "Tape": (tape, TAPE), "no_tape": (lambda way: Other("no_tape", ferry.no_tape()), NO_TAPE), "scope": (scope, SCOPE),
    "Graph": (graph, GRAPH), "Layer": (layer, LAYER), "Model": (model, MODEL), "Dataset": (dataset, DATASET),
    "Loader": (loader, LOADER), "Optimizer": (optimizer, OPTIMIZER),
    "Totals": (lambda way: Other("Totals", ferry.ledger.totals()), {"copy": lambda o: check(o.made - o.made == copy.copy(o.made) - o.made)}),
    "Ledger": (lambda way: Other("Ledger", ferry.ledger), {
        "totals": count_bytes, "rows": lambda o: check(o.made.rows()[0]["path"] == "" and list(o.made) == o.made.rows()),
        "write": write_ledger, "repr": lambda o: check("uploads" in repr(o.made)),
    }),
    "record": (lambda way: Other("record", ferry.record("events")), {"path": lambda o: check(o.made.path == "events"), "enter": record_events}),
    "budget": (lambda way: Other("budget", ferry.budget("upload=0")), {"text": lambda o: check(o.made.text == "upload=0"), "enter": in_a_budget}),
    "ProgressBar": (lambda way: Other("ProgressBar", train.ProgressBar(io.StringIO())), {
        "call": draw, "close": lambda o: check(o.made.close() is None), "file": lambda o: check(not o.made.file.closed)}),
}  # fmt: skip
# Rules of state_machine.py call them.
TENSOR = {
    "T", "broadcast_to", "device", "download", "download_into", "dtype", "info", "is_host", "item", "name", "nbytes", "ndim", "numpy",
    "pin", "reshape", "send", "shape", "size", "split", "squeeze", "strides", "ticket", "tolist", "transpose", "unsqueeze", "upload", "upload_from",
}  # fmt: skip
WITHOUT_RULES = {"Handle", "Block", "Value", "Status", "_Op"}  # bases, an enumeration, facts of an op


def public(kind):
    return {name for name in dir(kind) if name[0] != "_"} - set(dir(dict) if issubclass(kind, dict) else ())


def check_all():
    """Every class and every method of it has a rule."""
    for kind in test_copies.classes():
        name = kind.__name__
        if name in WITHOUT_RULES:
            continue
        known = TENSOR if name == "Tensor" else set(KINDS[name][1]) if name in KINDS else None
        assert known is not None, f"{kind} has no rule in wrappers.KINDS"
        assert public(kind) <= known, f"{name}: no rule for {public(kind) - known}"
    names = {kind.__name__ for kind in test_copies.classes()}
    assert set(KINDS) <= names, set(KINDS) - names


class Others:
    """The pool of other objects."""

    def __init__(self):
        self.pool, self.next = [], 0

    def make(self, name, way):
        made = KINDS[name][0](way)
        if len(self.pool) < 8:
            self.pool.append(made)
        else:
            self.pool[self.next % 8] = made  # the older one ends, wherever it is
        self.next += 1

    def use(self, i, way):
        if not self.pool:
            self.make(list(KINDS)[i % len(KINDS)], way)
        else:
            o = self.pool[i % len(self.pool)]
            uses = KINDS[o.kind][1]
            list(uses.values())[way % len(uses)](o)

    def copy(self, given, i, how):
        how, is_copy = how
        if given is None:
            made = self.pool or [KINDS[list(KINDS)[i % len(KINDS)]][0](0)]
            given = made[i % len(made)].made
        if not isinstance(given, _types.Handle):
            if isinstance(given, (ferry.Totals, ferry.budget, ferry.record)):
                check(type(how(given)) is type(given))
            return
        if isinstance(given, _types.Value) and is_copy:
            return check(how(given) is given)
        return refused(TypeError, how, given)


COPIES = [(copy.copy, True), (copy.deepcopy, True), (lambda x: copy.deepcopy({"inside": [x]})["inside"][0], True),
          *((lambda x, p=p: pickle.loads(pickle.dumps([x], p))[0], False) for p in range(6))]  # fmt: skip

# ---- paths ----


class Calls(test_files.Paths):
    """The calls of test_files.Paths, on a folder of this process."""

    def runTest(self):
        pass


KEPT = tempfile.TemporaryDirectory()
FOLDER = os.path.join(KEPT.name, "paths")
_calls = Calls()
_calls.setUp()
WRITERS, READERS = _calls.writers, _calls.readers
PATH_CALLS = [*(("write", name) for name in WRITERS), *(("read", name) for name in READERS)]
Path_, Like = Path, test_files.PathLike
GOOD, WRONG, NUL, MISSING, FOLDERS, EMPTY = "good", "wrong", "nul", "missing", "folder", "empty"
PATHS = [
    (GOOD, lambda p: p), (GOOD, os.fsencode), (GOOD, Path_), (GOOD, Like), (GOOD, lambda p: Like(os.fsencode(p))),
    (GOOD, lambda p: p + "é"), (GOOD, lambda p: p + os.fsdecode(b"\xe9")), (GOOD, lambda p: os.fsencode(p) + b"\xff"),
    (GOOD, lambda p: numpy.str_(p)), (GOOD, lambda p: p + " x"), (GOOD, lambda p: p + "%d"),
    *((WRONG, lambda p, v=v: v) for v in (None, 5, 1.5, io.BytesIO(), ["a"], Like(5), {}, True, object(), numpy.array(["a"]), Index(3))),
    (WRONG, lambda p: bytearray(p.encode())), (WRONG, lambda p: memoryview(p.encode())),
    (NUL, lambda p: p + "\0x"), (NUL, lambda p: p.encode() + b"\0"), (NUL, lambda p: Path_(p + "\0x")), (NUL, lambda p: Like(p + "\0")),
    (MISSING, lambda p: p + "-none/x"), (MISSING, lambda p: os.fsencode(p + "-none/x")), (FOLDERS, lambda p: FOLDER),
    (EMPTY, lambda p: ""), (EMPTY, lambda p: b""),
]  # fmt: skip


def call_with_path(call, kind):
    way, name = call
    how, make = kind
    write = WRITERS[name]
    path = os.path.join(FOLDER, name)
    given = make(path)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.mkdir(FOLDER)
    before = set(os.listdir("."))
    if how == GOOD:
        write(given)
        check(os.path.lexists(given), given)
        if name in READERS:
            READERS[name](given)
        shutil.rmtree(os.fspath(given)) if os.path.isdir(given) else os.remove(given)
    else:
        function = write if way == "write" else READERS[name]
        if how in (FOLDERS, EMPTY, MISSING) and name == "checkpoints":
            if how == MISSING and way == "write" or how == FOLDERS and way == "write":
                return
            refused((OSError, ferry.Error, ValueError), function, given)
            return
        kinds = {WRONG: TypeError, NUL: ValueError, MISSING: OSError, FOLDERS: OSError, EMPTY: (OSError, ValueError)}
        refused(kinds[how], function, given)
    check(set(os.listdir(".")) == before and not os.listdir(FOLDER), os.listdir("."), os.listdir(FOLDER))


# ---- lengths ----

SIZES = list(test_numbers.sizes().items())
OPTIONAL = ("sum", "call")  # None: all axes
same_kinds = [numpy.int8, numpy.uint8, numpy.int16, numpy.uint32, numpy.int64, numpy.uint64, Index, int]
SIZE_KINDS = [
    *(("same", kind) for kind in same_kinds),
    *(("wrong", make) for make in (
        float, lambda n: n + 0.5, str, lambda n: str(n).encode(), lambda n: [[n]], lambda n: None, lambda n: ferry.tensor(n),
        numpy.float32, lambda n: complex(n), lambda n: {}, lambda n: {n}, lambda n: {n: 1}, lambda n: bytearray([n]), lambda n: bytes([n]), lambda n: frozenset([n]), lambda n: object(), numpy.longdouble, lambda n: numpy.timedelta64(n),
        lambda n: numpy.complex64(n), lambda n: numpy.str_(n), lambda n: int, lambda n: numpy.array([[n]]), lambda n: numpy.array(float(n)),
    )),
    *(("large", lambda n, k=k: k) for k in (2**64 + 3, -(2**70), 2**63, -(2**63) - 1, 2**1000)),
    *(("large", lambda n, k=k: Index(k)) for k in (2**64 + 3, -(2**64) + 1)),
    ("negative", lambda n: -7), ("negative", lambda n: numpy.int8(-7)), ("negative", lambda n: -(2**31) - 1), ("negative", lambda n: -(2**32) + n),
]  # fmt: skip


def call_with_size(call, kind):
    name, (function, size) = call
    how, make = kind
    given = make(size)
    if how == "same":
        check(test_numbers.facts(function(given)) == test_numbers.facts(function(size)), name, given)
    elif how == "wrong":
        if given is None and name in OPTIONAL:
            return
        refused((TypeError, ValueError), function, given)
    elif name != "guard" or not 0 <= index(given) < 2**64:  # its limits are of 64 bits
        refused((OverflowError, ValueError, MemoryError), function, given)

