"""What tensors must hold, by NumPy: values in f64 or i64, views, and derivatives as dual numbers.

A handle of a tensor is a Held: the places of its elements in a Flat, the mirror of a storage. So a
write through a view shows in every other handle. While a tape records, a Flat has for each element
of the watched tensors the derivatives of all its elements; PyTorch, if there is one, has the same
program. Results are compared with NumPy's on the exact operands, and then taken as they are.
"""

import contextlib

import numpy

import ferry

try:
    import torch

    torch.tensor  # noqa: B018  the folder torch beside this file is no package of that name
except (ImportError, AttributeError):
    torch = None

FLOATS = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 4e-6, "f64": 1e-12}
INTEGERS = {"i32": "i4", "i64": "i8", "u8": "u1"}
DTYPES = [*FLOATS, *INTEGERS, "bool"]
NUMPY = {"f16": "f2", "f32": "f4", "f64": "f8", **INTEGERS, "bool": "?"}
LARGEST = {"f16": 65504.0, "bf16": 3.3895e38, "f32": 3.4028235e38, "f64": 1.797e308}


def wide(dtype):
    return "f8" if dtype in FLOATS else "?" if dtype == "bool" else "i8"


def rounded(array, dtype):
    """The values that a tensor of `dtype` has for these: floats to nearest even, integers wrapped."""
    array = numpy.asarray(array)
    if dtype == "bf16":
        single = numpy.ascontiguousarray(array, "f4")
        bits = single.view("u4").astype("u8")
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        found = numpy.where(numpy.isnan(single), single, bits.astype("u4").view("f4"))
        return found.astype("f8").reshape(array.shape)
    return array.astype(NUMPY[dtype]).astype(wide(dtype))


def read(tensor):
    """The values of a tensor on any device; recorded by nothing."""
    host = tensor if tensor.is_host else tensor.download().wait()
    if host.dtype == "bf16":
        with ferry.no_tape():
            host = ferry.cast(host, "f32")
    return host.numpy().astype(wide(tensor.dtype))


class Flat:
    def __init__(self, values):
        self.values, self.duals, self.torch = values, None, None


class Held:
    def __init__(self, tensor, flat=None, index=None, holder=None):
        if flat is None:
            values = read(tensor)
            flat, index = Flat(values.reshape(-1).copy()), numpy.arange(values.size).reshape(values.shape)
        self.tensor, self.flat, self.index = tensor, flat, index
        self.holder = holder or flat  # of the derivatives: a watched tensor has its own
        self.dtype = tensor.dtype
        self.device = tensor.device.name

    def __repr__(self):
        return f"Held({self.dtype} on {self.device}: {self.values.tolist()})"

    @property
    def values(self):
        return numpy.asarray(self.flat.values[self.index])

    @property
    def dual(self):
        return None if self.holder.duals is None else self.holder.duals[:, self.index]

    @property
    def torch(self):
        values = torch.from_numpy(self.values.astype("f8"))
        if self.holder.torch is None:
            return values
        found = self.holder.torch[torch.from_numpy(numpy.array(self.index))]
        return found + (values - found).detach()  # rounded as Ferry's, derivatives as PyTorch's

    @property
    def repeats(self):
        """Has it one element at two places?"""
        return numpy.unique(self.index).size < self.index.size

    def is_in(self, other):
        return self.flat is other.flat and bool(numpy.intersect1d(self.index, other.index).size)

    def spans(self, other):
        """As ops judge whether operands overlap: by their first and last elements."""
        a, b = self.index, other.index
        is_any = self.flat is other.flat and a.size and b.size
        return bool(is_any and a.min() <= b.max() and b.min() <= a.max())

    def view(self, tensor, index):
        return Held(tensor, self.flat, index, self.holder)

    def check(self):
        same(read(self.tensor), self.values)

    def check_facts(self):
        t = self.tensor
        assert type(t) is ferry.Tensor, type(t)
        assert (t.shape, t.dtype, t.device.name) == (self.index.shape, self.dtype, self.device), t
        assert (t.ndim, t.size) == (self.index.ndim, self.index.size)

    def set(self, values, dual=None, other=None):
        """A write. dual: the derivatives of the new values; other: the same in PyTorch."""
        self.flat.values[self.index] = values
        holder = self.holder
        if dual is None and holder.duals is None:
            return
        if holder.duals is None:
            holder.duals = numpy.zeros((len(dual), self.flat.values.size))
        holder.duals[:, self.index] = 0 if dual is None else dual
        if torch:
            if holder.torch is None:
                holder.torch = torch.from_numpy(self.flat.values.astype("f8"))
            if other is None:
                other = torch.from_numpy(self.values)
            place = torch.from_numpy(numpy.array(self.index)).reshape(-1)
            flat = other.broadcast_to(self.index.shape).reshape(-1)
            holder.torch = holder.torch.index_put((place,), flat)


def same(got, wanted):
    """Exactly: NaN is NaN, and zeros have signs."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    assert got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    equal = (got == wanted) | ((got != got) & (wanted != wanted))
    if got.dtype.kind == "f":
        equal &= (numpy.signbit(got) == numpy.signbit(wanted)) | (got != 0)
    assert equal.all(), (got, wanted)


def near(got, wanted, dtype, scale=0.0, factor=1.0):
    """Within the rounding of the dtype, relative to the result and to `scale`."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    if dtype not in FLOATS:
        return same(got, rounded(wanted, dtype))
    large = numpy.abs(wanted) > LARGEST[dtype] * (1 - FLOATS[dtype])
    clipped = numpy.where(large, numpy.copysign(numpy.inf, wanted), wanted)
    bound = factor * FLOATS[dtype] * (numpy.abs(clipped) + scale) + (1e-6 if dtype == "f16" else 1e-37)
    equal = (got == clipped) | ((got != got) & (wanted != wanted)) | (numpy.abs(got - wanted) <= bound)
    equal |= large & (numpy.abs(got) >= LARGEST[dtype] * (1 - FLOATS[dtype])) & (got * clipped > 0)
    assert equal.all(), (got, wanted)


# ---- numbers ----


def number_in(value, dtype):
    """What a number of Python is beside a tensor of this dtype; or the exceptions, one of which."""
    if dtype in FLOATS:
        try:
            return rounded(float(value), dtype), ()
        except OverflowError:
            return None, (OverflowError,)
    low, high = {"bool": (0, 1), "u8": (0, 255), "i32": (-(2**31), 2**31 - 1),
                 "i64": (-(2**63), 2**63 - 1)}[dtype]  # fmt: skip
    with contextlib.suppress(OverflowError, ValueError):
        if isinstance(value, int) and int(float(value)) != value:
            return None, (OverflowError,)
        if int(value) == value and low <= value <= high:
            return numpy.asarray(int(value)).astype(wide(dtype)), ()
    too_large = isinstance(value, int) and abs(value) > 2**1023
    return None, (OverflowError,) if too_large else (ferry.InvalidArgument,)


# ---- derivatives ----

numpy.seterr(all="ignore")  # of infinities and NaN, which both have
SLOPES = {
    "add": (lambda a, b, r: 1.0, lambda a, b, r: 1.0),
    "sub": (lambda a, b, r: 1.0, lambda a, b, r: -1.0),
    "mul": (lambda a, b, r: b, lambda a, b, r: a),
    "truediv": (lambda a, b, r: 1 / b, lambda a, b, r: -a / b**2),
    "pow": (lambda a, b, r: b * a ** (b - 1), lambda a, b, r: r * numpy.log(a)),
}
# name: (the function of NumPy, its slope from x and y or None, the function of PyTorch)
UNARY = {
    "neg": (numpy.negative, lambda x, y: -1.0, "neg"),
    "abs": (numpy.abs, lambda x, y: numpy.sign(x), "abs"),
    "exp": (numpy.exp, lambda x, y: y, "exp"),
    "log": (numpy.log, lambda x, y: 1 / x, "log"),
    "sqrt": (numpy.sqrt, lambda x, y: 0.5 / y, "sqrt"),
    "sin": (numpy.sin, lambda x, y: numpy.cos(x), "sin"),
    "tanh": (numpy.tanh, lambda x, y: 1 - y * y, "tanh"),
    "sigmoid": (lambda x: 1 / (1 + numpy.exp(-x)), lambda x, y: y * (1 - y), "sigmoid"),
    "relu": (lambda x: numpy.where(x != x, x, numpy.maximum(x, 0)), lambda x, y: 1.0 * (x > 0), "relu"),
    "floor": (numpy.floor, lambda x, y: 0.0, "floor"),
    "ceil": (numpy.ceil, lambda x, y: 0.0, "ceil"),
    "round": (numpy.rint, lambda x, y: 0.0, "round"),
    "isnan": (numpy.isnan, None, None),
    "logical_not": (numpy.logical_not, None, None),
}


def lifted(dual, ndim):
    """With the axis of the watched elements first, axes of length 1 behind it."""
    return dual.reshape(len(dual), *(1,) * (ndim + 1 - dual.ndim), *dual.shape[1:])


def product(slope, dual, ndim):
    return 0.0 if dual is None else slope * lifted(dual, ndim)


def is_tame(values, dual):
    return bool(numpy.isfinite(values).all() and (numpy.abs(values) < 1e3).all()
                and numpy.isfinite(dual).all() and (numpy.abs(dual) < 1e3).all())  # fmt: skip
