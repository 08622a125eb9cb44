"""Random programs of operators beside NumPy, by hypothesis; at night only (.ci/run numpy).

Every operator x every kind of number, array, list or other tensor, on views and on results of
earlier steps, on the host and on a simulated device, recorded or not. Each step compares type,
dtype, device, shape, values and gradients with NumPy's, or expects the refusal.
"""

import operator
import unittest

import numpy
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule

import ferry

TOLERANCE = {"f16": 4e-3, "f32": 2e-5, "f64": 1e-10}
NUMBERS = [int, float, *(getattr(numpy, name) for name in (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
    "float64", "longdouble"))]  # fmt: skip
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
# d result / d left, d result / d right
SLOPES = {
    "add": (lambda a, b: 1 + 0 * a * b, lambda a, b: 1 + 0 * a * b),
    "sub": (lambda a, b: 1 + 0 * a * b, lambda a, b: -1 + 0 * a * b),
    "mul": (lambda a, b: b + 0 * a, lambda a, b: a + 0 * b),
    "truediv": (lambda a, b: 1 / b + 0 * a, lambda a, b: -a / b**2),
    "pow": (lambda a, b: b * a ** (b - 1), lambda a, b: a**b * numpy.log(a)),
}
OPERATORS = [*SLOPES, *COMPARISONS]
DEVICES = [ferry.host, ferry.Device("sim:0")]


def read(tensor):
    host = tensor if tensor.is_host else tensor.download().wait()
    return host.numpy().astype("f8")


def reduced(slope, shape):
    """The sum over the axes along which an operand of `shape` was repeated."""
    slope = slope.sum(axis=tuple(range(slope.ndim - len(shape))))
    axes = tuple(i for i, length in enumerate(shape) if length == 1)
    return slope.sum(axis=axes, keepdims=True)


class Programs(RuleBasedStateMachine):
    tensors = Bundle("tensors")

    def agree(self, got, wanted, dtype):
        scale = numpy.maximum(1, numpy.abs(wanted)) * TOLERANCE[dtype]
        assert got.shape == wanted.shape, (got.shape, wanted.shape)
        fits = numpy.abs(wanted) < (3e4 if dtype == "f16" else 3e38)  # beyond: infinity
        assert (numpy.abs(got - wanted) <= scale)[fits].all(), (got, wanted)

    @rule(
        target=tensors,
        values=strategies.lists(strategies.integers(1, 32), min_size=6, max_size=6),
        dtype=strategies.sampled_from(list(TOLERANCE)),
        device=strategies.sampled_from(DEVICES),
    )
    def make(self, values, dtype, device):
        array = numpy.array(values, "f8").reshape(2, 3) / 8
        return ferry.tensor(array, dtype=dtype, device=device)

    @rule(target=tensors, t=tensors, key=strategies.sampled_from(
        [(slice(0, 1),), (slice(None, None, 2),), (slice(None), slice(1, 3)), (..., None)]))  # fmt: skip
    def view(self, t, key):
        view = t[key] if t.ndim == 2 else t
        numpy.testing.assert_array_equal(read(view), read(t)[key] if t.ndim == 2 else read(t))
        return view if view.ndim == 2 and 0 not in view.shape else t

    def check(self, name, left, right, watched):
        """The result of an operator, and the gradients of the watched operands."""
        function, tape = getattr(operator, name), ferry.Tape()
        values = [read(v) if isinstance(v, ferry.Tensor) else numpy.float64(v) for v in (left, right)]
        tensor = left if isinstance(left, ferry.Tensor) else right
        for t in watched:
            tape.watch(t)
        is_comparison = name in COMPARISONS
        with tape:
            result = function(left, right)
            if watched and not is_comparison:
                tape.backward(ferry.sum(result))
        wanted = function(*values)
        assert type(result) is ferry.Tensor and result.device == tensor.device
        assert result.dtype == ("bool" if is_comparison else tensor.dtype)
        if is_comparison:
            assert (read(result) == wanted).all()
            return None
        self.agree(read(result), wanted, tensor.dtype)
        for t in watched:
            slopes = [reduced(SLOPES[name][i](*values), t.shape)
                      for i, operand in enumerate((left, right)) if operand is t]  # fmt: skip
            self.agree(read(tape.grad(t)), sum(slopes), tensor.dtype)
        is_tame = result.ndim == 2 and (0.1 < wanted).all() and (wanted < 10).all()
        return result if is_tame else None

    @rule(
        target=tensors,
        t=tensors,
        name=strategies.sampled_from(OPERATORS),
        kind=strategies.sampled_from(NUMBERS),
        value=strategies.integers(1, 4),
        is_left=strategies.booleans(),
        is_recorded=strategies.booleans(),
    )
    def with_a_number(self, t, name, kind, value, is_left, is_recorded):
        pair = (kind(value), t) if is_left else (t, kind(value))
        result = self.check(name, *pair, [t] if is_recorded else [])
        return multiple() if result is None else result

    @rule(
        target=tensors,
        a=tensors,
        b=tensors,
        name=strategies.sampled_from(OPERATORS),
        is_recorded=strategies.booleans(),
    )
    def with_a_tensor(self, a, b, name, is_recorded):
        fits = all(m == n or 1 in (m, n) for m, n in zip(a.shape, b.shape, strict=True))
        if a.device == b.device and a.dtype == b.dtype and fits:
            watched = ([a] if a is b else [a, b]) if is_recorded else []
            result = self.check(name, a, b, watched)
            return multiple() if result is None else result
        kinds = (ferry.DeviceMismatch, ferry.DtypeMismatch, ferry.ShapeMismatch)
        try:
            getattr(operator, name)(a, b)
        except kinds:
            return multiple()
        raise AssertionError("not refused")

    @rule(
        t=tensors,
        name=strategies.sampled_from([*OPERATORS, "floordiv", "mod", "matmul", "imul", "and_"]),
        make=strategies.sampled_from([
            lambda t: read(t), lambda t: read(t).tolist(), lambda t: tuple(read(t)[0]),
            lambda t: numpy.array(2.0), lambda t: read(t).astype("f4"), lambda t: 1j,
            lambda t: numpy.complex64(1), lambda t: numpy.timedelta64(1), lambda t: read(t) > 0,
        ]),
        is_left=strategies.booleans(),
    )  # fmt: skip
    def with_another_object(self, t, name, make, is_left):
        pair = (make(t), t) if is_left else (t, make(t))
        try:
            result = getattr(operator, name)(*pair)
        except TypeError:
            return
        raise AssertionError(f"{type(result)}: {result}")


Programs.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
RandomPrograms = Programs.TestCase

if __name__ == "__main__":
    unittest.main()
