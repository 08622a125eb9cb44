"""Random programs over the whole package beside NumPy and PyTorch, by hypothesis (.ci/run numpy).

A pool of tensors of every dtype on the host and on a simulated device, views of each other, watched
by a tape or not; and a pool of other objects with handles (wrappers.py). Each step is a call with
arguments of every kind. Its result is compared with mirror.py's: value, dtype, shape, device, type,
gradient, or which exception. Anything else is a finding.

    python state_machine.py [STEPS [SEED]]    # without a seed a random one, which is printed
"""

import os
import random
import sys
import tempfile
import time
from collections import Counter
from operator import index

import hypothesis
import numpy
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import ferry
import operands
import wrappers
from mirror import (
    DTYPES, FLOATS, NUMPY, SLOPES, UNARY, Flat, Held, is_tame, lifted, near, number_in, product,
    read, rounded, same, torch, wide,
)  # fmt: skip

MOST_TENSORS, MOST_WATCHED = 10, 12
DEVICES = [ferry.host, ferry.Device("sim:0")]
STEPS, COUNTS = Counter(), Counter()
UNREADABLE = (ferry.Busy, ferry.Unsupported)  # while a tape records: docs/gradients.md
NOTHING = object()  # what a rule returns that made no call: no step
RULES = []  # (function, the values of each argument)
TENSOR, WAY, BOTH = range(32), range(2**12), (False, True)


def step(**given):
    def made(function):
        RULES.append((function, {name: list(values) for name, values in given.items()}))
        return function

    return made


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pool, self.next, self.tape, self.watched = [], 0, None, []
        self.log, self.is_done = [], True
        self.written = set()  # storages that were written while the tape records
        self.others = wrappers.Others()
        self.add(Held(ferry.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])))
        self.add(Held(ferry.tensor([[0.5, -1.5, 2.0]], device="sim:0")))

    # ---- the pool ----

    def add(self, held):
        if len(self.pool) < MOST_TENSORS:
            self.pool.append(held)
        else:
            self.pool[self.next % MOST_TENSORS] = held
        self.next += 1

    def pick(self, number):
        return self.pool[number % len(self.pool)]

    def refused(self, kinds, function, *given):
        try:
            result = function(*given)
        except kinds:
            return
        raise AssertionError(f"not refused by {kinds}: {result!r}")

    def may_be_busy(self, *held):
        return self.tape is not None and any(h.flat in self.written for h in held)

    def called(self, function, *given, held=(), written=()):
        """The result of a call that NumPy has as well; None if the tape refuses it."""
        try:
            return function(*given)
        except UNREADABLE:
            duals = [h for h in (*held, *written) if h.dual is not None]
            if self.may_be_busy(*held, *written) or self.tape and written and (duals or self.watched):
                COUNTS["refused by the tape"] += 1
                return None
            raise

    # ---- arithmetic ----

    def finish(self, held, result, wanted, dtype, scale, parts, run):
        """Compares a result. parts: (its operand, the slope, of it), or None; run: the same in PyTorch."""
        made = Held(result)
        assert type(result) is ferry.Tensor, type(result)
        assert (made.dtype, made.device) == (dtype, held.device), (made, dtype)
        near(made.values, wanted, dtype, scale)
        if self.tape is None or dtype not in FLOATS or all(h.dual is None for h, _ in parts):
            self.add(made)
            return
        if dtype == "bf16":
            return
        dual = sum(product(slope, h.dual, result.ndim) for h, slope in parts)
        dual = numpy.broadcast_to(dual, (self.count, *result.shape))
        if not is_tame(made.values, dual):
            return
        other = None
        if torch:
            other = run(*(h.torch for h, _ in parts))
            other = other + (torch.from_numpy(made.values) - other).detach()
        made.set(made.values, dual, other)
        self.add(made)

    def operate(self, name, held, function, pair, values, parts, run):
        """An operator on tensors of one dtype and device: by NumPy, or the refusal."""
        dtype = held.dtype
        is_comparison = name in operands.COMPARISONS
        wrong = ()
        if name in ("truediv", "pow") and dtype not in FLOATS:
            wrong = (ferry.DtypeMismatch,)
        elif name in ("floordiv", "mod") and (dtype in FLOATS or dtype == "bool"):
            wrong = (ferry.DtypeMismatch,)
        elif not is_comparison and dtype == "bool":
            wrong = (ferry.DtypeMismatch,)
        elif numpy.ndim(values[0]) and numpy.ndim(values[1]):
            try:
                numpy.broadcast_shapes(values[0].shape, values[1].shape)
            except ValueError:
                wrong = (ferry.ShapeMismatch,)
        if wrong:
            return self.refused(wrong + UNREADABLE if self.tape else wrong, function, *pair)
        result = self.called(function, *pair, held=[h for h, _ in parts])
        if result is None:
            return None
        a, b = values
        wanted = numpy.asarray(operands.PURE[name](a, b))
        slopes = [SLOPES[name][side](a, b, wanted) if self.tape and name in SLOPES else None
                  for _, side in parts]  # fmt: skip
        scale = numpy.abs(a) + numpy.abs(b) if name in ("add", "sub") and dtype in FLOATS else 0.0
        if name == "pow":
            scale = 4 * numpy.abs(wanted)
        scale = numpy.where(numpy.isfinite(scale), scale, 0.0)
        parts = [(h, slope) for (h, _), slope in zip(parts, slopes, strict=True)]
        return self.finish(held, result, wanted, "bool" if is_comparison else dtype, scale, parts, run)

    @step(i=TENSOR, j=TENSOR, name=operands.OPERATORS)
    def with_a_tensor(self, i, j, name):
        a, b = self.pick(i), self.pick(j)
        function, pair = operands.OPERATORS[name], (a.tensor, b.tensor)
        name = operands.base(name)
        wrong = []
        if a.device != b.device:
            wrong.append(ferry.DeviceMismatch)
        if a.dtype != b.dtype:
            wrong.append(ferry.DtypeMismatch)
        if name in operands.NONE:
            wrong = [TypeError]
        if wrong:
            wrong += [ferry.ShapeMismatch, ferry.DtypeMismatch, *UNREADABLE] if TypeError not in wrong else []
            self.refused(tuple(wrong), function, *pair)
        elif name == "matmul":
            return self.matmul(a, b, function)
        else:
            self.operate(name, a, function, pair, (a.values, b.values), [(a, 0), (b, 1)],
                         operands.PURE[name])  # fmt: skip

    def matmul(self, a, b, function):
        fits = a.dtype in FLOATS and a.index.ndim == b.index.ndim == 2
        if not fits or a.index.shape[1] != b.index.shape[0]:
            if a.index.ndim > 2 or b.index.ndim > 2:
                return NOTHING  # batches: test_op_gradients
            kinds = (ferry.DtypeMismatch, ferry.ShapeMismatch, *UNREADABLE)
            return self.refused(kinds, function, a.tensor, b.tensor)
        result = self.called(function, a.tensor, b.tensor, held=[a, b])
        if result is None:
            return
        x, y = a.values, b.values
        wanted, scale = x @ y, numpy.abs(x) @ numpy.abs(y)
        if not numpy.isfinite(scale).all():
            return
        made = Held(result)
        assert (made.dtype, made.device) == (a.dtype, a.device)
        near(made.values, wanted, a.dtype, scale)
        if self.tape and (a.dual is not None or b.dual is not None):
            if a.dtype == "bf16":
                return
            dual = (0.0 if a.dual is None else a.dual @ y) + (0.0 if b.dual is None else x @ b.dual)
            if not is_tame(made.values, dual):
                return
            made.set(made.values, dual, a.torch @ b.torch if torch else None)
        self.add(made)

    @step(i=TENSOR, name=operands.OPERATORS, kind=operands.NUMBERS, value=operands.VALUES,
          is_left=BOTH)  # fmt: skip
    def with_a_number(self, i, name, kind, value, is_left):
        held = self.pick(i)
        try:
            number = kind(value)
        except (OverflowError, ValueError):
            return NOTHING
        function = operands.OPERATORS[name]
        pair = (number, held.tensor) if is_left else (held.tensor, number)
        name = operands.base(name)
        if name in operands.NONE or name == "matmul":
            return self.refused(TypeError, function, *pair)
        plain = operands.plain(number)
        same_as, wrong = number_in(plain, held.dtype)
        if wrong:
            if held.dtype == "bool" or name in ("truediv", "pow", "floordiv", "mod"):
                wrong += (ferry.DtypeMismatch,)
            if name in ("floordiv", "mod") and held.dtype in FLOATS:
                wrong += (ferry.DtypeMismatch,)
            return self.refused(wrong, function, *pair)
        if numpy.isinf(same_as) and abs(plain) < numpy.inf:
            return NOTHING  # ops compute with the number itself: 0 times it is 0
        values = (same_as, held.values) if is_left else (held.values, same_as)
        pure, fixed = operands.PURE[name], float(same_as)
        run = (lambda x: pure(fixed, x)) if is_left else lambda x: pure(x, fixed)
        self.operate(name, held, function, pair, values, [(held, 1 if is_left else 0)], run)

    @step(i=TENSOR, name=operands.OPERATORS, make=operands.OTHERS, is_left=BOTH)
    def with_another_object(self, i, name, make, is_left):
        held = self.pick(i)
        value, is_unknown = make(held)
        pair = (value, held.tensor) if is_left else (held.tensor, value)
        function = operands.OPERATORS[name]
        if is_left and operands.is_its_own(value, name):
            return NOTHING
        if is_unknown and name in ("eq", "ne"):
            assert function(*pair) is (name == "ne"), (name, value)
        else:
            self.refused(TypeError, function, *pair)

    @step(i=TENSOR, name=UNARY, is_operator=BOTH)
    def unary(self, i, name, is_operator):
        held = self.pick(i)
        pure, slope, theirs = UNARY[name]
        function = getattr(ferry, name)
        if is_operator and name in ("neg", "abs"):
            function = operands.UNARY_OPERATORS[name]
        is_wrong = held.dtype == "bool" if name in ("neg", "abs") else held.dtype not in FLOATS
        if is_wrong and name != "logical_not":
            return self.refused((ferry.DtypeMismatch, *UNREADABLE), function, held.tensor)
        result = self.called(function, held.tensor, held=[held])
        if result is None:
            return None
        x = held.values
        wanted = pure(x)
        d = slope(x, wanted) if self.tape and slope else None
        dtype = "bool" if slope is None else held.dtype
        if name == "logical_not":
            wanted = x == 0
        scale = numpy.where(numpy.isfinite(wanted), 1e-2 * (name in ("sin", "sigmoid")), 0.0)
        if name in ("sin", "exp") and (numpy.abs(x) > 80).any():
            return None  # a rounding of x is more than one of the result
        return self.finish(held, result, wanted, dtype, scale, [(held, d)],
                           lambda t: getattr(torch, theirs)(t))  # fmt: skip

    @step(i=TENSOR, name=["sum", "mean", "max", "min", "prod", "any", "all"], axes=operands.AXES,
          keepdims=BOTH)  # fmt: skip
    def reduction(self, i, name, axes, keepdims):
        held = self.pick(i)
        function = getattr(ferry, name)
        ndim, x = held.index.ndim, held.values
        try:
            chosen = range(ndim) if axes is None else operands.sequence(axes)
            wanted_axes = tuple(index(a) for a in chosen)
            numpy.sum(numpy.zeros((1,) * ndim), axis=wanted_axes)
            is_wrong = axes is not None and not wanted_axes
        except TypeError:
            return self.refused(TypeError, function, held.tensor, axes, keepdims)
        except (ValueError, OverflowError):
            is_wrong = True
        if is_wrong:
            if operands.sequence(axes) == ():
                return NOTHING  # C has no way to say: no axes
            return self.refused((ValueError, OverflowError), function, held.tensor, axes, keepdims)
        numbers = held.dtype != "bool"
        is_fit = {"mean": held.dtype in FLOATS, "max": numbers, "min": numbers}.get(name, True)
        lengths = [held.index.shape[a] for a in wanted_axes]
        wrong = () if is_fit else (ferry.DtypeMismatch,)
        if name in ("max", "min") and 0 in lengths:
            wrong += (ferry.ShapeMismatch,)
        if wrong:
            return self.refused(wrong + UNREADABLE, function, held.tensor, axes, keepdims)
        result = self.called(function, held.tensor, axes, keepdims, held=[held])
        if result is None:
            return None
        how = {"axis": wanted_axes, "keepdims": keepdims}
        is_float = held.dtype in FLOATS
        dtype = held.dtype if is_float or name in ("max", "min") else "i64"
        if name in ("any", "all"):
            dtype = "bool"
        source = x if is_float or name in ("any", "all") else x.astype("i8")
        if name == "mean" and 0 in lengths:
            wanted = numpy.full(numpy.sum(source, **how).shape, numpy.nan)
        else:
            wanted = numpy.asarray(getattr(numpy, name)(source, **how))
        scale = numpy.sum(numpy.abs(source), **how) if is_float and name in ("sum", "mean") else 0.0
        if is_float and name in ("sum", "mean", "prod") and not numpy.isfinite(wanted).all():
            return None  # the order of partial sums decides about infinities
        if is_float and name in ("sum", "mean", "prod") and (numpy.abs(x) > 6e3).any():
            return None
        made = Held(result)
        assert type(result) is ferry.Tensor and (made.dtype, made.device) == (dtype, held.device), made
        near(made.values, wanted, dtype, scale, factor=2)
        if self.tape and held.dual is not None and is_float:
            if name not in ("sum", "mean") or dtype == "bf16":
                return None
            over = tuple(a % max(ndim, 1) + 1 for a in wanted_axes) if ndim else ()
            dual = getattr(numpy, name)(held.dual, axis=over, keepdims=keepdims) if over else held.dual
            if not is_tame(made.values, dual) or 0 in lengths:
                return None
            other = None
            if torch:
                other = getattr(torch, name)(held.torch, wanted_axes, keepdim=keepdims) if ndim else held.torch
            made.set(made.values, dual, other)
        self.add(made)
        return None

    @step(i=TENSOR, dtype=DTYPES, way=range(4))
    def convert(self, i, dtype, way):
        held = self.pick(i)
        if self.tape and (held.dual is not None or self.may_be_busy(held)):
            return NOTHING
        given = [dtype, NUMPY.get(dtype, dtype), numpy.dtype(NUMPY.get(dtype, "f4")), dtype][way]
        if way in (1, 2):
            if dtype == "bf16":
                return NOTHING
            given = numpy.dtype(NUMPY[dtype]) if way == 2 else numpy.dtype(NUMPY[dtype]).type
        if way == 3 and held.device != "host":
            return self.refused(ferry.DeviceMismatch, ferry.tensor, held.tensor, dtype)
        result = ferry.tensor(held.tensor, given) if way == 3 else ferry.cast(held.tensor, given)
        made = Held(result)
        assert (made.dtype, made.device) == (dtype, held.device), made
        same(made.values, operands.cast(held.values, dtype))
        self.add(made)

    # ---- tensors ----

    @step(dtype=DTYPES, device=DEVICES, shape=operands.SHAPES, way=WAY, how=operands.MAKERS)
    def make(self, dtype, device, shape, way, how):
        size = int(numpy.prod(shape))
        values = rounded(numpy.resize(numpy.roll(operands.PATTERNS[way % 4][dtype], way // 4), size), dtype)
        values = values.reshape(shape)
        tensor, wanted = how(values, dtype, device)
        if tensor is None:
            return NOTHING
        assert type(tensor) is ferry.Tensor
        held = Held(tensor)
        assert (held.dtype, held.device) == (wanted[1], device.name), held
        same(held.values, wanted[0])
        self.add(held)

    @step(make=operands.LISTS, is_deep=BOTH)
    def make_of_a_list(self, make, is_deep):
        values, dtype, wanted = make
        given = [values, tuple(values)] if is_deep else values
        if isinstance(wanted, type):
            return self.refused(wanted, ferry.tensor, given, dtype)
        made = Held(ferry.tensor(given, dtype))
        assert made.dtype == wanted, (made, wanted)
        exact = numpy.array([operands.plain(v) for v in values], wide(wanted))
        same(made.values, rounded(numpy.array([exact, exact]) if is_deep else exact, wanted))
        self.add(made)

    @step(i=TENSOR, key=operands.KEYS)
    def slice(self, i, key):
        held = self.pick(i)
        key, wrong = key
        if wrong:
            return self.refused(wrong + (IndexError,), held.tensor.__getitem__, key)
        try:
            wanted = held.index[key]
        except IndexError:
            return self.refused(IndexError, held.tensor.__getitem__, key)
        if wanted.ndim > 5:
            return NOTHING
        view = self.called(held.tensor.__getitem__, key, held=[held])
        return self.viewed(held, view, wanted)

    def viewed(self, held, view, wanted):
        if view is None:
            return
        made = held.view(view, wanted)
        made.check_facts()
        made.check()
        self.add(made)

    @step(i=TENSOR, call=operands.VIEWS)
    def view(self, i, call):
        held = self.pick(i)
        ours, pure = call
        try:
            wanted = pure(held.index)
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            kinds = (TypeError,) if isinstance(error, TypeError) else (ValueError, OverflowError)
            return self.refused(kinds + UNREADABLE, ours, held.tensor)
        if any(w.ndim > 5 for w in wanted):
            return NOTHING
        try:
            views = self.called(ours, held.tensor, held=[held])
        except ferry.ShapeMismatch:
            if held.index.flags.c_contiguous or "contiguous" not in str(sys.exc_info()[1]):
                raise
            return None
        views = views if isinstance(views, (list, type(None))) else [views]
        for view, one in zip(views or [], wanted, strict=views is not None):
            self.viewed(held, view, one)
        return None

    @step(i=TENSOR, j=TENSOR, how=["fill", "copy", "axpy", "call", "array"], value=operands.VALUES)
    def write(self, i, j, how, value):
        held, source = self.pick(i), self.pick(j)
        if how == "array":
            return self.write_by_numpy(held)
        if how in ("fill", "call"):
            same_as, wrong = number_in(value, held.dtype)
            if isinstance(value, int) and number_in(value, "i64")[1] != (ferry.InvalidArgument,):
                wrong = wrong or number_in(value, "i64")[1]
            given = (held.tensor, value)
            parts = []
            values = None if wrong else numpy.broadcast_to(same_as, held.index.shape)
            function = ferry.fill
            if how == "call":
                if held.dtype not in FLOATS or isinstance(value, int):
                    return NOTHING  # it has an attribute for integers: test_numbers
                function = operands.fill_by_name
            dual = other = None
        else:
            wrong = ()
            if held.device != source.device:
                wrong += (ferry.DeviceMismatch,)
            if held.dtype != source.dtype:
                wrong += (ferry.DtypeMismatch,)
            if how == "axpy" and held.dtype not in FLOATS:
                wrong += (ferry.DtypeMismatch,)
            try:
                if numpy.broadcast_shapes(held.index.shape, source.index.shape) != held.index.shape:
                    raise ValueError
            except ValueError:
                wrong += (ferry.ShapeMismatch,)
            if how == "axpy" and isinstance(value, int) and number_in(value, "i64")[1] == (OverflowError,):
                wrong += (OverflowError,)
            if held.spans(source):
                is_same = held.index.shape == source.index.shape and (held.index == source.index).all()
                if not is_same:
                    wrong += (ferry.InvalidArgument,)
            function = ferry.copy
            given = (held.tensor, source.tensor)
            parts, dual, other, values = [source], None, None, None
            if how == "axpy":
                alpha = float(value) if not wrong else 0.0
                if not wrong and not (0.1 < abs(alpha) < 10):
                    return NOTHING
                function, given, parts = ferry.axpy, (held.tensor, value, source.tensor), [held, source]
        if held.repeats:
            wrong += (ferry.InvalidArgument,)
        if wrong:
            return self.refused(wrong + UNREADABLE if self.tape else wrong, function, *given)
        if held in self.watched:
            return self.refused(UNREADABLE, function, *given)
        if how in ("copy", "axpy"):
            values = numpy.broadcast_to(source.values, held.index.shape)
            if how == "axpy":
                values = held.values + alpha * values
        is_recorded = self.tape is not None
        if is_recorded and any(p.dual is not None for p in (held, *parts)):
            dual = numpy.zeros((self.count, *held.index.shape))
            for p in parts:
                factor = alpha if how == "axpy" and p is source else 1.0
                if p.dual is not None:
                    dual = dual + factor * lifted(p.dual, held.index.ndim)
                if how == "axpy" and held is source:
                    dual = held.dual * (1 + alpha) if held.dual is not None else dual
            if not is_tame(values, dual) or held.dtype == "bf16":
                return None
            if torch:
                other = torch.from_numpy(numpy.array(values, "f8"))
                if how != "fill" and how != "call":
                    other = source.torch if how == "copy" else held.torch + alpha * source.torch
        done = self.called(lambda: (function(*given), 1)[1], held=parts, written=[held])
        if done is None:
            return None
        got = read(held.tensor)
        if how == "axpy":
            near(got, values, held.dtype, numpy.abs(held.values) + abs(alpha * source.values))
        else:
            same(got, numpy.array(values, wide(held.dtype)))
        if is_recorded:
            self.written.add(held.flat)
        held.set(got, dual, other)
        return None

    def write_by_numpy(self, held):
        if held.device != "host" or held.dtype == "bf16":
            return self.refused((ferry.DeviceMismatch, ferry.DtypeMismatch),
                                held.tensor.numpy, True)  # fmt: skip
        if self.tape:
            return NOTHING  # Ferry does not see it
        if held.repeats:
            return self.refused(BufferError, held.tensor.numpy, True)
        try:
            array = held.tensor.numpy(writable=True)
        except BufferError:
            if not held.tensor.info()["is_read_only"]:
                raise
            return None
        if array.size:
            array[...] = array.reshape(-1)[0]
            held.set(numpy.broadcast_to(held.values.reshape(-1)[0], held.index.shape).copy())
        return held.check()

    @step(i=TENSOR, j=TENSOR, how=["upload", "download", "into", "from", "send"])
    def move(self, i, j, how):
        held, other = self.pick(i), self.pick(j)
        t, is_host = held.tensor, held.device == "host"
        if self.tape and (held.dual is not None or other.dual is not None
                          or self.may_be_busy(held, other)):  # fmt: skip
            return NOTHING
        if how == "upload":
            if not is_host:
                return self.refused(ferry.DeviceMismatch, t.upload, "sim:0")
            made = Held(t.upload("sim:0"))
            assert made.device == "sim:0"
        elif how == "download":
            made = Held(t.download().wait())
            assert made.device == "host"
        elif how == "send":
            if is_host:
                return self.refused((ferry.DeviceMismatch, ferry.Unsupported, ferry.InvalidArgument),
                                    t.send, "sim:0")  # fmt: skip
            made = Held(t.send("sim:1"))
            same(made.values, held.values)
            return None
        else:
            pair = (t, other.tensor)
            function = pair[0].download_into if how == "into" else pair[0].upload_from
            target, source = (other, held) if how == "into" else (held, other)
            wrong = ()
            if how == "into" and target.device != "host" or how == "from" and source.device != "host":
                wrong += (ferry.DeviceMismatch, ferry.InvalidArgument)
            if target.dtype != source.dtype:
                wrong += (ferry.DtypeMismatch,)
            if target.index.shape != source.index.shape:
                wrong += (ferry.ShapeMismatch,)
            if target.repeats:
                wrong += (ferry.InvalidArgument,)
            is_near = target.device == source.device  # from host to host: a copy, or refused
            if target.is_in(source):
                wrong += (ferry.InvalidArgument,)
            touched = self.tape and any(target.flat is w.flat for w in self.watched)
            if wrong or touched:
                if target.is_in(source) and len(wrong) == 1 or touched and not wrong:
                    return None
                return self.refused(wrong + UNREADABLE, function, other.tensor)
            try:
                function(other.tensor)
            except (ferry.DeviceMismatch, ferry.InvalidArgument):
                if not is_near:
                    raise
                return None
            if self.tape:
                self.written.add(target.flat)
            target.set(source.values)
            return target.check()
        made_of = held.values
        assert made.dtype == held.dtype
        same(made.values, made_of)
        self.add(made)
        return None

    @step(i=TENSOR, way=operands.READERS)
    def look(self, i, way):
        held = self.pick(i)
        read_it, wanted = way
        if self.tape and wanted is operands.shared:
            return NOTHING  # an export may be written to, so it counts as a write
        answer = wanted(held)
        if isinstance(answer, tuple) and answer and isinstance(answer[0], type):
            return self.refused(answer, read_it, held.tensor)
        if self.may_be_busy(held):
            return None
        got = read_it(held.tensor)
        assert operands.equal(got, answer), (got, answer)
        return None

    # ---- gradients ----

    @step(i=TENSOR, j=TENSOR)
    def record(self, i, j):
        return NOTHING if self.tape else self.begin(self.pick(i), self.pick(j))

    def begin(self, *chosen):
        wanted, count = [], 0
        for held in chosen:
            is_fit = held.dtype in FLOATS and held.dtype != "bf16" and not held.repeats
            size = held.index.size
            if is_fit and held not in wanted and 0 < size <= MOST_WATCHED - count:
                if not any(held.is_in(w) for w in wanted) and is_tame(held.values, numpy.zeros(1)):
                    wanted.append(held)
                    count += size
        self.tape, self.watched, self.count, self.written = ferry.Tape(), wanted, count, set()
        first, self.leaves = 0, []
        for held in wanted:
            self.tape.watch(held.tensor)
            size = held.flat.values.size
            held.holder = Flat(held.flat.values)
            held.holder.duals = numpy.zeros((count, size))
            held.holder.duals[first + numpy.arange(held.index.size), held.index.reshape(-1)] = 1
            first += held.index.size
            if torch:
                held.holder.torch = torch.tensor(held.flat.values.astype("f8"), requires_grad=True)
                self.leaves.append(held.holder.torch)
        self.tape.__enter__()

    @step(i=TENSOR, has_seed=BOTH)
    def backward(self, i, has_seed):
        if not self.tape:
            return self.begin(self.pick(i), self.pick(i + 1))
        tried = [self.pick(i + k) for k in range(len(self.pool))]
        computed = [h for h in tried if h.dual is not None and h.holder is h.flat
                    and h.flat not in self.written and h.index.size]  # fmt: skip
        try:
            if not computed:
                plain = next((h for h in tried if h.dual is None and h.index.size == 1), None)
                if plain:
                    self.refused((ferry.InvalidArgument, ferry.DtypeMismatch, *UNREADABLE),
                                 self.tape.backward, plain.tensor)  # fmt: skip
            else:
                self.go_back(computed[0], has_seed)
        finally:
            self.end()

    def go_back(self, loss, has_seed):
        weights = numpy.linspace(0.5, 1.5, loss.index.size).reshape(loss.index.shape)
        weights = rounded(weights if has_seed else numpy.ones(loss.index.shape), loss.dtype)
        try:
            if has_seed:
                seed = Held(ferry.tensor(weights, loss.dtype, loss.device))
                self.tape.backward(loss.tensor, seed.tensor)
            else:
                self.tape.backward(ferry.sum(loss.tensor))
        except ferry.InvalidArgument:  # a constant was written over all that depended on them
            if loss.dual.any():
                raise
            return
        except ferry.Busy:
            if not self.written:
                raise
            COUNTS["refused by the tape"] += 1
            return
        wanted = (loss.dual * weights).reshape(self.count, -1).sum(axis=1)
        scale = numpy.abs(loss.dual * weights).sum()
        if torch:
            total = (loss.torch * torch.from_numpy(weights)).sum()
            grads = total.requires_grad and torch.autograd.grad(total, self.leaves, allow_unused=True)
        first = 0
        for k, held in enumerate(self.watched):
            size = held.index.size
            mine = wanted[first : first + size].reshape(held.index.shape)
            first += size
            if torch:
                theirs = numpy.zeros(held.index.shape) if not grads or grads[k] is None else (
                    grads[k].numpy()[held.index])  # fmt: skip
                numpy.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-7 * (1 + scale))
            grad = self.tape.grad(held.tensor)
            if grad is None:
                assert not mine.any(), (held, mine)
                continue
            assert (grad.dtype, grad.device.name) == (held.dtype, held.device)
            near(read(grad), mine, held.dtype, 1 + scale, factor=20)
            COUNTS["gradients"] += 1

    def end(self):
        tape, self.tape = self.tape, None
        tape.__exit__()
        self.written = set()
        for held in [*self.pool, *self.watched]:
            held.holder = held.flat
            held.flat.duals = held.flat.torch = None
        self.watched = []

    # ---- everything else ----

    @step(name=wrappers.KINDS, way=WAY)
    def make_another(self, name, way):
        return NOTHING if self.tape else self.others.make(name, way)

    @step(i=TENSOR, way=WAY)
    def use(self, i, way):
        return NOTHING if self.tape else self.others.use(i, way)

    @step(i=TENSOR, how=wrappers.COPIES, of_a_tensor=BOTH)
    def copy(self, i, how, of_a_tensor):
        return self.others.copy(self.pick(i).tensor if of_a_tensor else None, i, how)

    @step(call=wrappers.PATH_CALLS, kind=wrappers.PATHS)
    def path(self, call, kind):
        return NOTHING if self.tape else wrappers.call_with_path(call, kind)

    @step(call=wrappers.SIZES, kind=wrappers.SIZE_KINDS)
    def size(self, call, kind):
        return NOTHING if self.tape else wrappers.call_with_size(call, kind)

    @rule(code=st.integers(0, 2**24 - 1))
    def any_rule(self, code):
        """Any rule with any arguments, as the code decides: one draw costs less than the step."""
        choose = random.Random(code)
        function, given = choose.choice(RULES)
        values = {name: choose.choice(known) for name, known in given.items()}
        self.log.append((function.__name__, values))
        self.is_done = False
        made = function(self, **values)
        self.is_done = True
        (COUNTS if made is NOTHING else STEPS)[function.__name__] += 1

    def teardown(self):
        if self.tape:
            self.end()
        try:
            for held in self.pool:
                held.check_facts()
                held.check()
        finally:
            if sys.exc_info()[1] or not self.is_done:
                note("".join(f"\n{name}: {values}" for name, values in self.log))


def main(steps=1000, seed=None):
    seed, start = random.randrange(2**32) if seed is None else int(seed), time.monotonic()
    print(f"seed {seed}, hypothesis {hypothesis.__version__}, torch {getattr(torch, '__version__', 'none')}")
    chosen = settings(
        max_examples=max(1, min(200, int(steps) // 100)), stateful_step_count=100, deadline=None,
        database=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    wrappers.check_all()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            while STEPS.total() < int(steps):
                hypothesis.seed(seed)(Machine)
                run_state_machine_as_test(Machine, settings=chosen)
                seed += 1
        finally:
            os.chdir("/")
            rate = STEPS.total() / (time.monotonic() - start)
            print(f"{STEPS.total()} steps, {rate:.0f} a second: {dict(STEPS)} {dict(COUNTS)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
