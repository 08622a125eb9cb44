"""Numbers beside tensors: every operator x kind of number x side x dtype x device, recorded or not.

A number of Python or NumPy takes the tensor's dtype. The values, dtypes and gradients are compared
with those of Python's floats. Arrays, lists and numbers that no tensor has are refused.
"""

import decimal
import math
import operator
import unittest

import ferry

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
                      numpy.complex64(1), numpy.timedelta64(1),
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


if __name__ == "__main__":
    unittest.main()
