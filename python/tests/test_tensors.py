"""Tensors, operators, views, conversions, on the host and on a simulated device."""

import gc
import struct
import unittest

import ferry


class Tensors(unittest.TestCase):
    def setUp(self):
        self.device = ferry.Device("sim:0")

    def test_a_name_cut_in_a_character(self):
        t = ferry.ones(2)
        t.name = "ä" * 16  # 32 bytes
        self.assertEqual(t.name, "ä" * 15 + "\ufffd")
        self.assertIn("\ufffd", repr(t).encode().decode())

    def test_makers(self):
        self.assertEqual(ferry.tensor([[1, 2], [3, 4]]).dtype, "i64")
        self.assertEqual(ferry.tensor([True, False]).tolist(), [True, False])
        self.assertEqual(ferry.tensor(2.5).tolist(), 2.5)
        self.assertEqual(ferry.tensor([[]]).shape, (1, 0))
        self.assertEqual(ferry.tensor([[]]).tolist(), [[]])
        for dtype in ferry.dtypes:
            t = ferry.tensor([0, 1, 1], dtype=dtype)
            self.assertEqual((t.dtype, t.tolist()), (dtype, [0, 1, 1]))
            self.assertEqual(t[1].item(), 1)
        self.assertEqual(ferry.zeros((2, 3)).shape, (2, 3))
        self.assertEqual(ferry.arange(3, 1, 2).tolist(), [1, 3, 5])
        self.assertEqual(ferry.ones(2, "u8", self.device).download().wait().tolist(), [1, 1])
        with self.assertRaises(ValueError):
            ferry.tensor([[1], [2, 3]])
        with self.assertRaisesRegex(ValueError, "bf16"):
            ferry.tensor([1], dtype="i8")
        with self.assertRaises(TypeError):
            ferry.Tensor()

    def test_half_values(self):
        for value in (0.0, -2.5, 65504.0, 2.0**-24, 2.0**-14, float("inf"), 1.0009765625):
            self.assertEqual(ferry.tensor(value, dtype="f16").item(), value)
        self.assertNotEqual(*(ferry.tensor(float("nan"), dtype="f16").item(),) * 2)
        self.assertEqual(ferry.tensor(-1.5, dtype="bf16").item(), -1.5)

    def test_operators(self):
        x = ferry.tensor([1.0, 2.0, 4.0]).upload(self.device)

        def values(t):
            return t.download().wait().tolist()

        self.assertEqual(values(x + x), [2, 4, 8])
        self.assertEqual(values(1 - x), [0, -1, -3])
        self.assertEqual(values(x - 1), [0, 1, 3])
        self.assertEqual(values(2 * x * 3), [6, 12, 24])
        self.assertEqual(values(8 / x), [8, 4, 2])
        third = struct.unpack("f", struct.pack("f", 1 / 3))[0]
        self.assertEqual(values(x / 3)[0], third)
        self.assertEqual(values(x**2), [1, 4, 16])
        self.assertEqual(values(-x), [-1, -2, -4])
        self.assertEqual(values(abs(-x)), [1, 2, 4])
        self.assertEqual(values(x > 1), [False, True, True])
        self.assertEqual(values(x == x), [True] * 3)
        self.assertEqual(values(x.reshape(1, 3) @ x.reshape(3, 1)), [[21]])
        i = ferry.tensor([7, -7])
        self.assertEqual((i // 2).tolist(), [3, -4])
        self.assertEqual((i % 4).tolist(), [3, 1])
        self.assertEqual((i + 1).tolist(), [8, -6])
        with self.assertRaises(TypeError):
            x + "a"
        with self.assertRaises(TypeError):
            x @ 2
        x += 1  # a new tensor under the name
        self.assertEqual(values(x), [2, 3, 5])

    def test_views(self):
        t = ferry.arange(24).reshape(2, 3, 4)
        self.assertEqual(t[1, 2, 3].item(), 23)
        self.assertEqual(t[-1, ..., 0].tolist(), [12, 16, 20])
        self.assertEqual(t[:, 1:3, ::2].shape, (2, 2, 2))
        self.assertEqual(t[None, 0].shape, (1, 3, 4))
        self.assertEqual(t[2:1].shape, (0, 3, 4))
        self.assertEqual(t.T.shape, (4, 3, 2))
        self.assertEqual(t.transpose(1, 0, 2).strides, (4, 12, 1))
        self.assertEqual([p.shape for p in t.split([1, 2], 1)], [(2, 1, 4), (2, 2, 4)])
        self.assertEqual([p.shape[0] for p in ferry.zeros(2).split([2, 0, 0])], [2, 0, 0])
        self.assertEqual(ferry.ones((1, 3)).broadcast_to(2, 3).strides[0], 0)
        self.assertEqual(len(t), 2)
        self.assertEqual([part.shape for part in t], [(3, 4)] * 2)
        view = t[0]
        address = t.info()["storage"]
        del t
        self.assertEqual((view.info()["storage"], view[0, 1].item()), (address, 1))
        for bad in ((0, 0, 0, 0), 5, slice(None, None, -1), 1.5, view):
            with self.assertRaises((IndexError, ValueError, TypeError)):
                view[bad]

    def test_keys(self):
        """Every key of two parts as NumPy has it, by indexing nested lists."""
        rows = [[10 * i + j for j in range(4)] for i in range(3)]

        def picked(rows, first, second):
            if isinstance(first, slice):
                return [row[second] for row in rows[first]]
            return rows[first][second]

        t = ferry.tensor(rows)
        one = [0, -1, 2, *(slice(b, e, s) for b in (None, 1, -2, 9) for e in (None, 2, -1, 0)
                           for s in (None, 1, 2, 2**62))]  # fmt: skip
        for device in (ferry.host, self.device):
            there = t if device is ferry.host else t.upload(device)
            for first in one:
                for second in one if device is ferry.host else one[:7]:
                    view = there[first, second]
                    self.assertIs(view.device, device)
                    here = view if view.is_host else view.download().wait()
                    self.assertEqual(here.tolist(), picked(rows, first, second), (first, second))
        for key, shape in ((None, (1, 3, 4)), (..., (3, 4)), ((), (3, 4)), ((..., None), (3, 4, 1)),
                           ((None, 1, ..., None), (1, 4, 1)), ((0, ..., 1), ())):  # fmt: skip
            self.assertEqual(t[key].shape, shape)
            self.assertIsNot(t[key], t)
        self.assertEqual([row.tolist() for row in reversed(t)], rows[::-1])

    def test_refused_keys(self):
        t = ferry.zeros((2, 3))

        class Index:
            def __init__(self, run):
                self.run = run

            def __index__(self):
                return self.run()

        def fails():
            raise ArithmeticError("of the index")

        for key, kind, text in (
            (5, IndexError, "index 5 of axis 0, whose length is 2"),
            ((0, -4), IndexError, "index -4 of axis 1, whose length is 3"),
            (2**70, IndexError, f"index {2**70} of axis 0"),
            ((0, 0, 0), IndexError, "3 indices for a tensor of rank 2"),
            ((..., ...), IndexError, "one ... at most"),
            (True, TypeError, "ferry.where"),
            ("x", TypeError, "not str; ferry.gather"),
            (t, TypeError, "not Tensor; ferry.gather"),
            (slice(0, 2, -1), ValueError, "ferry.flip"),
            (slice(0, 2, 0), ValueError, "zero"),
            (slice(0, 2, 2**70), OverflowError, f"slice_step: step is {2**70}"),
            (slice("a"), TypeError, "slice indices"),
            (Index(fails), ArithmeticError, "of the index"),
            ((None,) * 9, ferry.Error, "unsqueeze"),
        ):
            with self.assertRaisesRegex(kind, text):
                t[key]
        one = ferry.ones(1)[0]
        for wrong in (len, iter):
            with self.assertRaisesRegex(TypeError, "rank 0 has no length"):
                wrong(one)
        gone = ferry.zeros(3)
        with self.assertRaisesRegex(ValueError, "destroyed"):
            gone[Index(lambda: ferry._c.fy_tensor_destroy(gone) or 0)]
        for read in (len, lambda t: t.size, lambda t: t.ndim, lambda t: t[0], lambda t: t.tolist()):
            with self.assertRaises(ValueError):
                read(gone)

    def test_lists(self):
        values = [[0, 1, 1], [1, 0, 1]]
        for dtype in ferry.dtypes:
            t = ferry.tensor(values, dtype)
            self.assertEqual(t.T.tolist(), [list(column) for column in zip(*values)], dtype)
            self.assertIs(type(t[0, 0].tolist()), type(t.tolist()[0][0]))
            self.assertEqual((t.ndim, t.size, t.nbytes), (2, 6, 6 * ferry._c.fy_dtype_size(dtype)))
        self.assertEqual(ferry.ones((2, 0)).tolist(), [[], []])
        self.assertEqual(ferry.ones((0, 2)).tolist(), [])
        self.assertEqual(ferry.ones((1, 2)).broadcast_to(2, 2).tolist(), [[1, 1], [1, 1]])
        with self.assertRaises(ferry.DeviceMismatch):
            ferry.zeros(2, device=self.device).tolist()
        for data, dtype in (([True, False], "bool"), ([True, 2], "i64"), ([1, 2.0], "f32"),
                            ([[True], [1.0]], "f32"), ((), "f32"), (3, "i64")):  # fmt: skip
            t = ferry.tensor(data)
            self.assertEqual((t.dtype, t.tolist()), (dtype, list(data) if data == () else data))
        for wrong in ([1, "a"], [[1], 2], [1.0, None], [[1, 2], [3]]):
            with self.assertRaises((TypeError, ValueError)):
                ferry.tensor(wrong)

    def test_devices_of_tensors(self):
        self.assertIs(ferry.zeros(1).device, ferry.host)
        self.assertIs(ferry.zeros(1, device=self.device).device, self.device)
        self.assertFalse(ferry.zeros(1, device=self.device).is_host)

    def test_attributes_of_equal_keys(self):
        """1, 1.0 and True are one key of a dict, 0.0 and -0.0 as well."""
        image, weights = ferry.ones((1, 3, 3, 1)), ferry.ones((1, 3, 3, 1))
        for _ in range(2):
            self.assertEqual(ferry.conv2d(image, weights, padding_h=1).shape, (1, 3, 1, 1))
            with self.assertRaisesRegex(TypeError, "conv2d: padding_h is float"):
                ferry.conv2d(image, weights, padding_h=1.0)
            with self.assertRaisesRegex(TypeError, "no attribute 'pad'; it has: stride_h"):
                ferry.conv2d(image, weights, pad=1)
            for low in (0.0, -0.0):
                got = ferry.call("clamp", ferry.tensor([-1.0]), low=low).item()
                self.assertEqual(str(got), str(low))

    def test_nothing_moves_by_itself(self):
        t = ferry.tensor([1.0]).upload(self.device)
        before = ferry.ledger.totals()
        reads = [float, int, bool, t.__class__.item, t.__class__.tolist, memoryview, bytes]
        for read in reads:
            with self.assertRaises(ferry.DeviceMismatch, msg=read) as caught:
                read(t)
            self.assertEqual(caught.exception.status, ferry.Status.DEVICE_MISMATCH)
            self.assertIn("fy_tensor_download", caught.exception.hint)
        with self.assertRaises(ferry.DeviceMismatch):
            if t == t:
                pass
        with self.assertRaises(ferry.DeviceMismatch):
            t + ferry.tensor([1.0])
        with self.assertRaises(TypeError):
            t.__contains__(1.0)
        self.assertEqual(repr(t), "ferry.Tensor(1 f32 on sim:0)")
        self.assertIn("sim:0", t._repr_html_())
        since = ferry.ledger.totals() - before
        self.assertEqual((since.upload_count, since.download_count, since.syncs), (0, 0, 0))

    def test_reads_on_the_host(self):
        self.assertEqual(float(ferry.tensor([2.5])), 2.5)
        self.assertEqual(repr(ferry.tensor([1, 2])), "ferry.Tensor(2 i64 on host: [1, 2])")
        self.assertIn("<td>2</td>", ferry.tensor([[1, 2]])._repr_html_())
        self.assertTrue(ferry.tensor(1) == ferry.tensor(1))
        with self.assertRaises(ferry.ShapeMismatch):
            bool(ferry.tensor([1, 2]) == ferry.tensor([1, 2]))

    def test_memory_follows_objects(self):
        live = self.device.memory()["live"]
        t = [ferry.zeros((1024, 4), device=self.device) + 1 for _ in range(8)]
        self.assertGreaterEqual(self.device.memory()["live"], live + 8 * 16384)
        del t
        gc.collect()
        self.device.wait()
        self.assertEqual(self.device.memory()["live"], live)

    def test_ops(self):
        x = ferry.tensor([[-1.0, 2.0], [3.0, 4.0]])
        self.assertEqual(ferry.relu(x).tolist(), [[0, 2], [3, 4]])
        self.assertEqual(ferry.sum(x).item(), 8)
        self.assertEqual(ferry.sum(x, axes=-1, keepdims=True).tolist(), [[1], [7]])
        self.assertEqual(ferry.max(x, axes=(0, 1)).item(), 4)
        self.assertEqual(ferry.clamp(x, 0, 3).tolist(), [[0, 2], [3, 3]])
        values, indices = ferry.topk(x, 1)
        self.assertEqual((values.tolist(), indices.tolist()), ([[2], [4]], [[1], [1]]))
        self.assertEqual(ferry.concat([x, x], 0).shape, (4, 2))
        self.assertEqual(ferry.linear(x, x, activation="relu").tolist(), [[5, 5], [5, 25]])
        self.assertEqual(ferry.pad(x, [0, 1], [0, 0]).shape, (2, 3))
        image = ferry.ones((1, 4, 4, 1))
        weight = ferry.ones((1, 3, 3, 1))
        self.assertEqual(ferry.conv2d(image, weight, padding_h=1, padding_w=1).shape, (1, 4, 4, 1))
        self.assertEqual(ferry.cast(x, "i32").tolist(), [[-1, 2], [3, 4]])
        ferry.fill(x, 5)
        self.assertEqual(x.tolist(), [[5, 5], [5, 5]])
        self.assertEqual(ferry.call("clamp", x, high=1.0).tolist(), [[1, 1], [1, 1]])
        rng = ferry.rng_create(self.device, 1)
        self.assertEqual(ferry.rand(rng, "f32", (2, 2), 0, 1).shape, (2, 2))
        for wrong in (lambda: ferry.relu(None), lambda: ferry.add(x, 1), lambda: ferry.relu(x, x)):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaisesRegex(TypeError, "padding_h"):
            ferry.conv2d(image, weight, padding=1)
        with self.assertRaisesRegex(ValueError, "gelu"):
            ferry.linear(x, x, activation="tan")
        self.assertIn("matmul", ferry.op_names())
        self.assertEqual(ferry.op_info("clamp")["attributes"][0]["name"], "low")


class Exact(unittest.TestCase):
    def test_integers_beside_integer_tensors(self):
        t = ferry.tensor([1, 2])
        self.assertEqual((t + 2**53).tolist(), [2**53 + 1, 2**53 + 2])
        for refused in (lambda: t + (2**53 + 1), lambda: ferry.full(2, 2**53 + 1, "i64")):
            with self.assertRaises(OverflowError):
                refused()

    def test_refused_keys_and_values(self):
        t = ferry.ones((2, 2))
        for key, kind in ((True, TypeError), ((..., ...), IndexError)):
            with self.assertRaises(kind):
                t[key]
        with self.assertRaisesRegex(ValueError, "i32"):
            ferry.tensor([1.5], dtype="i32")
        with self.assertRaises(ferry.DeviceMismatch):
            ferry.tensor(ferry.ones(2, device="sim:0"))


if __name__ == "__main__":
    unittest.main()
