"""The buffer protocol and DLPack: zero copy by address, read-only kept, bytes outlive handles."""

import array
import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import unittest
import zlib
from pathlib import Path

import ferry

try:
    import numpy
except ImportError:
    numpy = None

FAKE = Path(os.environ.get("FERRY_LIBRARY", "/"), "tests", "libfake_cuda.so").absolute()


def address(tensor):
    pointer = ctypes.c_void_p()
    ferry._c.fy_tensor_map(tensor, 1, ctypes.byref(pointer))
    return pointer.value


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Buffers(unittest.TestCase):
    def test_out(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        view = memoryview(t.T)
        self.assertEqual((view.format, view.shape, view.strides), ("f", (2, 2), (4, 8)))
        self.assertTrue(view.readonly)
        self.assertEqual(view.tolist(), [[1, 3], [2, 4]])
        del t
        self.assertEqual(view[1, 0], 2)
        with self.assertRaises(BufferError):
            zlib.crc32(ferry.ones((2, 2)).T)  # reads dense bytes
        with self.assertRaisesRegex(ferry.DtypeMismatch, "cast"):
            memoryview(ferry.ones(2, "bf16"))

    def test_in(self):
        numbers = array.array("d", [1, 2, 3])
        t = ferry.from_buffer(numbers)
        self.assertEqual(
            (t.dtype, t.tolist(), address(t)), ("f64", [1, 2, 3], numbers.buffer_info()[0])
        )
        ferry.fill(t, 7)
        self.assertEqual(list(numbers), [7, 7, 7])
        with self.assertRaises(BufferError):
            numbers.append(1.0)  # exported
        del t
        numbers.append(1.0)
        fixed = ferry.from_buffer(b"abc")
        self.assertTrue(fixed.info()["is_read_only"])
        with self.assertRaises(ferry.Error):
            ferry.fill(fixed, 0)
        with self.assertRaises(ferry.InvalidArgument):
            ferry.from_buffer(memoryview(array.array("i", [1, 2]))[::-1])
        with self.assertRaises(ferry.Error):
            ferry.from_buffer(memoryview(array.array("I", [1, 2])))
        with self.assertRaises(TypeError):
            ferry.from_buffer(3)

    def test_layouts(self):
        """Consumers that ask for contiguous bytes get none of a strided tensor."""
        get = ctypes.pythonapi.PyObject_GetBuffer
        release = ctypes.pythonapi.PyBuffer_Release
        c, f, either, strides = 0x38, 0x58, 0x98, 0x18
        rows = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        given = {"dense": rows, "columns": rows.T, "strided": rows[:, 0:1]}
        wanted = {"dense": (c, either), "columns": (f, either), "strided": ()}
        for name, tensor in given.items():
            for flags in (c, f, either, strides):
                view = (ctypes.c_char * 128)()
                arguments = ctypes.py_object(tensor), view, flags
                if flags == strides or flags in wanted[name]:
                    self.assertEqual(get(*arguments), 0)
                    release(view)
                else:
                    with self.assertRaisesRegex(BufferError, "contiguous"):
                        get(*arguments)

    def test_references(self):
        source = bytearray(64)
        before = sys.getrefcount(source)
        t = ferry.from_buffer(source)
        part = t[:8]
        del t
        self.assertGreater(sys.getrefcount(source), before)
        del part
        gc.collect()
        self.assertEqual(sys.getrefcount(source), before)


class Dlpack(unittest.TestCase):
    def test_own_capsules(self):
        t = ferry.tensor([[1, 2], [3, 4]])
        u = ferry.from_dlpack(t.T)
        self.assertEqual(
            (address(u), u.strides, u.tolist()), (address(t), (1, 2), [[1, 3], [2, 4]])
        )
        capsule = t.__dlpack__(max_version=(1, 0))
        del t, capsule  # never consumed: its bytes are freed here
        with self.assertRaises(BufferError):
            u.__dlpack__()
        with self.assertRaises(BufferError):
            u.__dlpack__(max_version=(1, 0), copy=True)
        capsule = u.__dlpack__(max_version=(1, 0))
        ferry._core.from_dlpack(capsule, ferry.host._as_parameter_)
        with self.assertRaises(ferry.Unsupported):
            ferry._core.from_dlpack(capsule, ferry.host._as_parameter_)

    def test_simulated_devices_refuse(self):
        t = ferry.ones(2, device="sim:0")
        with self.assertRaisesRegex(ferry.Unsupported, "download"):
            t.__dlpack_device__()
        with self.assertRaisesRegex(ferry.Unsupported, "download"):
            t.__dlpack__(max_version=(1, 0))

    @unittest.skipUnless(FAKE.exists(), "no fake CUDA driver in this build")
    def test_page_locked_memory_is_exported_as_the_cpu(self):
        program = """
            import ctypes, ferry
            t = ferry.ones(2, device="cuda:0").download().wait()
            assert t.info()["is_pinned"]
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            capsule = t.__dlpack__(max_version=(1, 1))
            managed = get(capsule, b"dltensor_versioned")
            in_capsule = ctypes.c_int32 * 2  # behind version, context, deleter, flags and data
            print(tuple(in_capsule.from_address(managed + 40)), t.__dlpack_device__())
        """
        variables = {"FERRY_PLUGIN_PATH": str(FAKE.parent.parent / "ferry"), "FERRY_CUDNN": "none",
                     "FERRY_CUDA_DRIVER": str(FAKE), "FERRY_CUBLASLT": str(FAKE),
                     "FAKE_CUDA_KERNELS": "source"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-B", "-c", textwrap.dedent(program)],
            env={**os.environ, **variables}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual((done.stdout, done.stderr), ("(1, 0) (1, 0)\n", ""))

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_numpy(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        for a in (t.numpy(), numpy.asarray(t), numpy.array(t, copy=False)):
            self.assertEqual((a.ctypes.data, a.flags.writeable), (address(t), False))
        a = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)[:, ::2]
        u = ferry.from_numpy(a)
        self.assertEqual((address(u), u.tolist()), (a.ctypes.data, a.tolist()))
        self.assertEqual(ferry.tensor(a).tolist(), a.tolist())
        self.assertEqual(ferry.tensor(a, dtype="i32").dtype, "i32")
        with self.assertRaises(ferry.DeviceMismatch):
            numpy.asarray(t.upload("sim:0"))
        with self.assertRaises(ferry.DeviceMismatch):
            t.upload("sim:0").numpy()

    @unittest.skipIf(numpy is None or numpy.__version__ < "2.1", "no NumPy 2.1")
    def test_numpy_dlpack(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        a = t.numpy(writable=True)
        a[0, 0] = 9
        self.assertEqual((a.ctypes.data, t[0, 0].item()), (address(t), 9))
        b = numpy.arange(4)
        self.assertEqual(address(ferry.from_dlpack(b)), b.ctypes.data)

    @unittest.skipIf(numpy is None or numpy.__version__ < "2.1", "no NumPy 2.1")
    def test_many_exchanges_leave_nothing(self):
        t, a = ferry.ones(1024), numpy.ones(1024, numpy.float32)
        before = sys.getrefcount(a)
        for count in (2000, 50_000):  # a leak of one tensor in ten would be 20 MiB
            begin = resident()
            for _ in range(count):
                numpy.from_dlpack(ferry.from_dlpack(a) + t)
                ferry.from_dlpack(numpy.from_dlpack(t))
        self.assertLess(resident() - begin, 8 << 20)
        self.assertEqual(sys.getrefcount(a), before)


if __name__ == "__main__":
    unittest.main()
