"""Functions of Python that C calls, and borrowed handles."""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import Any, Callable, Iterable, List, Optional

from ferry import _c, _core
from ferry._errors import Error, Status
from ferry._scope import scope
from ferry._tensor import Tensor, wrap_out


class _State(threading.local):
    """Of a thread: what is around the call of C that it is in."""

    exception: Optional[BaseException] = None  # of a Callback
    interrupts: Optional["_Interrupts"] = None  # the innermost


_state = _State()


class _Interrupts:
    """Ctrl-C while C runs waits for a Callback, or for the end of the call.

    Without this, Python would raise it before the first line of a callback: ctypes prints such an
    exception and returns an undefined number to C.
    """

    def __enter__(self) -> "_Interrupts":
        self._outer, _state.interrupts = _state.interrupts, self
        self._is_in_python, self._pending, self._handler = False, False, None
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(self, *exc: Any) -> None:
        _state.interrupts = self._outer
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._pending:
                self._handler(signal.SIGINT, None)

    def _receive(self, number: int, frame: Any) -> None:
        if self._is_in_python:
            self._handler(number, frame)
        else:
            self._pending = True

    def enter_python(self) -> None:
        self._is_in_python = True
        if self._pending:
            self._pending = False
            self._handler(signal.SIGINT, None)

    def leave_python(self) -> None:
        self._is_in_python = False


def calling(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of C that calls Callbacks; raises the exception of one if it failed."""
    outer, _state.exception = _state.exception, None
    try:
        with _Interrupts():
            return function(*arguments)
    except Error:
        if _state.exception is not None:
            raise _state.exception from None
        raise
    finally:
        _state.exception = outer


class Callback:
    """A function for C, which is called inside of `calling`.

    kind: the ctypes type. The function runs in a scope that owns nothing, because Python objects
    own their tensors. An exception becomes the status that C gets: its own if it is a ferry.Error,
    else CANCELLED; `calling` raises the exception itself.
    """

    def __init__(self, kind: Any, function: Callable[..., Any], name: Optional[str] = None) -> None:
        self._function, self._name = function, name
        self.pointer = kind(self._called)

    def _called(self, *arguments: Any) -> int:
        interrupts = _state.interrupts
        try:
            if interrupts is not None:
                interrupts.enter_python()
            self._run(*arguments)
            if interrupts is not None:
                interrupts.leave_python()
            return 0
        except BaseException as error:
            if interrupts is not None:
                interrupts.leave_python()
            _state.exception = error
            status = error.status if isinstance(error, Error) else Status.CANCELLED
            text = str(error) or type(error).__name__
            _c.fy_error_set(int(status), b"python", 0, b"%s", ctypes.c_char_p(text.encode(errors="replace")))
            return int(status)

    def _run(self, *arguments: Any) -> None:
        if self._name is None:
            self._function(*arguments)
            return
        with scope(self._name):
            finish = self._function(*arguments)
        if finish is not None:
            finish()


def view_of(handle: Any) -> Tensor:
    """A Tensor on the bytes of a handle that is not ours."""
    info = _c.defaults(_c.fy_tensor_info_t)
    _c.fy_tensor_query(handle, ctypes.byref(info))
    order = (ctypes.c_int * max(info.rank, 1))(*range(info.rank))
    return wrap_out(_c.fy_transpose, handle, order if info.rank else None)


def views(count: int, pointers: Any) -> List[Tensor]:
    return [view_of(pointers[i]) for i in range(count)]


def hand_over(results: Iterable[Tensor], out: Any) -> Callable[[], None]:
    """Puts views of the results into out[], made in the scope that is open then: C owns them."""
    kept = list(results)

    def finish() -> None:
        for i, result in enumerate(kept):
            if not isinstance(result, _core.Tensor):
                raise TypeError(f"the function returned {type(result).__name__}, not a Tensor")
            out[i] = view_of(result)._take()

    return finish
