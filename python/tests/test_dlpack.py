"""DLPack: zero copy by address both ways, read-only kept, deleters counted, hostile capsules
refused, both versions of capsules, and the table for consumers in C. PyTorch: test_torch_bridge."""

import ctypes
import sys
import unittest

import dlpack_structs
import fake_cuda
from dlpack_structs import Managed, OldManaged, python

import ferry
from ferry import _c

try:
    import numpy
except ImportError:
    numpy = None

NEW, OLD = b"dltensor_versioned", b"dltensor"
HAS_VERSIONS = numpy is not None and tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)


def address(tensor):
    return _c.fy_tensor_map(tensor, "read")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Producer:
    """Another library: f32[2,3] in a ctypes array. It counts calls of its deleter."""

    def __init__(self, is_old=False):
        self.values = (ctypes.c_float * 7)(*range(7))
        self.shape, self.strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(3, 1)
        self.deleted, self.is_old, self.asked = 0, is_old, []
        kind = dict((OldManaged if is_old else Managed)._fields_)["deleter"]
        self.deleter = kind(self._delete)
        self.managed = OldManaged() if is_old else Managed()
        self.managed.deleter = self.deleter
        if not is_old:
            self.managed.version.major, self.managed.version.minor = 1, 0
        t = self.tensor = self.managed.dl_tensor
        t.data = ctypes.addressof(self.values)
        t.device.device_type, t.ndim = 1, 2
        t.dtype.code, t.dtype.bits, t.dtype.lanes = dlpack_structs.FLOAT, 32, 1
        t.shape, t.strides = self.shape, self.strides
        self.name = OLD if is_old else NEW

    def _delete(self, managed):
        self.deleted += 1

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, stream=None, **options):
        self.asked.append(options)
        if self.is_old and options:
            raise TypeError("this producer knows no max_version")
        return python.PyCapsule_New(ctypes.addressof(self.managed), self.name, None)


class Capsules(unittest.TestCase):
    def test_a_producer_that_fails(self):
        class Broken:
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, **options):
                asked.append(options)
                raise TypeError("bad operand type for unary -: 'str'")

        asked = []
        with self.assertRaisesRegex(TypeError, "bad operand"):
            ferry.from_dlpack(Broken())
        self.assertEqual(len(asked), 1)

    def test_own_capsules(self):
        t = ferry.tensor([[1, 2], [3, 4]])
        u = ferry.from_dlpack(t.T)
        self.assertEqual(
            (address(u), u.strides, u.tolist()), (address(t), (1, 2), [[1, 3], [2, 4]])
        )
        capsule = t.__dlpack__(max_version=(1, 0))
        del t, capsule  # never consumed: its bytes are freed here
        with self.assertRaises(BufferError):
            u.__dlpack__(max_version=(1, 0), copy=True)
        with self.assertRaises(BufferError):
            u.__dlpack__(dl_device=(2, 0))
        for options in ({}, {"max_version": (0, 8)}, {"max_version": (1, 0)}):
            capsule = u.__dlpack__(**options)
            name = NEW if options.get("max_version") == (1, 0) else OLD
            self.assertTrue(python.PyCapsule_IsValid(capsule, name))
            v = ferry._core.from_dlpack(capsule, ferry.host)
            self.assertEqual((address(v), v.tolist()), (address(u), u.tolist()))
            self.assertTrue(python.PyCapsule_IsValid(capsule, b"used_" + name))
            with self.assertRaisesRegex(ferry.Unsupported, "consumed"):
                ferry._core.from_dlpack(capsule, ferry.host)

    def test_read_only(self):
        fixed = ferry.from_buffer(b"abc")
        with self.assertRaisesRegex(BufferError, "read-only.*max_version"):
            fixed.__dlpack__()
        capsule = fixed.__dlpack__(max_version=(1, 0))
        managed = Managed.from_address(python.PyCapsule_GetPointer(capsule, NEW))
        self.assertEqual(managed.flags, 1)
        again = ferry._core.from_dlpack(capsule, ferry.host)
        with self.assertRaises(ferry.InvalidArgument):
            ferry.fill(again, 0)
        with self.assertRaises(ferry.InvalidArgument):
            ferry.fill(ferry.from_dlpack(fixed)[1:], 0)

    def test_repeated_elements(self):
        """A view that repeats elements is exported read-only."""
        t = ferry.tensor([[1.0], [2.0]])
        for view in (t.broadcast_to(2, 3), t.broadcast_to(4, 2, 1), t[0].broadcast_to(2, 2)):
            with self.assertRaisesRegex(BufferError, "read-only.*max_version"):
                view.__dlpack__()
            capsule = view.__dlpack__(max_version=(1, 0))
            managed = Managed.from_address(python.PyCapsule_GetPointer(capsule, NEW))
            self.assertEqual(managed.flags, 1)
            again = ferry._core.from_dlpack(capsule, ferry.host._as_parameter_)
            self.assertEqual((address(again), again.tolist()), (address(t), view.tolist()))
            with self.assertRaises(ferry.InvalidArgument):
                ferry.fill(again, 0)
            if HAS_VERSIONS:
                array = numpy.from_dlpack(view)
                self.assertEqual((array.tolist(), array.flags.writeable), (view.tolist(), False))
                with self.assertRaisesRegex(BufferError, "copy"):
                    view.numpy(writable=True)
        self.assertEqual(ferry.from_dlpack(t.broadcast_to(1, 2, 1)).shape, (1, 2, 1))
        ferry.fill(ferry.from_dlpack(t[None]), 0)  # an axis of length 1 repeats nothing

    def test_versions_of_producers(self):
        for is_old in (False, True):
            producer = Producer(is_old)
            t = ferry.from_dlpack(producer)
            self.assertEqual((address(t), t.tolist()), (producer.tensor.data, [[0, 1, 2], [3, 4, 5]]))
            self.assertEqual(len(producer.asked), 1 + is_old)
            view = t[1]
            del t
            self.assertEqual(producer.deleted, 0)
            del view
            self.assertEqual(producer.deleted, 1)

    def test_hostile_capsules_are_refused(self):
        def plant(**fields):
            def change(producer):
                for name, value in fields.items():
                    *path, last = name.split("__")
                    at = producer.managed
                    for part in path:
                        at = getattr(at, part)
                    setattr(at, last, value)

            return change

        def shape(*dims):
            return lambda producer: producer.shape.__setitem__(slice(2), dims)

        def strides(*steps):
            return lambda producer: producer.strides.__setitem__(slice(2), steps)

        rows = {
            "version 2.0": (plant(version__major=2), ferry.Unsupported),
            "rank 9": (plant(dl_tensor__ndim=9), ferry.InvalidArgument),
            "rank -1": (plant(dl_tensor__ndim=-1), ferry.InvalidArgument),
            r"dims\[1\] is -3": (shape(2, -3), ferry.InvalidArgument),
            "2\\^64": (shape(1 << 40, 1 << 40), ferry.InvalidArgument),
            "-3; it": (strides(-3, 1), ferry.InvalidArgument),
            "overlap": (strides(2, 1), ferry.InvalidArgument),
            "past 2\\^63 bytes": (strides(1 << 62, 1), ferry.InvalidArgument),
            "4 lanes": (plant(dl_tensor__dtype__lanes=4), ferry.Unsupported),
            "4 bits": (plant(dl_tensor__dtype__bits=4), ferry.Unsupported),
            "not aligned": (plant(dl_tensor__byte_offset=2), ferry.InvalidArgument),
            "data is NULL": (plant(dl_tensor__data=None), ferry.InvalidArgument),
            "cuda:99": (plant(dl_tensor__device__device_type=2, dl_tensor__device__device_id=99),
                        ferry.DeviceMismatch),
            "no DLPack capsule": (lambda producer: setattr(producer, "name", b"else"),
                                  ferry.Unsupported),
        }  # fmt: skip
        for text, (change, kind) in rows.items():
            for is_old in (False, True):
                if is_old and text == "version 2.0":
                    continue
                producer = Producer(is_old)
                change(producer)
                with self.subTest(text, is_old=is_old):
                    with self.assertRaisesRegex(kind, text.replace("; it", "")):
                        ferry.from_dlpack(producer)
                    self.assertEqual(producer.deleted, 0)  # it is the producer's as before
        with self.assertRaises(ferry.Unsupported):
            ferry._core.from_dlpack(3, ferry.host)

    def test_simulated_devices_refuse(self):
        t = ferry.ones(2, device="sim:0")
        with self.assertRaisesRegex(ferry.Unsupported, "download"):
            t.__dlpack_device__()
        for version in (None, (1, 0)):
            with self.assertRaisesRegex(ferry.Unsupported, "download"):
                t.__dlpack__(max_version=version)

    @unittest.skipUnless(fake_cuda.LIBRARY.exists(), "no fake CUDA driver in this build")
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
        self.assertEqual(fake_cuda.run(program), ("(1, 0) (1, 0)\n", ""))

    def test_many_exchanges_leave_nothing(self):
        producers = Producer(), Producer(is_old=True)
        t = ferry.ones(1024)
        for count in (2000, 50_000):
            begin = resident()
            for i in range(count):
                ferry.from_dlpack(producers[i & 1])
                producers[i & 1].asked.clear()
                t.__dlpack__(max_version=(1, 0) if i & 2 else None)
        self.assertLess(resident() - begin, 8 << 20)
        self.assertEqual([p.deleted for p in producers], [26_000, 26_000])


class Table(unittest.TestCase):
    """The test is the consumer in C."""

    @classmethod
    def setUpClass(cls):
        capsule = ferry.Tensor.__dlpack_c_exchange_api__
        cls.api = dlpack_structs.ExchangeAPI.from_address(
            python.PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
        )

    def call(self, name, restype, *arguments):
        """With the GIL, and with exceptions."""
        pointer = ctypes.cast(getattr(self.api, name), ctypes.c_void_p).value
        kinds = {int: ctypes.c_int, ctypes.py_object: ctypes.py_object}
        types = [kinds.get(type(a), type(a)) for a in arguments]
        return ctypes.PYFUNCTYPE(restype, *types)(pointer)(*arguments)

    def export(self, tensor):
        out = ctypes.c_void_p()
        self.call("managed_tensor_from_py_object_no_sync", ctypes.c_int, ctypes.py_object(tensor),
                  ctypes.pointer(out))  # fmt: skip
        return Managed.from_address(out.value)

    def test_header(self):
        version = self.api.header.version
        self.assertEqual((version.major, version.minor), (1, 3))
        self.assertFalse(self.api.header.prev_api)

    def test_export_and_import(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        managed = self.export(t.T)
        tensor = managed.dl_tensor
        self.assertEqual((tensor.data, tensor.ndim, tensor.strides[:2]), (address(t), 2, [1, 2]))
        self.assertEqual(managed.flags, 0)
        again = ctypes.py_object()
        self.call("managed_tensor_to_py_object_no_sync", ctypes.c_int, ctypes.pointer(managed),
                  ctypes.pointer(again))  # fmt: skip
        self.assertIsInstance(again.value, ferry.Tensor)
        self.assertEqual((address(again.value), again.value.tolist()), (address(t), t.T.tolist()))
        fixed = self.export(ferry.from_buffer(b"abc"))
        self.assertEqual(fixed.flags, 1)
        fixed.deleter(ctypes.pointer(fixed))

    def test_failures_are_exceptions(self):
        with self.assertRaisesRegex(ferry.Unsupported, "download"):
            self.export(ferry.ones(2, device="sim:0"))
        with self.assertRaises(TypeError):
            self.export([1.0])
        producer, out = Producer(), ctypes.py_object()
        producer.tensor.dtype.lanes = 4
        with self.assertRaisesRegex(ferry.Unsupported, "4 lanes"):
            self.call("managed_tensor_to_py_object_no_sync", ctypes.c_int,
                      ctypes.pointer(producer.managed), ctypes.pointer(out))  # fmt: skip
        self.assertEqual(producer.deleted, 1)  # it was stolen

    def test_borrowed(self):
        t = ferry.arange(6, dtype="f32").reshape(2, 3)[:, ::2]
        out = dlpack_structs.Tensor()
        for _ in range(3):
            self.call("dltensor_from_py_object_no_sync", ctypes.c_int, ctypes.py_object(t),
                      ctypes.pointer(out))  # fmt: skip
        self.assertEqual(
            (out.data, out.shape[: out.ndim], out.strides[: out.ndim]), (address(t), [2, 2], [3, 2])
        )
        self.assertEqual((out.device.device_type, out.dtype.code, out.dtype.bits), (1, 2, 32))

    def test_allocator(self):
        errors = []
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
        report = signature(lambda context, kind, text: errors.append((context, kind, text)))
        prototype, out = Producer(), ctypes.c_void_p()
        allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                    ctypes.c_void_p)(  # fmt: skip
            ctypes.cast(self.api.managed_tensor_allocator, ctypes.c_void_p).value
        )

        def run():
            return allocate(ctypes.addressof(prototype.tensor), ctypes.addressof(out), 7,
                            ctypes.cast(report, ctypes.c_void_p))  # fmt: skip

        self.assertEqual((run(), errors), (0, []))
        managed = Managed.from_address(out.value)
        self.assertEqual(managed.dl_tensor.shape[:2], [2, 3])
        self.assertNotEqual(managed.dl_tensor.data, prototype.tensor.data)
        managed.deleter(ctypes.pointer(managed))
        prototype.shape[0] = 1 << 60
        self.assertEqual((run(), out.value), (-1, None))
        prototype.tensor.dtype.lanes = 4
        self.assertEqual(run(), -1)
        prototype.tensor.dtype.lanes, prototype.tensor.device.device_type = 1, 4
        self.assertEqual(run(), -1)
        self.assertEqual([(c, k) for c, k, _ in errors], [(7, b"BufferError")] * 3)

    def test_streams(self):
        out = ctypes.c_void_p(1)
        self.call("current_work_stream", ctypes.c_int, 1, 0, ctypes.pointer(out))
        self.assertIsNone(out.value)


@unittest.skipUnless(HAS_VERSIONS, "no NumPy 2.1")
class Numpy(unittest.TestCase):
    def test_zero_copy(self):
        t = ferry.tensor([[1.0, 2.0], [3.0, 4.0]])
        a = t.numpy(writable=True)
        a[0, 0] = 9
        self.assertEqual((a.ctypes.data, t[0, 0].item()), (address(t), 9))
        fixed = t.numpy()
        del t  # the bytes live on
        a[1, 1] = 5
        self.assertEqual((fixed.tolist(), fixed.flags.writeable), ([[9, 2], [3, 5]], False))
        for writable in (False, True):
            with self.assertRaises(ferry.DeviceMismatch):
                ferry.ones(2, device="sim:0").numpy(writable)

    def test_views(self):
        numbers = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        empty = numpy.zeros((2, 0), numpy.int64)
        for view in (numbers, numbers.T, numbers[:, ::2], empty, empty.T):
            references = sys.getrefcount(view)
            t = ferry.from_dlpack(view)
            self.assertEqual(sys.getrefcount(view), references + 1)
            back = numpy.from_dlpack(t)
            self.assertEqual(back.tolist(), view.tolist())
            if view.size:
                self.assertEqual((address(t), back.strides), (view.ctypes.data, view.strides))
            del t, back
            self.assertEqual(sys.getrefcount(view), references)

    def test_read_only(self):
        a = numpy.from_dlpack(ferry.from_buffer(b"abc"))
        self.assertFalse(a.flags.writeable)
        b = numpy.arange(4)
        b.flags.writeable = False
        with self.assertRaises(ferry.InvalidArgument):
            ferry.fill(ferry.from_dlpack(b), 0)

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
