"""Calls that are recorded: tapes go back through them, graphs replay them, plans predict them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ferry import _c
from ferry._device import Device, as_device, borrowed
from ferry._errors import Error
from ferry._scope import Block, begin, named, scope
from ferry._stream import Ticket
from ferry._tensor import Tensor
from ferry._types import Handle, plain


class Tape(Block):
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
        self._as_parameter_ = _c.fy_tape_create()

    def watch(self, tensor: Tensor, grad: Optional[Tensor] = None) -> None:
        """Requests d loss / d tensor, into `grad` if it is given."""
        _c.fy_tape_watch(self, tensor, grad)

    def _begin(self) -> Tuple[Any, ...]:
        return "tape", _c.fy_tape_begin, self

    def backward(
        self, loss: Tensor, seed: Optional[Tensor] = None, accumulate: bool = False
    ) -> None:
        """Ends the recording and runs it backwards. seed: d result / d loss; needed for a loss of
        several elements. accumulate: adds to the gradients of an earlier backward.
        """
        options = _c.fy_backward_options_t(accumulate=bool(accumulate), seed=seed)
        _c.fy_tape_backward(self, loss, options)

    def grad(self, tensor: Tensor) -> Optional[Tensor]:
        """The gradient of a watched tensor; None if the loss did not depend on it."""
        return _c.fy_tape_grad(self, tensor)

    def info(self) -> Dict[str, Any]:
        """calls, saved and watched tensors, is_recording."""
        return plain(_c.fy_tape_query(self))


class no_tape(Block):
    """`with ferry.no_tape():` records nothing: for validation and metrics."""

    def _begin(self) -> Tuple[Any, ...]:
        return "no_tape", _c.fy_tape_begin, None


def gradcheck(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], **options: Any
) -> Dict[str, Any]:
    """Compares the tape's gradients of function(*inputs) with central differences; f64 inputs.

    Options: step, atol, rtol, seed. For tests: downloads twice for each element. Fails: BadValue
    (they differ), or as the function.
    """
    called = named("function", lambda given: function(*given))
    return plain(_c.fy_gradcheck(called, inputs, _c.fy_gradcheck_options_t(**options)))


def recompute(
    function: Callable[..., Tensor], *inputs: Tensor, states: Sequence[Tensor] = ()
) -> Tensor:
    """function(*inputs), whose inner results the tape does not keep: backward calls it again.

    It must do the same each time. states: what it updates, random generators for instance, and
    what ops in place such as axpy write, also if the function made it. backward raises Busy if
    what it reads was written meanwhile.
    """
    called = named("recompute", lambda given: function(*given))
    return _c.fy_tape_recompute(called, inputs, _c.fy_recompute_options_t(states=states))


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
        self._as_parameter_: Any = None
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
            handle = _c.fy_graph_end()
            if kind is None:
                self._as_parameter_ = handle
        except Error:
            if kind is None:
                raise
        finally:
            open_scope.__exit__()

    def replay(self) -> Ticket:
        """Runs the recorded calls on the current bytes of their tensors; one request."""
        return Ticket._of(_c.fy_graph_replay(self))

    def info(self) -> Dict[str, Any]:
        """requests, uploads, pool_nbytes, replays, chains, fused_calls, ..."""
        facts = plain(_c.fy_graph_query(self))
        return {**facts, "device": self.device}

    def explain(self) -> List[Tuple[str, str]]:
        """(key, text) of each chain and of each call outside of chains, in order."""
        found: List[Tuple[str, str]] = []
        _c.fy_graph_explain(self, lambda key, text: found.append((key, text)))
        return found


Step = Callable[[Device, int], Any]


def _called(step: Step) -> Callable[..., Any]:
    def called(handle: Any, batch: int) -> None:
        with borrowed(handle) as device:
            step(device, batch)

    return named("python", called)


def _plan(plan: Any) -> Dict[str, Any]:
    facts = plain(plan)
    names = [_c.fy_category_name(i) for i in range(_c.FY_CATEGORY_COUNT)]
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
    return _plan(_c.fy_plan_step(spec, _called(step), batch))


def fit(spec: str, step: Step, max_batch: int) -> Tuple[int, Dict[str, Any]]:
    """The largest batch up to max_batch that fits, and its plan. Fails: OutOfMemory."""
    batch, result = _c.fy_plan_fit(spec, _called(step), max_batch)
    return batch, _plan(result)
