"""ferry.torch_record._recorder while each allocation fails once, Python's own and the recorder's: MemoryError,
and the file is whole afterwards: every line names only what a line before it has made known.

Runs without PyTorch: stand-ins for its tensors, storages and ops. In a child, as test_failures.py.
"""

import collections
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

LIBRARY = Path(os.environ.get("FERRY_LIBRARY", "/"), "tests", "libfailing_malloc.so").absolute()
MOST = 600
OP, VIEW = 5, 0  # of enum in recorder.h: OP_RUN, OP_VIEW


def load():
    """The module by its file: the package around it imports PyTorch."""
    package = Path(importlib.util.find_spec("ferry").origin).parent
    path = str(next((package / "torch_record").glob("_recorder*.so")))
    name = "ferry.torch_record._recorder"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Storage:
    def __init__(self, size):
        self.size = size

    def nbytes(self):
        return self.size


class Tensor:
    dtype = "f32"

    def __init__(self, *shape):
        self.shape, self.storage = shape, Storage(4 * shape[0])

    def stride(self):
        return (1,) * len(self.shape)


def func(*tensors):
    return Tensor(*tensors[0].shape)


def make(recorder):
    class Core(recorder.Core):
        def __init__(self):
            super().__init__(Tensor, lambda t: t.storage, lambda: None, lambda: True, "cpu", None, 10, 10)
            self.chunks, self.sites = [], []

        def describe(self, op):
            return ("info", op, "add", OP, (), (), 0, 0, 0, 0)

        def sign(self, info, op, args, kwargs, out, sources, results):
            return '"shapes":[%d]' % args[0].shape[0], 8, 16, 100

        def is_skipped(self, code):
            return code.co_filename != __file__

        def add_site(self, frame):
            if frame.f_lineno not in self.sites:
                self.sites.append(frame.f_lineno)
                try:
                    self.line("site", '"id":%d' % len(self.sites))
                except BaseException:
                    self.sites.pop()
                    raise
            return self.sites.index(frame.f_lineno) + 1

        def write(self, chunk):
            self.chunks.append(chunk)

    core = Core()
    core.set_scope('"run"')
    return core


def check(case, lines):
    """Each number is made known once, before it is used."""
    known = collections.defaultdict(set)

    def add(kind, number):
        case.assertNotIn(number, known[kind], kind)
        known[kind].add(number)

    for line in lines:
        event = json.loads(line)
        kind = event["ev"]
        if kind in ("site", "signature"):
            add(kind, event["id"])
        elif kind == "storage":
            add(kind, event["storage"])
            case.assertIn(event["block"], known["block"])
        elif kind == "block_alloc":
            add("block", event["block"])
        elif kind == "block_free":
            known["block"].remove(event["block"])
        elif kind == "op":
            add("op", event["number"])
            case.assertEqual((event["flops"], event["bytes"]), (8, 16))
            case.assertIn(event["signature"], known["signature"])
            case.assertIn(event["site"], known["site"] | {0})  # 0: Python had no frame to show
            case.assertLessEqual({number for number, _ in event["src"] + event["dst"]}, known["storage"])
    return known


class Sweep(unittest.TestCase):
    @unittest.skipIf("LD_PRELOAD" in os.environ, "this is the child")
    def test_in_a_child(self):
        if not LIBRARY.exists():
            self.skipTest("no libfailing_malloc.so in this build")
        # LD_PRELOAD ends a path at a space
        search = os.pathsep.join(filter(None, [str(LIBRARY.parent), os.environ.get("LD_LIBRARY_PATH")]))
        variables = {"LD_PRELOAD": LIBRARY.name, "LD_LIBRARY_PATH": search, "PYTHONMALLOC": "malloc_debug"}
        done = subprocess.run(
            [sys.executable, "-B", __file__, "-v", "Child"], capture_output=True, text=True,
            timeout=1200, env={**os.environ, **variables},
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertNotIn("skipped", done.stderr)


@unittest.skipUnless("LD_PRELOAD" in os.environ, "run by Sweep, with another allocator")
class Child(unittest.TestCase):
    def sweep(self, call):
        library = ctypes.PyDLL(str(LIBRARY))
        arm, disarm = library.failing_malloc_arm, library.failing_malloc_disarm
        arm.argtypes, disarm.restype = [ctypes.c_long], ctypes.c_long
        recorder = load()
        failures = 0
        for n in range(1, MOST):
            core = make(recorder)
            mode = recorder.Dispatch(core)
            inputs = tuple(Tensor(i + 4) for i in range(20))  # in three lines
            for tensor in inputs:
                core.add(tensor, "weights")
            failed = False
            try:
                arm(n)
                call(core, mode, inputs)
            except MemoryError:
                failed = True
            finally:
                missing = disarm()
            with self.subTest(allocation=n):
                kept = [call(core, mode, inputs) for _ in range(2)]
                core.flush()
                lines = b"".join(core.chunks).splitlines()
                known = check(self, lines)
                self.assertEqual(len(known["op"]), core.ops)
                self.assertIn(core.ops, (2, 3))
                self.assertEqual(core.events, len(lines))
            del kept
            failures += failed
            if not failed and missing:
                break
        self.assertGreater(failures, 10)
        self.assertLess(n, MOST - 1)

    def test_a_recorded_op(self):
        def call(core, mode, inputs):
            out = func(*inputs)
            core.record(func, inputs, None, out, None)
            return out

        self.sweep(call)

    def test_a_dispatched_op(self):
        self.sweep(lambda core, mode, inputs: mode.__torch_dispatch__(func, (), inputs, {}))


if __name__ == "__main__":
    unittest.main()
