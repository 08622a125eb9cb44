"""Calls that are recorded: tapes go back through them, graphs replay them, plans predict them."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ferry import _c
from ferry._callback import Callback, calling, hand_over, views
from ferry._device import Device, as_device, borrowed
from ferry._errors import Error
from ferry._scope import begin, scope
from ferry._stream import Ticket
from ferry._tensor import Tensor, wrap_out
from ferry._types import Handle, collecting, handles, plain, query, text


class Tape(Handle):
    """Records calls that depend on watched tensors, and computes gradients by going back.

        tape = ferry.Tape()
        tape.watch(w)
        with tape:
            loss = ferry.mse_loss(x @ w, y)
            tape.backward(loss)
        w_grad = tape.grad(w)

    backward() belongs inside the block: its end ends the recording. Light requests only.
    """

    def __init__(self) -> None:
        handle = _c.out(_c.fy_tape_create)
        self._as_parameter_ = handle
        self._destroy = weakref.finalize(self, _c.fy_tape_destroy, handle)
        self._scopes: List[scope] = []

    def watch(self, tensor: Tensor, grad: Optional[Tensor] = None) -> None:
        """Requests d loss / d tensor, into `grad` if it is given."""
        _c.fy_tape_watch(self, tensor, grad)

    def __enter__(self) -> "Tape":
        self._scopes.append(begin("tape", _c.fy_tape_begin, self))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._scopes.pop().__exit__()

    def backward(
        self, loss: Tensor, seed: Optional[Tensor] = None, accumulate: bool = False
    ) -> None:
        """Ends the recording and runs it backwards. seed: d result / d loss; needed for a loss of
        several elements. accumulate: adds to the gradients of an earlier backward.
        """
        options = _c.defaults(_c.fy_backward_options_t, accumulate=int(accumulate))
        options.seed = seed._as_parameter_ if seed is not None else None
        calling(_c.fy_tape_backward, self, loss, ctypes.byref(options))

    def grad(self, tensor: Tensor) -> Optional[Tensor]:
        """The gradient of a watched tensor; None if the loss did not depend on it."""
        result = ctypes.c_void_p()
        _c.fy_tape_grad(self, tensor, ctypes.byref(result))
        from ferry._core import wrap

        return wrap(result.value) if result.value else None

    def info(self) -> Dict[str, Any]:
        """calls, saved and watched tensors, is_recording."""
        return plain(query(_c.fy_tape_query, self, _c.fy_tape_info_t))


class no_tape(Handle):
    """`with ferry.no_tape():` records nothing: for validation and metrics."""

    def __init__(self) -> None:
        self._scopes: List[scope] = []

    def __enter__(self) -> "no_tape":
        self._scopes.append(begin("no_tape", _c.fy_tape_begin, None))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._scopes.pop().__exit__()


def gradcheck(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], **options: Any
) -> Dict[str, Any]:
    """Compares the tape's gradients of function(*inputs) with central differences; f64 inputs.

    Options: step, atol, rtol, seed. For tests: downloads twice for each element. Fails: BadValue
    (they differ), or as the function.
    """

    def called(user: Any, count: int, given: Any, out: Any) -> Any:
        return hand_over([function(*views(count, given))], out)

    callback = Callback(_c.fy_gradcheck_fn, called, "function")
    result = _c.defaults(_c.fy_gradcheck_result_t)
    chosen = _c.defaults(_c.fy_gradcheck_options_t, **options)
    calling(
        _c.fy_gradcheck, callback.pointer, None, len(inputs), handles(inputs),
        ctypes.byref(chosen), ctypes.byref(result),
    )  # fmt: skip
    return plain(result)


_kept: Dict[int, Tuple[Any, Any]] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop(user: Any) -> None:
    _kept.pop(user, None)


def recompute(
    function: Callable[..., Tensor], *inputs: Tensor, states: Sequence[Tensor] = ()
) -> Tensor:
    """function(*inputs), whose inner results the tape does not keep: backward calls it again.

    It must do the same each time. states: what it updates, random generators for instance.
    """

    def called(user: Any, count: int, given: Any, out: Any) -> Any:
        return hand_over([function(*views(count, given))], out)

    callback = Callback(_c.fy_recompute_fn, called, "recompute")
    states = tuple(states)
    options = _c.defaults(_c.fy_recompute_options_t, nstates=len(states))
    listed = handles(states)
    options.states = ctypes.cast(listed, type(options.states))
    options.destroy = ctypes.cast(_drop, type(options.destroy))
    _kept[id(callback)] = (callback, states)
    return calling(
        wrap_out, _c.fy_tape_recompute, callback.pointer, id(callback), len(inputs),
        handles(inputs), ctypes.byref(options),
    )  # fmt: skip


class Graph(Handle):
    """A step that is recorded once and replayed as one request.

        with ferry.Graph(device) as step:
            ferry.axpy(w, -0.1, gradient(w))
        step.replay()

    Inside the block requests on `device` are recorded and not run. An exception discards the
    recording.
    """

    def __init__(self, device: Union[Device, str]) -> None:
        self.device = as_device(device)
        self._as_parameter_: Optional[int] = None
        self._scope: Optional[scope] = None

    def __enter__(self) -> "Graph":
        if self._as_parameter_ is not None or self._scope is not None:
            raise RuntimeError("a Graph records once: make another one")
        self._scope = begin("graph", _c.fy_graph_begin, self.device)
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        open_scope, self._scope = self._scope, None
        assert open_scope is not None
        try:
            # A scope that owns nothing does not end a recording, so an exception ends it here.
            handle = _c.out(_c.fy_graph_end)
            if kind is not None:
                _c.fy_graph_destroy(handle)
                return
            self._as_parameter_ = handle
            self._destroy = weakref.finalize(self, _c.fy_graph_destroy, handle)
        except Error:
            if kind is None:
                raise
        finally:
            open_scope.__exit__()

    def replay(self) -> Ticket:
        """Runs the recorded calls on the current bytes of their tensors; one request."""
        ticket = _c.fy_ticket_t()
        _c.fy_graph_replay(self, ctypes.byref(ticket))
        return Ticket._of(ticket)

    def info(self) -> Dict[str, Any]:
        """requests, uploads, pool_nbytes, replays, chains, fused_calls, ..."""
        facts = plain(query(_c.fy_graph_query, self, _c.fy_graph_info_t))
        return {**facts, "device": self.device}

    def explain(self) -> List[Tuple[str, str]]:
        """(key, text) of each chain and of each call outside of chains, in order."""
        found: List[Tuple[str, str]] = []

        def say(user: Any, key: bytes, value: bytes) -> None:
            found.append((key.decode(), value.decode(errors="replace")))

        pointer, check = collecting(_c.fy_fact_fn, say)
        _c.fy_graph_explain(self, pointer, None)
        check()
        return found


Step = Callable[[Device, int], Any]


def _step_callback(step: Step) -> Callback:
    def called(handle: int, batch: int, user: Any) -> None:
        with borrowed(handle) as device:
            step(device, batch)

    return Callback(_c.fy_step_fn, called, "python")


def _plan(plan: Any) -> Dict[str, Any]:
    facts = plain(plan)
    names = [_c.fy_category_name(i).decode() for i in range(_c.FY_CATEGORY_COUNT)]
    facts["peak_by_category"] = dict(zip(names, facts["peak_by_category"], strict=False))
    facts["fits"] = bool(facts["fits"])
    facts["verdict"] = facts["verdict"]["text"]
    return facts


def plan(spec: str, step: Step, batch: int) -> Dict[str, Any]:
    """Predicts memory and model time of step(device, batch) on the device of `spec`, without it.

    spec: "sim?profile=h200&limit=80GiB". `step` makes what it needs on the given device; a scope
    named "step" separates a step from its preparation. Downloaded values are zeros. The result has
    fits, peak_reserved, peak_by_category, step_model_ns, ...
    """
    callback, result = _step_callback(step), _c.defaults(_c.fy_plan_t)
    calling(
        _c.fy_plan_step, text(spec), callback.pointer, None, batch, None, ctypes.byref(result)
    )
    return _plan(result)


def fit(spec: str, step: Step, max_batch: int) -> Tuple[int, Dict[str, Any]]:
    """The largest batch up to max_batch that fits, and its plan. Fails: OutOfMemory."""
    callback, result = _step_callback(step), _c.defaults(_c.fy_plan_t)
    batch = ctypes.c_int64()
    calling(
        _c.fy_plan_fit, text(spec), callback.pointer, None, max_batch, ctypes.byref(batch),
        ctypes.byref(result),
    )  # fmt: skip
    return batch.value, _plan(result)
