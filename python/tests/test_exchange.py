"""The buffer protocol: zero copy by address, read-only kept, bytes outlive handles."""

import array
import ctypes
import gc
import sys
import unittest
import zlib

import ferry

try:
    import numpy
except ImportError:
    numpy = None


def address(tensor):
    return ferry._c.fy_tensor_map(tensor, "read")


class Buffers(unittest.TestCase):
    def test_out(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        view = memoryview(t.T)
        self.assertEqual((view.format, view.shape, view.strides), ("f", (2, 2), (4, 8)))
        self.assertTrue(view.readonly)
        self.assertEqual(view.tolist(), [[1, 3], [2, 4]])
        del t
        self.assertEqual(view[1, 0], 2)
        self.assertEqual(memoryview(ferry.ones((0, 4))).itemsize, 4)
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

    def test_bools_of_other_bytes(self):
        """A mask of 0 and 255 would be a sum of 510."""
        mask = memoryview(bytearray([255, 0, 1, 0])).cast("?")
        with self.assertRaisesRegex(ferry.BadValue, "(?s)255.*x != 0"):
            ferry.from_buffer(mask)
        with self.assertRaises(ferry.BadValue):
            ferry.tensor(mask)
        self.assertEqual(ferry.from_buffer(mask[1:]).tolist(), [False, True, False])
        if numpy:
            for import_ in (ferry.from_numpy, ferry.from_dlpack, ferry.tensor):
                array = numpy.array([255, 0, 1, 0], "u1").view("?")
                with self.assertRaisesRegex(ferry.BadValue, "255"):
                    import_(array)
                self.assertEqual(import_(array[1:]).tolist(), [False, True, False])
                self.assertEqual(ferry.sum(ferry.cast(import_(array != 0), "i32")).item(), 2)

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_packed_records(self):
        records = numpy.zeros(3, [("flag", "u1"), ("value", "f4")])
        for import_ in (ferry.from_numpy, ferry.tensor):
            with self.assertRaisesRegex(BufferError, "5 bytes, no multiple of .* 4.*ascontiguous"):
                import_(records["value"])
            self.assertEqual(import_(records["flag"]).tolist(), [0, 0, 0])
        self.assertEqual(ferry.tensor(numpy.ascontiguousarray(records["value"])).shape, (3,))
        for make in (ferry.tensor, ferry.from_numpy):
            with self.assertRaisesRegex(
                ferry.InvalidArgument, r"from_buffer: strides\[0\] is -1(?s:.*)a.copy\(\)"
            ):
                make(numpy.arange(3.0)[::-1])

    def test_empty_tensors(self):
        codes = {"f32": "f", "f64": "d", "f16": "e", "i32": "i", "i64": "q", "u8": "B", "bool": "?"}
        for dtype, code in codes.items():
            for shape in ((0,), (0, 3), (3, 0), (2, 0, 4)):
                t = ferry.zeros(shape, dtype)
                for given in (t, t.T, t[..., None]):
                    view = memoryview(given)
                    size = view.itemsize
                    self.assertEqual((view.format, view.shape, view.nbytes), (code, given.shape, 0))
                    self.assertEqual(ferry.from_buffer(view).shape, given.shape)
                    if numpy:
                        for array in (given.numpy(), numpy.asarray(given), given.numpy(True)):
                            self.assertEqual(array.shape, given.shape)
                            self.assertEqual((array.dtype, array.itemsize), (numpy.dtype(code), size))

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


if __name__ == "__main__":
    unittest.main()
