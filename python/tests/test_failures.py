"""ferry._core while each allocation fails once, Python's own and the library's, and while each launch
and copy of a simulated device does: the exception is the right one, nothing leaks, and the next call works.

The sweep runs in a child whose allocator can fail (tests/support/failing_malloc.c). Python checks
its blocks there (PYTHONMALLOC=malloc_debug).
"""

import ctypes
import gc
import os
import subprocess
import sys
import unittest
from pathlib import Path

import ferry
from ferry import _core

LIBRARY = Path(os.environ.get("FERRY_LIBRARY", "/"), "tests", "libfailing_malloc.so").absolute()
MOST = 400


def programs():
    """name: (a call of the core, its right result as a plain value)"""
    a, b = ferry.tensor([[1.0, 2.0], [3.0, 4.0]]), ferry.tensor([[5.0, 6.0], [7.0, 8.0]])
    i = ferry.tensor([1, 2])
    large = ferry.ones(100_000)
    element, columns = a[0, 1], a.T
    data, fixed = bytearray(b"abcd"), b"abcd"

    def once(is_versioned):
        return _core.from_dlpack(a._dlpack(False, is_versioned, None), ferry.host)

    def unused(is_versioned):
        a._dlpack(False, is_versioned, None)

    def seen(*given):
        pass

    def refused():
        try:
            a + i
        except ferry.DtypeMismatch as error:
            return "i64" in error.text
        return False

    calls = {
        "add": lambda: a + b,
        "add a number": lambda: a + 1,
        "divide by a number": lambda: a / 3,
        "an integer": lambda: i * 2,
        "product": lambda: a @ b,
        "large": lambda: large + large,
        "negative": lambda: -a,
        "compare": lambda: a == b,
        "unary": lambda: ferry.relu(a),
        "binary": lambda: ferry.maximum(a, b),
        "view": lambda: a.reshape(4)[1:3],
        "key": lambda: a[None, ..., 0, 1:],
        "row": lambda: list(a)[1],
        "list": a.tolist,
        "facts": lambda: (a.ndim, a.size, a.nbytes, a.dtype, a.device.name, len(a)),
        "nested lists": lambda: ferry.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "attributes": lambda: ferry.call("clamp", a, low=1.5),
        "sequence": lambda: ferry.concat([a, b], 0),
        "struct": lambda: ferry._c.fy_op_find("sum").fields[0].name,
        "options": lambda: ferry._c.fy_linear_options_t(weight=("normal", 0.5)).weight.value,
        "several results": lambda: ferry.topk(a, 1)[1],
        "array of results": lambda: a.split(2)[1],
        # CPython 3.13 crashes itself where it has no memory for a new function: none is made here
        "callback": lambda: ferry._c.fy_device_enumerate(seen),
        "layer": lambda: ferry.train.linear(2, 2) and None,
        "path": lambda: os.path.exists("/nowhere"),
        "item": element.item,
        "shape": lambda: (a.shape, a.strides),
        "memoryview": lambda: memoryview(columns).tolist(),
        "buffer": lambda: _core.from_buffer(data),
        "read-only buffer": lambda: _core.from_buffer(fixed),
        "capsule": lambda: once(True),
        "capsule before DLPack 1": lambda: once(False),
        "unused capsules": lambda: (unused(True), unused(False)),
        "refusal": refused,
    }
    return {name: (call, plain(call())) for name, call in calls.items()}


def plain(value):
    if isinstance(value, ferry.Tensor):
        return value.tolist(), value.info()["is_read_only"]
    return value


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

    def test_each_call_of_a_device(self):
        host = ferry.tensor([1.0, 2.0])
        for kind in ("launch", "copy"):
            failures = 0
            for n in range(1, MOST):
                device = ferry.Device(f"sim:7?faults={kind}@{n}")
                try:
                    x = host.upload(device).reshape(1, 2)
                    y = (x + 1) @ x.T / 3
                    self.assertAlmostEqual(y.download().wait().item(), 8 / 3, 5)
                except ferry.Error as error:
                    self.assertIn(type(error), (ferry.OutOfMemory, ferry.Internal, ferry.IOFailed,
                                                ferry.DeviceLost), str(error))  # fmt: skip
                    failures += 1
                else:
                    break
                finally:
                    x = y = None
                    gc.collect()
                    device.close()
            self.assertGreater(failures, 0, kind)
            self.assertLess(n, MOST - 1)


@unittest.skipUnless("LD_PRELOAD" in os.environ, "run by Sweep, with another allocator")
class Child(unittest.TestCase):
    def test_each_allocation(self):
        library = ctypes.PyDLL(str(LIBRARY))
        arm, disarm = library.failing_malloc_arm, library.failing_malloc_disarm
        arm.argtypes, disarm.restype = [ctypes.c_long], ctypes.c_long
        total = 0
        for name, (call, wanted) in programs().items():
            gc.collect()
            live, tried, failures = ferry.host.memory()["live"], 0, 0
            while tried < MOST:
                tried += 1
                result = failed = None
                try:
                    arm(tried)
                    result = call()
                except (MemoryError) as error:  # ferry.OutOfMemory is one
                    self.assertIn("Memory", repr(error))
                    failed = error.__class__
                finally:
                    missing = disarm()
                with self.subTest(name, allocation=tried):
                    if failed is None:
                        self.assertEqual(plain(result), wanted)
                    result = None
                    self.assertEqual(plain(call()), wanted)
                    self.assertEqual(ferry.host.memory()["live"], live)
                failures += failed is not None
                if missing > 0:
                    break
            self.assertLess(tried, MOST, name)
            total += failures
            print(f"{name}: {failures} failures in {tried} runs", file=sys.stderr)
        self.assertGreater(total, 50)


if __name__ == "__main__":
    unittest.main()
