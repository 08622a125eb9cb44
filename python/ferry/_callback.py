"""Functions of Python that C calls, and borrowed handles."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Iterable, List, Optional

from ferry import _c, _core
from ferry._errors import Error, Status
from ferry._scope import scope
from ferry._tensor import Tensor, wrap_out


class Callback:
    """Calls a function for C, and keeps its exception for the call of C around it.

    kind: the ctypes type. The function runs in a scope that owns nothing, because Python objects
    own their tensors. An exception becomes the status that C gets: its own if it is a ferry.Error,
    else CANCELLED; run() raises the exception itself.
    """

    def __init__(self, kind: Any, function: Callable[..., Any], name: Optional[str] = None) -> None:
        self.exception: Optional[BaseException] = None
        self._function, self._name = function, name
        self.pointer = kind(self._called)

    def _called(self, *arguments: Any) -> int:
        try:
            if self._name is None:
                self._function(*arguments)
            else:
                with scope(self._name):
                    finish = self._function(*arguments)
                if finish is not None:
                    finish()
            return 0
        except BaseException as error:
            self.exception = error
            status = error.status if isinstance(error, Error) else Status.CANCELLED
            text = str(error) or type(error).__name__
            _c.fy_error_set(int(status), b"python", 0, b"%s", ctypes.c_char_p(text.encode()))
            return int(status)

    def run(self, function: Any, *arguments: Any) -> Any:
        """Calls a function of C that calls this; raises the exception of Python if it has one."""
        try:
            return function(*arguments)
        except Error:
            if self.exception is not None:
                error, self.exception = self.exception, None
                raise error from None
            raise


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
