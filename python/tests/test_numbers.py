"""Numbers beside tensors: every operator x kind of number x side x dtype x device, recorded or not.

A number of Python or NumPy takes the tensor's dtype. The values, dtypes and gradients are compared
with those of Python's floats. Arrays, lists and numbers that no tensor has are refused.
"""

import decimal
import math
import operator
import unittest

import ferry
from ferry import train

try:
    import numpy
except ImportError:
    numpy = None

FLOATS, INTEGERS = ("f32", "f64", "f16", "bf16"), ("i32", "i64", "u8")
VALUES = [1.0, 2.0, 5.0]  # of the tensor; exact in every dtype
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# The slope of each operator at x for a number s: of x op s, of s op x.
SLOPES = {
    "add": (lambda x, s: 1, lambda x, s: 1),
    "sub": (lambda x, s: 1, lambda x, s: -1),
    "mul": (lambda x, s: s, lambda x, s: s),
    "truediv": (lambda x, s: 1 / s, lambda x, s: -s / x**2),
    "pow": (lambda x, s: s * x ** (s - 1), lambda x, s: s**x * math.log(s)),
}
INTEGER_OPERATORS = ("add", "sub", "mul", "floordiv", "mod")


def integers():
    kinds = [int, bool]
    if numpy:
        kinds += [getattr(numpy, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
        kinds += [numpy.bool_, numpy.longlong, numpy.intc]
    return kinds


def floats():
    kinds = [float, *integers()]
    if numpy:
        kinds += [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble]
    return kinds


def numbers(kinds):
    return [kind(value) for kind in kinds for value in ((1,) if "bool" in kind.__name__ else (1, 2, 3))]


def fetched(tensor):
    return (tensor if tensor.is_host else tensor.download().wait()).tolist()


class Operators(unittest.TestCase):
    """Values, type, dtype, device and shape of every operator, and its gradient on a tape."""

    def check(self, name, tensor, number, is_left):
        function = getattr(operator, name)
        result = function(number, tensor) if is_left else function(tensor, number)
        self.assertIs(type(result), ferry.Tensor)
        is_comparison = name in COMPARISONS
        self.assertEqual(result.dtype, "bool" if is_comparison else tensor.dtype)
        self.assertEqual((result.device, result.shape), (tensor.device, (3,)))
        s = float(number)
        wanted = [function(s, x) if is_left else function(x, s) for x in VALUES]
        tolerance = {"f16": 2e-3, "bf16": 2e-2}.get(tensor.dtype, 1e-6)
        for got, value in zip(fetched(result), wanted, strict=True):
            if tensor.dtype == "u8" and not is_comparison:
                value %= 256
            self.assertAlmostEqual(got, value, delta=tolerance * max(1, abs(value)))
        return result

    def walk(self, dtypes, names, kinds):
        calls = 0
        for device in (ferry.host, ferry.Device("sim:0")):
            for dtype in dtypes:
                values = VALUES if dtype in FLOATS else [int(value) for value in VALUES]
                tensor = ferry.tensor(values, dtype=dtype, device=device)
                for name in names:
                    for number in numbers(kinds()):
                        for is_left in (False, True):
                            case = dict(op=name, kind=type(number), number=number, left=is_left)
                            with self.subTest(device=device.name, dtype=dtype, **case):
                                self.check(name, tensor, number, is_left)
                            calls += 1
        return calls

    def test_floats(self):
        self.assertGreater(self.walk(FLOATS, (*SLOPES, *COMPARISONS), floats), 900)

    def test_integers(self):
        self.assertGreater(self.walk(INTEGERS, (*INTEGER_OPERATORS, *COMPARISONS), integers), 400)

    def test_gradients(self):
        for device in (ferry.host, ferry.Device("sim:0")):
            tensor = ferry.tensor(VALUES, device=device)
            for name, slopes in SLOPES.items():
                for number in numbers(floats()):
                    for is_left in (False, True):
                        tape = ferry.Tape()
                        tape.watch(tensor)
                        with self.subTest(op=name, kind=type(number), left=is_left):
                            with tape:
                                tape.backward(ferry.sum(self.check(name, tensor, number, is_left)))
                            wanted = [slopes[is_left](x, float(number)) for x in VALUES]
                            for got, value in zip(fetched(tape.grad(tensor)), wanted, strict=True):
                                self.assertAlmostEqual(got, value, delta=1e-5 * max(1, abs(value)))

    def test_a_penalty_keeps_its_gradient(self):
        w = ferry.tensor([3.0, 4.0])
        kinds = [float] + ([numpy.float64, numpy.float32] if numpy else [])
        for kind in kinds:
            tape = ferry.Tape()
            tape.watch(w)
            with tape:
                tape.backward(ferry.sum(w) + kind(0.5) * ferry.sum(w * w))
            self.assertEqual(tape.grad(w).tolist(), [4, 5], kind)

    def test_in_place_forms(self):
        for number in numbers(floats()):
            for name in ("iadd", "isub", "imul", "itruediv", "ipow"):
                tensor = ferry.tensor(VALUES)
                for pair in ((tensor, number), (number, tensor)):
                    result = getattr(operator, name)(*pair)
                    wanted = getattr(operator, name[1:])(*pair)
                    self.assertIs(type(result), ferry.Tensor, (name, number))
                    self.assertEqual(result.tolist(), wanted.tolist())

    def test_no_traffic(self):
        tensor = ferry.tensor(VALUES, device="sim:0")
        before = ferry.ledger.totals()
        for number in numbers(floats()):
            tensor * number, number / tensor, tensor < number
        since = ferry.ledger.totals() - before
        self.assertEqual((since.upload_count, since.download_count, since.syncs), (0, 0, 0))


class Refused(unittest.TestCase):
    def operands(self):
        given = [[1.0, 2.0, 5.0], (1.0, 2.0, 5.0), 1j, decimal.Decimal(2)]
        if numpy:
            given += [numpy.ones(3), numpy.ones(3, "f4"), numpy.array(2.0), numpy.ones((2, 3), bool),
                      numpy.complex64(1), numpy.timedelta64(1, "s"),
                      numpy.array(["a"]), numpy.array([None])]  # fmt: skip
        return given

    def test_others_raise(self):
        """None of them becomes an array, a list or False."""
        for device in (ferry.host, ferry.Device("sim:0")):
            tensor = ferry.tensor(VALUES, device=device)
            for name in (*SLOPES, *COMPARISONS, "floordiv", "mod", "matmul", "iadd", "imul", "and_",
                         "or_", "xor", "lshift", "rshift"):  # fmt: skip
                for value in self.operands():
                    for pair in ((tensor, value), (value, tensor)):
                        with self.subTest(device=device.name, op=name, kind=type(value)):
                            with self.assertRaises(TypeError):
                                getattr(operator, name)(*pair)

    def test_the_remedy(self):
        tensor = ferry.tensor(VALUES)
        given = [[1.0]] + ([numpy.ones(3)] if numpy else [])
        for value in given:
            for call in (lambda v=value: v * tensor, lambda v=value: tensor == v):
                with self.assertRaisesRegex(TypeError, r"ferry\.tensor\(a\).*upload"):
                    call()

    def test_unknown_objects(self):
        """As Python has it: operators of theirs, else unequal."""
        tensor = ferry.tensor(VALUES)
        self.assertIs(tensor == "a", False)
        self.assertIs(tensor == None, False)  # noqa: E711
        self.assertIs(tensor != object(), True)
        for call in (lambda: tensor + "a", lambda: tensor < None, lambda: divmod(tensor, 2),
                     lambda: round(tensor), lambda: ~tensor):  # fmt: skip
            with self.assertRaises(TypeError):
                call()

        class Mine:
            def __radd__(self, other):
                return "mine"

        self.assertEqual(tensor + Mine(), "mine")

    def test_bytes(self):
        """bytes + a buffer would be bytes."""
        tensor = ferry.tensor(VALUES)
        for value in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd")):
            for name in ("add", "iadd", "mul", "sub"):
                for pair in ((tensor, value), (value, tensor)):
                    with self.assertRaisesRegex(TypeError, r"ferry\.tensor\(a\)"):
                        getattr(operator, name)(*pair)

    def test_inexact_integers(self):
        tensor = ferry.tensor([1, 2])
        kinds = [int] + ([numpy.int64, numpy.uint64] if numpy else [])
        for kind in kinds:
            self.assertEqual((tensor + kind(2**53)).tolist(), [2**53 + 1, 2**53 + 2])
            for pair in ((tensor, kind(2**53 + 1)), (kind(2**53 + 1), tensor)):
                with self.assertRaisesRegex(OverflowError, "equal"):
                    operator.add(*pair)
        for number in (0.5, *([numpy.float32(0.5)] if numpy else [])):
            with self.assertRaises(ferry.InvalidArgument):
                tensor * number

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_ufuncs(self):
        tensor = ferry.tensor(VALUES)
        for call in (lambda: numpy.add(tensor, 1), lambda: numpy.exp(tensor)):
            with self.assertRaisesRegex(TypeError, "ufunc"):
                call()
        self.assertEqual(numpy.asarray(tensor).tolist(), VALUES)
        self.assertEqual(numpy.exp(tensor.numpy()).dtype, "f4")


class Lists(unittest.TestCase):
    """ferry.tensor of numbers: the dtype follows the elements, and each is exact or refused."""

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_dtypes_of_numpy(self):
        large = 2**40 + 1
        for values, dtype in (
            ([numpy.int64(large), numpy.int64(3)], "i64"), ([numpy.int8(-1), 2], "i64"),
            ([numpy.uint64(2**63 - 1)], "i64"), ([numpy.bool_(True), False], "bool"),
            ([numpy.bool_(True), 2], "i64"), ([numpy.float64(0.5)], "f32"),
            ([numpy.float16(0.5), numpy.int64(1)], "f32"), ([1, numpy.longdouble(0.5)], "f32"),
        ):  # fmt: skip
            for shape in (lambda v: v, lambda v: [v, v], lambda v: [tuple(v)], lambda v: v[0]):
                with self.subTest(values=values):
                    t = ferry.tensor(shape(values))
                    self.assertEqual(t.tolist(), numpy.array(shape(values)).tolist())
                    if shape(values) is not values[0]:
                        self.assertEqual(t.dtype, dtype)

    def test_dtypes_of_python(self):
        for values, dtype in (([True, False], "bool"), ([True, 2], "i64"), ([True, 0.5], "f32"),
                              ([], "f32"), ([[1, 2], [3, 4]], "i64"), (2**63 - 1, "i64")):  # fmt: skip
            t = ferry.tensor(values)
            self.assertEqual((t.dtype, t.tolist()), (dtype, values))

    def test_numbers_without_room(self):
        for value, dtype in ((2**63, None), (-(2**63) - 1, "i64"), (2**31, "i32"), (256, "u8"),
                             (-1, "u8"), (1.5, "i64"), (70000, "f16")):  # fmt: skip
            for given in (value, [0, value], [[0], [value]]):
                with self.assertRaisesRegex(ValueError, f"{value}".replace("+", ".")):
                    ferry.tensor(given, dtype=dtype)
        if numpy:
            with self.assertRaisesRegex(ValueError, str(2**63)):
                ferry.tensor([numpy.uint64(2**63)])

    def test_elements_that_are_no_numbers(self):
        wrong = ["1", None, 1j, decimal.Decimal(1), ferry.tensor(1), ferry.ones(2)]
        wrong += [numpy.ones(2), numpy.array(1), numpy.complex64(1)] if numpy else []
        for value in wrong:
            for given in ([value], [0, value], [[value]]):
                for dtype in (None, "bool", "f32"):
                    with self.assertRaisesRegex(TypeError, "numbers, not"):
                        ferry.tensor(given, dtype=dtype)

    def test_labels(self):
        x, labels = [[1.0]] * 3, [0, 2, 1]
        kinds = [int] + ([numpy.int64, numpy.uint8, numpy.int32] if numpy else [])
        for kind in kinds:
            info = train.Dataset(x, [kind(label) for label in labels]).info()
            self.assertEqual((info["classes"], info["targets"]), (3, 0))
        for labels in ([0, 1, 2**31], [0, 1, 2**32], [0, 1, 2**31 - 1]):
            with self.assertRaisesRegex(ValueError, str(labels[2])):
                train.Dataset(x, labels)
            with self.assertRaisesRegex(ValueError, str(labels[2])):
                train.Dataset(x, ferry.tensor(labels))
        with self.assertRaisesRegex(ValueError, "-1"):
            train.Dataset(x, [0, 1, -1], classes=3)
        with self.assertRaises(ferry.Error):
            train.Dataset(x, [0, 1, 3], classes=3)
        for dtype in ("f16", "bf16", "f32", "f64"):
            info = train.Dataset(x, ferry.tensor([0.5, 1.0, 2.0], dtype=dtype)).info()
            self.assertEqual((info["classes"], info["targets"]), (0, 1))


def sizes():
    """(call, an integer that it takes): lengths, axes, counts."""
    t = ferry.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return {
        "zeros": (ferry.zeros, 2),
        "zeros of rank 2": (lambda n: ferry.zeros((n, 3)), 2),
        "full": (lambda n: ferry.full([n], 1.0), 2),
        "empty": (lambda n: ferry.empty((1, n)), 2),
        "pinned": (lambda n: ferry.pinned(n, "sim:0"), 2),
        "arange": (ferry.arange, 2),
        "reshape": (lambda n: t.reshape(n, -1), 2),
        "reshape to one axis": (lambda n: t.reshape(n), 6),
        "reshape by a list": (lambda n: t.reshape([n, 3]), 2),
        "broadcast_to": (lambda n: t.broadcast_to(n, 2, 3), 2),
        "transpose": (lambda n: t.transpose(n, 0), 1),
        "transpose by a list": (lambda n: t.transpose([n, 0]), 1),
        "split": (t.split, 2),
        "split by lengths": (lambda n: t.split([n, 1]), 1),
        "split of an axis": (lambda n: t.split(3, n), 1),
        "unsqueeze": (t.unsqueeze, 1),
        "squeeze": (t[None].squeeze, 0),
        "sum": (lambda n: ferry.sum(t, axes=n), 1),
        "sum of axes": (lambda n: ferry.sum(t, axes=[n, 0]), 1),
        "softmax": (lambda n: ferry.softmax(t, n), 1),
        "concat": (lambda n: ferry.concat([t, t], n), 1),
        "topk": (lambda n: ferry.topk(t, n), 2),
        "pad": (lambda n: ferry.pad(t, [0, n], [0, 0]), 1),
        "call": (lambda n: ferry.call("sum", t, axes=n), 1),
        "call of an axis": (lambda n: ferry.call("softmax", t, axis=n), 1),
        "guard": (lambda n: ferry.guard("g", upload=n).__enter__().__exit__(), 1),
        "custom layer": (lambda n: train.custom(lambda x, w: x, {"w": [n, 2]}), 2),
    }  # fmt: skip


def facts(result):
    if isinstance(result, (list, tuple)):
        return [facts(part) for part in result]
    return getattr(result, "shape", None)


class Sizes(unittest.TestCase):
    """Integers of any type are exact; nothing else is a length, an axis or a count."""

    def test_integers_of_numpy(self):
        kinds = [numpy.int8, numpy.int64, numpy.uint64] if numpy else []
        for name, (call, size) in sizes().items():
            wanted = facts(call(size))
            for kind in kinds:
                with self.subTest(call=name, kind=kind):
                    self.assertEqual(facts(call(kind(size))), wanted)

    def test_others_are_refused(self):
        for name, (call, size) in sizes().items():
            for wrong in (size + 0.5, float(size), str(size), None, ferry.tensor(size), [[size]],
                          {size}, {size: size}, bytearray([size]), bytes([size])):  # fmt: skip
                if wrong is None and name in ("sum", "call"):
                    continue  # all axes
                with self.subTest(call=name, given=wrong):
                    with self.assertRaisesRegex(TypeError, "integer|rank 0"):
                        call(wrong)

    def test_nothing_wraps(self):
        for name, (call, size) in sizes().items():
            for power in (32, 64):
                wrong = size + 2**power
                lengths = ("zeros", "full", "empty", "pinned", "arange", "reshape", "broadcast_to",
                           "topk", "pad", "guard", "custom layer")  # fmt: skip
                if power == 32 and name.startswith(lengths):
                    continue  # a length may be so large
                with self.subTest(call=name, given=wrong):
                    if name == "guard" and power == 64:
                        wrong = -1
                    with self.assertRaises((OverflowError, ValueError)):
                        call(wrong)

    def test_axes_of_calls_by_name(self):
        t = ferry.ones((2, 3))
        for axes in ((0, 0), (1, -1), 8, 32, -3):
            with self.assertRaises(ValueError):
                ferry.call("sum", t, axes=axes)
        self.assertEqual(ferry.call("sum", t, axes=(-1, 0)).shape, ())

    def test_parts_of_a_number(self):
        with self.assertRaisesRegex(ValueError, "rank 0|axis"):
            ferry.tensor(1.0).split(1)

    def test_slices(self):
        t = ferry.tensor([1.0, 2.0, 3.0])
        self.assertEqual(t[0 : 2**70].tolist(), [1, 2, 3])
        for key in (1.0, "1", slice(0.5, 2), slice("0")):
            with self.assertRaises(TypeError):
                t[key]
        with self.assertRaises(IndexError):
            t[2**64]
        if numpy:
            self.assertEqual(t[numpy.int8(1)].item(), 2)
            self.assertEqual(t[numpy.int64(1) : numpy.uint8(3)].tolist(), [2, 3])

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_dtypes_of_numpy(self):
        for dtype in ("f32", "f64", "f16", "i32", "i64", "u8", "bool"):
            array = ferry.zeros(1, dtype).numpy()
            for given in (array.dtype, array.dtype.type, array.dtype.name):
                self.assertEqual(ferry.zeros(1, given).dtype, dtype)
        for given in (numpy.int8, numpy.complex64, numpy.dtype("M8[s]"), numpy.generic, str):
            with self.assertRaisesRegex(ValueError, "bf16"):
                ferry.zeros(1, given)

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_options_of_training(self):
        layer = train.linear(numpy.int64(2), numpy.int32(3))
        model = train.Model("sim:0", layer, numpy.array([2]), seed=numpy.uint8(1))
        data = train.Dataset([[1.0, 2.0]] * 4, [0, 1, 2, 0])
        loader = train.Loader("sim:0", data, batch=numpy.int64(2), scale=numpy.float32(0.5))
        self.assertEqual((model.info()["params"], len(loader)), (9, 2))


class Values(unittest.TestCase):
    """Numbers that go to C as doubles: exact, or refused."""

    def calls(self, dtype="i64"):
        t = ferry.zeros(2, dtype)
        return [
            lambda v: ferry.full(2, v, dtype),
            lambda v: ferry.fill(t, v) or t,
            lambda v: ferry.call("fill", dst=[t], value=v) and t,
            lambda v: ferry.pad(t, [1], [1], v)[0:1],
            lambda v: ferry.arange(2, v, 0, dtype),
        ]

    def test_integers(self):
        kinds = [int] + ([numpy.int64, numpy.uint64] if numpy else [])
        for i, call in enumerate(self.calls()):
            for kind in kinds:
                with self.subTest(call=i, kind=kind):
                    if i != 2:  # its attribute for integers is int_value
                        self.assertEqual(call(kind(2**52 + 1))[0].item(), 2**52 + 1)
                    with self.assertRaisesRegex(OverflowError, "9007199254740993"):
                        call(kind(2**53 + 1))

    def test_fractions_in_integers(self):
        for i, call in enumerate(self.calls()):
            if i != 2:
                with self.subTest(call=i), self.assertRaises(ferry.InvalidArgument):
                    call(0.5)

    def test_what_is_no_number(self):
        wrong = ["1", None, 1j, [1.0], ferry.tensor(1.0)]
        wrong += [numpy.ones(1), numpy.complex64(1), numpy.str_("1")] if numpy else []
        for i, call in enumerate(self.calls("f32")):
            for value in wrong:
                with self.subTest(call=i, value=value):
                    with self.assertRaisesRegex(TypeError, "not a number"):
                        call(value)


if __name__ == "__main__":
    unittest.main()
