"""Arguments of every kind for state_machine.py: numbers, objects, lists, keys, shapes, readers."""

import array
import math
import operator
from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy

import ferry
from mirror import DTYPES, FLOATS, INTEGERS, NUMPY, number_in, rounded, wide

COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
NONE = ["and", "or", "xor", "lshift", "rshift", "divmod"]
OPERATORS = {
    **{name: getattr(operator, name) for name in [*ARITHMETIC, *COMPARISONS]},
    **{f"i{name}": getattr(operator, f"i{name}") for name in ARITHMETIC},
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift,
    "rshift": operator.rshift, "divmod": divmod, "iand": operator.iand, "ior": operator.ior,
}  # fmt: skip
PURE = {name: getattr(operator, name) for name in [*ARITHMETIC, *COMPARISONS]}
UNARY_OPERATORS = {"neg": operator.neg, "abs": abs}


def base(name):
    return name[1:] if name[1:] in (*ARITHMETIC, *NONE) else name


# ---- numbers ----

NUMBERS = [int, int, float, float, bool, *(getattr(numpy, name) for name in (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
    "float64", "longdouble", "bool_"))]  # fmt: skip
VALUES = [0, 1, 2, 3, -1, -2, 0.5, 0.1, -0.0, -1.5, 2.5, 7, 255, 256, 300, 2**31, 2**40, 2**53, 2**53 + 1,
          2**63 - 1, -(2**63), 2**64, 2**70, 1e-30, 1e30, 1e300, 70000.0, math.inf, -math.inf, math.nan,
          1e-310, 2**1024]  # fmt: skip


def plain(number):
    """As a number of Python; a longdouble as the nearest float."""
    if isinstance(number, numpy.bool_):
        return bool(number)
    if isinstance(number, numpy.integer):
        return int(number)
    return float(number) if isinstance(number, numpy.floating) else number


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Arrays:
    def __array__(self, *given, **options):
        return numpy.ones(3)


class Mine:
    """Its operators come second, so they get what a tensor's leave."""


def values_of(held):
    return held.values.astype("f8")


# (the object beside a tensor, is it one that Python compares as unequal)
OTHERS = [
    lambda h: (values_of(h), False), lambda h: (values_of(h).tolist() if h.index.ndim else [1.0], False),
    lambda h: ((1.0, 2.0), False), lambda h: ([], False), lambda h: (numpy.array(2.0), False),
    lambda h: (values_of(h).astype("f4"), False), lambda h: (numpy.asarray(values_of(h) > 0), False),
    lambda h: (numpy.array(["a"]), False), lambda h: (numpy.array([None]), False), lambda h: (1j, False),
    lambda h: (numpy.complex64(1), False),
    lambda h: (Decimal(2), False), lambda h: (Fraction(1, 2), False), lambda h: (Arrays(), False),
    lambda h: (memoryview(b"abc"), False), lambda h: (b"abc", False), lambda h: (bytearray(b"abcd"), False), lambda h: ("abc", True),
    lambda h: (None, True), lambda h: (object(), True), lambda h: ({1.0}, True), lambda h: ({}, True),
    lambda h: (Index(2), True), lambda h: (Mine(), True), lambda h: (float, True), lambda h: (range(3), True),
    lambda h: (ferry.host, True), lambda h: (Ellipsis, True), lambda h: (numpy.str_("a"), True),
    lambda h: (numpy.bytes_(b"a"), False), lambda h: (array.array("f", [1.0]), True), lambda h: (deque([1.0]), True), lambda h: (numpy.float32, True),
]  # fmt: skip

def is_its_own(value, name):
    """On the left, objects of Python decide about these: bytes compare, texts format, 1/2 is 0.5."""
    if isinstance(value, (str, bytes, bytearray)) and name in ("mod", "imod"):
        return True
    if isinstance(value, (memoryview, bytearray)):
        return name in COMPARISONS
    if isinstance(value, dict):
        return name == "ior"
    if isinstance(value, deque):
        return name == "iadd"
    return isinstance(value, Fraction) and name in ("pow", "ipow")


# ---- tensors ----

SHAPES = [(), (1,), (3,), (2, 3), (1, 3), (2, 1), (3, 2), (2, 2, 2), (0,), (2, 0), (1, 1), (3, 1), (4,)]
PATTERNS = [
    {d: [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.75, 4.0] if d in FLOATS else [1, 2, 3, 1, 0, 5, 7, 2] for d in DTYPES},
    {d: [-1.5, 0.25, 2.0, -3.0, 1.0, 0.125] if d in FLOATS else [0, 1, 2, 0, 9, 4] for d in DTYPES},
    {d: [0.0, -0.0, math.inf, 1.0, math.nan, -math.inf, 1e-30, -2.0] for d in FLOATS},
    {d: [1.0, 3e4, -6e4, 1e-7, 2.0, -1e-4] for d in FLOATS},
]
for pattern in PATTERNS[2:]:
    pattern.update({
        d: [0, 1, numpy.iinfo(t).max, numpy.iinfo(t).min, 2, 100] for d, t in INTEGERS.items()
    })  # fmt: skip
    pattern["bool"] = [True, False, False]
PATTERNS = [{d: numpy.array(v, wide(d)) for d, v in p.items()} for p in PATTERNS]
for p in PATTERNS:
    p["bool"] = p["bool"].astype(bool)


def native(values, dtype):
    return values.astype("f4" if dtype == "bf16" else NUMPY[dtype])


def by_list(values, dtype, device):
    if 0 in values.shape and values.ndim > 1:
        return None, None
    return ferry.tensor(values.tolist(), dtype, device), (values, dtype)


def by_scalars(values, dtype, device):
    given = list(native(values.reshape(-1), dtype))
    wanted = dtype if dtype == "bool" and given else "i64" if dtype in INTEGERS and given else "f32"
    if dtype == "f64":
        given_values = rounded(values.reshape(-1), "f32")
        if not numpy.array_equal(given_values, values.reshape(-1), equal_nan=True):
            return None, None
    return ferry.tensor(given, device=device), (values.reshape(-1).astype(wide(wanted)), wanted)


def by_array(values, dtype, device):
    return ferry.tensor(native(values, dtype), dtype, device), (values, dtype)


def by_own_dtype(values, dtype, device):
    wanted = "f32" if dtype == "bf16" else dtype
    return ferry.tensor(native(values, dtype), device=device), (values, wanted)


def by_strides(values, dtype, device):
    array = numpy.repeat(native(values, dtype), 2, axis=-1)[..., ::2] if values.ndim else native(values, dtype)
    return ferry.tensor(array, dtype, device), (values, dtype)


def by_sharing(values, dtype, device):
    if dtype == "bf16" or device.name != "host":
        return None, None
    return ferry.from_numpy(native(values, dtype).copy()), (values, dtype)


def by_full(values, dtype, device):
    value = values.reshape(-1)[0].item() if values.size else 1
    if number_in(value, dtype)[1]:
        return None, None
    return ferry.full(values.shape, value, dtype, device), (numpy.full(values.shape, value, wide(dtype)), dtype)


def by_zeros(values, dtype, device):
    return ferry.zeros(list(values.shape), numpy_dtype(dtype), device), (numpy.zeros_like(values), dtype)


def by_ones(values, dtype, device):
    return ferry.ones(values.shape, numpy_dtype(dtype), device.name), (numpy.ones_like(values), dtype)


def by_arange(values, dtype, device):
    if dtype == "bool":
        return None, None
    count = values.size
    return ferry.arange(count, 1, 2, dtype, device), (rounded(1 + 2 * numpy.arange(count), dtype), dtype)


def numpy_dtype(dtype):
    return "bfloat16" if dtype == "bf16" else numpy.dtype(NUMPY[dtype])


MAKERS = [by_list, by_scalars, by_array, by_own_dtype, by_strides, by_sharing, by_full, by_zeros, by_ones,
          by_arange]  # fmt: skip
N = numpy
# (elements, dtype, the dtype of the tensor or the exception)
LISTS = [
    ([N.int64(2**40 + 1), N.int64(3)], None, "i64"), ([N.int8(-1), 2], None, "i64"),
    ([N.uint64(2**63 - 1)], None, "i64"), ([N.bool_(True), False], None, "bool"), ([True, 2], None, "i64"),
    ([N.bool_(True), 2], None, "i64"), ([N.float64(0.5)], None, "f32"), ([N.float16(0.5), N.int64(1)], None, "f32"),
    ([1, N.longdouble(0.5)], None, "f32"), ([1, 2.5], None, "f32"), ([1.5, 2], "f64", "f64"),
    ([1, 2], "bf16", "bf16"), ([N.uint8(200), 2], "i32", "i32"), ([1, 0], "bool", "bool"), ([2**53 + 1], "i64", "i64"),
    ([N.int64(2), 3.0], N.float32, "f32"), ([1, 2], int, "i64"), ([0.5, 2], float, "f32"), ([2**63], None, ValueError),
    ([N.uint64(2**63)], None, ValueError), ([256, 1], "u8", ValueError), ([-1], "u8", ValueError),
    ([1.5], "i64", ValueError), ([N.float32(1.5)], "i32", ValueError), ([70000.0], "f16", ValueError),
    (["1"], None, TypeError), ([None], "f32", TypeError), ([1j], None, TypeError), ([Decimal(1)], None, TypeError),
    ([N.ones(2)], None, TypeError), ([N.array(1)], "i64", TypeError), ([N.complex64(1)], "f32", TypeError),
    ([Index(1)], None, TypeError), ([b"1"], "u8", TypeError), ([1, [2]], None, ValueError), ([{}], None, TypeError),
    ([N.timedelta64(1)], None, TypeError), ([N.str_("1")], None, TypeError), ([1], "f31", ValueError),
    ([1], N.int8, ValueError), ([1], "int8", ValueError), ([1], N.complex64, ValueError),
    ([ferry.tensor(1)], None, TypeError), ([object()], "bool", TypeError),
]  # fmt: skip


def cast(values, dtype):
    """As fy_cast: to integers it truncates and clamps; NaN becomes 0; from integers it wraps."""
    if dtype == "bool":
        return values != 0
    if dtype in FLOATS or values.dtype.kind != "f":
        return rounded(values, dtype)
    info = numpy.iinfo(NUMPY[dtype])
    cut = numpy.trunc(numpy.nan_to_num(values, nan=0.0, posinf=1e30, neginf=-1e30))
    inside = numpy.clip(cut, float(info.min), float(info.max))
    result = numpy.where(inside >= 2.0**63, 0, inside).astype("i8")
    return numpy.where(cut >= info.max, info.max, numpy.where(cut <= info.min, info.min, result)).astype("i8")


# ---- views ----

# (a key, the exceptions of Ferry where NumPy has another meaning)
KEYS = [(key, ()) for key in (
    0, -1, 1, 2, 5, -4, slice(None), slice(1, None), slice(0, 1), slice(None, None, 2), slice(5, 9), slice(-2, None),
    slice(2, 1), slice(0, 2**70), (slice(None), 0), (slice(None), slice(1, 3)), (0, 0), (..., 0), (..., None), None,
    (None, 0), (slice(None), None), (..., slice(1, None)), (0, ...), (), ..., (slice(0, 1), slice(0, 1)),
    numpy.int8(0), numpy.uint64(1), numpy.int64(-1), slice(numpy.int64(1), numpy.uint8(3)), Index(0), slice(Index(1)),
    2**64, -(2**70), (0, 0, 0, 0), (..., ...), slice(-(2**70), 2), (slice(None), slice(None), 1),
)] + [(key, (TypeError,)) for key in (
    True, False, 1.0, "0", b"0", [0], (0, [0]), numpy.ones(2, bool), numpy.array([0]), numpy.bool_(True), 1j,
    slice(0.5, 2), slice("0"), slice(0, 1, 1.0), numpy.float32(1), (0, True), {}, object(), numpy.array(1.0),
)] + [(key, (ValueError,)) for key in (slice(None, None, -1), slice(0, 2, 0))] + [(slice(0, None, 2**70), (OverflowError,))]  # fmt: skip


def views(name, *given):
    """(Ferry's call, NumPy's: a list of the places)"""
    def ours(t):
        return getattr(t, name)(*given)

    def dims():
        return given[0] if len(given) == 1 and numpy.iterable(given[0]) else given

    pure = {
        "reshape": lambda x: [x.reshape(positive(checked(dims()), -1))],
        "transpose": lambda x: [x.transpose(checked(dims()) or None)],
        "broadcast_to": lambda x: [numpy.broadcast_to(x, positive(checked(dims())))],
        "squeeze": lambda x: [squeeze(x, operator.index(given[0]))],
        "unsqueeze": lambda x: [numpy.expand_dims(x, operator.index(given[0]))],
        "split": lambda x: split(x, *given),
    }[name]
    return ours, pure


def checked(dims):
    return tuple(operator.index(d) for d in dims)


def positive(dims, least=0):
    if any(d < least for d in dims):
        raise ValueError
    return dims


def squeeze(x, axis):
    if x.ndim == 0:
        raise ValueError
    return numpy.squeeze(x, axis)


def split(x, parts, axis=0):
    axis = operator.index(axis)
    sizes = [operator.index(p) for p in parts] if numpy.iterable(parts) else None
    count = operator.index(parts) if sizes is None else len(sizes)
    if not -x.ndim <= axis < x.ndim or count < 1:
        raise ValueError
    if sizes is None:
        if x.shape[axis] % count or count > max((1, *x.shape)):
            raise ValueError
        return numpy.split(x, count, axis)
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise ValueError
    return numpy.split(x, numpy.cumsum(sizes)[:-1].tolist(), axis)


VIEWS = [views(*given) for given in (
    ("reshape", -1), ("reshape", (3, 2)), ("reshape", 6), ("reshape", [2, 3]), ("reshape", ()), ("reshape", 1, -1),
    ("reshape", -1, 1), ("reshape", 2, -1), ("reshape", numpy.int64(3)), ("reshape", numpy.array([3, 1])),
    ("reshape", -1, -1), ("reshape", 2.0, 3), ("reshape", "6"), ("reshape", 2**40), ("reshape", 2**64 + 3), ("reshape", -2),
    ("reshape", None), ("reshape", (Index(3),)), ("reshape", 0), ("reshape", 0, -1), ("reshape", True, 3),
    ("transpose",), ("transpose", 1, 0), ("transpose", (0,)), ("transpose", [1, 0]), ("transpose", -1, 0),
    ("transpose", 0, 0), ("transpose", 2, 1, 0), ("transpose", numpy.array([1, 0])), ("transpose", 1.0, 0),
    ("transpose", 2**32, 0), ("transpose", numpy.int8(1), numpy.uint64(0)), ("transpose", 5, 0),
    ("broadcast_to", 2, 3), ("broadcast_to", (2, 2, 3)), ("broadcast_to", 3), ("broadcast_to", [4, 1]), ("broadcast_to", ()),
    ("broadcast_to", -1, 3), ("broadcast_to", 2.5, 3), ("broadcast_to", "23"), ("broadcast_to", 0), ("broadcast_to", 2, 2, 2),
    ("broadcast_to", numpy.uint8(2), 3), ("squeeze", 0), ("squeeze", -1), ("squeeze", 1), ("squeeze", 7), ("squeeze", 0.0),
    ("squeeze", "0"), ("squeeze", numpy.int16(0)), ("squeeze", -(2**40)), ("squeeze", 2**64), ("unsqueeze", 0), ("unsqueeze", 1),
    ("unsqueeze", -1), ("unsqueeze", 9), ("unsqueeze", -2), ("unsqueeze", numpy.int64(0)), ("unsqueeze", 1.5), ("unsqueeze", 2**32),
    ("split", 1), ("split", 2), ("split", 3), ("split", [1, 2]), ("split", [1, 1]), ("split", 2, 1), ("split", 3, -1),
    ("split", (2, 0)), ("split", 0), ("split", -1), ("split", 1.5), ("split", [1.0, 1.0]), ("split", "11"), ("split", 2**33),
    ("split", numpy.int8(2)), ("split", numpy.array([1, 2])), ("split", 1, 0.0), ("split", [-1, 4]), ("split", 1, 5), ("split", []),
)]  # fmt: skip
AXES = [None, None, 0, 1, -1, (0,), (0, 1), [1], (-1, 0), numpy.int64(0), numpy.uint8(1), numpy.array([0]), Index(0), 2, 7, -9,
        (0, 0), (1, -1), 2**32, 2**64, -(2**63), 0.0, "0", (0, 1.0), [None], (), True, numpy.float32(0), 1.5, {}]  # fmt: skip


def sequence(axes):
    if isinstance(axes, (str, dict)):
        raise TypeError
    return tuple(axes) if numpy.iterable(axes) else (axes,)


def fill_by_name(t, value):
    ferry.call("fill", dst=[t], value=value)


# ---- reading ----

MOVED = (ferry.DeviceMismatch,)


def on_host(function, *, of_one=False, halves=True):
    def wanted(held):
        if held.device != "host":
            return MOVED
        if of_one and held.index.size != 1:
            return (ferry.ShapeMismatch,)
        if not halves and held.dtype == "bf16":
            return (ferry.DtypeMismatch, BufferError)
        return function(held)

    return wanted


def shared(held):
    return (ferry.Unsupported,) if held.device != "host" else (RuntimeError, BufferError) if held.dtype == "bf16" else array_of(held)


def as_number(kind):
    def wanted(held):
        value = held.values.reshape(-1)[0].item()
        try:
            return kind(value)
        except (ValueError, OverflowError) as error:
            return (type(error),)

    return wanted


def array_of(held):
    return native(held.values, held.dtype)


def of_rank_0(error, function):
    return lambda held: function(held) if held.index.ndim else error


READERS = [
    (lambda t: t.numpy(), on_host(array_of, halves=False)), (numpy.asarray, on_host(array_of, halves=False)),
    (lambda t: numpy.array(t, "f8"), on_host(lambda h: h.values.astype("f8"), halves=False)),
    (lambda t: numpy.asarray(memoryview(t)), on_host(array_of, halves=False)),
    (lambda t: t.tolist(), on_host(lambda h: h.values.tolist())),
    (lambda t: t.item(), on_host(lambda h: h.values.reshape(-1)[0].item(), of_one=True)),
    (float, on_host(as_number(float), of_one=True)), (int, on_host(as_number(int), of_one=True)),
    (bool, on_host(as_number(bool), of_one=True)), (len, of_rank_0((TypeError,), lambda h: len(h.index))),
    (lambda t: [r.shape for r in t], of_rank_0((TypeError,), lambda h: [r.shape for r in h.index])),
    (lambda t: 1.0 in t, lambda h: (TypeError,)), (lambda t: operator.setitem(t, 0, 1.0), lambda h: (TypeError,)),
    (lambda t: operator.index(t), lambda h: (TypeError,)), (lambda t: complex(t), on_host(as_number(complex), of_one=True)),
    (lambda t: numpy.add(t, 1), lambda h: (TypeError,)), (lambda t: numpy.exp(t), lambda h: (TypeError,)),
    (lambda t: round(t), lambda h: (TypeError,)), (lambda t: ~t, lambda h: (TypeError,)), (lambda t: +t, lambda h: (TypeError,)),
    (lambda t: t.shape, lambda h: h.index.shape), (lambda t: t.ndim, lambda h: h.index.ndim),
    (lambda t: t.size, lambda h: h.index.size), (lambda t: t.dtype, lambda h: h.dtype),
    (lambda t: t.nbytes, lambda h: h.index.size * (2 if "f16" in h.dtype else numpy.dtype(NUMPY[h.dtype]).itemsize)),
    (lambda t: t.is_host, lambda h: h.device == "host"), (lambda t: t.device.name, lambda h: h.device),
    (lambda t: {t: 1}[t], lambda h: 1), (lambda t: h_named(t), lambda h: "a name"),
    (lambda t: t.info()["dims"], lambda h: list(h.index.shape)), (lambda t: repr(t)[:13], lambda h: "ferry.Tensor("),
    (lambda t: t._repr_html_()[:7], lambda h: "<table>"), (lambda t: t.T.shape, lambda h: h.index.T.shape),
    (lambda t: numpy.from_dlpack(t).copy(), shared), (lambda t: t.ticket.wait(), lambda h: None),
    (lambda t: t.__dlpack_device__(), lambda h: (1, 0) if h.device == "host" else (ferry.Unsupported,)), (lambda t: t.pin("sim:0"), None),
    (lambda t: hash(t) == hash(t), lambda h: True), (lambda t: str(t) == repr(t), lambda h: True),
]  # fmt: skip
READERS = [pair for pair in READERS if pair[1]]


def h_named(tensor):
    tensor.name = "a name"
    found = tensor.name
    tensor.name = None
    return found


def equal(got, wanted):
    if isinstance(wanted, numpy.ndarray):
        is_same = type(got) is numpy.ndarray and got.dtype == wanted.dtype and got.shape == wanted.shape
        return is_same and (got.tobytes() == wanted.tobytes() or numpy.array_equal(got, wanted, equal_nan=True))
    if isinstance(wanted, list):
        return type(got) is list and len(got) == len(wanted) and all(map(equal, got, wanted))
    if type(got) is not type(wanted):
        return False
    return got == wanted or got != got and wanted != wanted

