"""Scopes, guards, budgets: whose traffic it is, and what may cross."""

from __future__ import annotations

import atexit
import threading
from operator import index
from typing import Any, Callable, Optional, Self, Tuple

from ferry import _c, _core
from ferry._types import Handle, check_callable


class scope(Handle):
    """`with ferry.scope("step"):` tags traffic, memory and events with a path of names.

    It belongs to the thread that enters it. Python objects own their tensors, so the scope ends
    figures, guards and recordings, but destroys nothing. An exception ends it as well.

    memory: the category of tensors made inside, "weights" for instance. autocast: the dtype of
    matrix products and convolutions inside, "bf16" or "f16". Limits as in ferry.guard.
    """

    def __init__(
        self,
        name: str = "scope",
        *,
        memory: Optional[str] = None,
        autocast: Any = None,
        **limits: Any,
    ) -> None:
        self.name, self._memory, self._autocast = name, memory, autocast
        self._limits = limits
        self._open: Optional[tuple] = None

    def __enter__(self) -> "scope":
        if self._open:
            raise RuntimeError(f"the scope {self.name!r} is open already")
        begun = _c.fy_scope_begin_unowned(self.name)
        self._open = (begun, threading.get_ident())
        try:
            if self._memory is not None:
                _c.fy_scope_memory(self._memory)
            if self._autocast is not None:
                _c.fy_autocast_set(self._autocast)
            if self._limits:
                _c.fy_scope_guard(_c.fy_guard_options_t(**_limits(self._limits)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self._open:
            return
        begun, thread = self._open
        if thread != threading.get_ident():
            raise RuntimeError(f"the scope {self.name!r} was begun on another thread")
        self._open = None
        _c.fy_scope_end(begun)


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for C, which runs it in a scope of this name that owns nothing."""

    def called(*arguments: Any) -> Any:
        return function(*arguments)

    called.__name__ = name
    return called


def begin(name: str, function: Any, *arguments: Any) -> scope:
    """An open scope in which function(*arguments) was called; if that fails, no scope is open."""
    begun = scope(name).__enter__()
    try:
        function(*arguments)
    except BaseException:
        begun.__exit__()
        raise
    return begun


class Block(Handle):
    """An object whose `with` blocks are scopes that begin with a call of C; they may be nested."""

    _scopes: Tuple[scope, ...] = ()

    def _begin(self) -> Tuple[Any, ...]:
        """The scope's name, and the call."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._scopes += (begin(*self._begin()),)
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self._scopes:
            raise RuntimeError(f"no block of this {type(self).__name__} is open")
        *others, last = self._scopes
        self._scopes = tuple(others)
        last.__exit__()


_LIMITS = {"upload": "upload_nbytes", "download": "download_nbytes", "peer": "peer_nbytes",
           "collective": "collective_nbytes", "sync": "syncs", "alloc": "device_allocs",
           "memory_limit": "memory_nbytes"}  # fmt: skip


def _limits(given: dict) -> dict:
    fields = {}
    for name, value in given.items():
        if name == "log":
            fields["action"] = _c.FY_GUARD_LOG if value else _c.FY_GUARD_REFUSE
        elif name in _LIMITS:
            if index(value) < 0:
                raise ValueError(f"{name}={_core.show(value)}: a limit is 0 or more")
            fields[_LIMITS[name]] = value
        else:
            raise TypeError(f"{name!r} is no limit; limits are {', '.join(_LIMITS)}, and log")
    return fields


def guard(name: str = "guard", **limits: Any) -> scope:
    """A scope with limits: upload, download, peer, collective (bytes), sync, alloc (counts), memory_limit.

    Without limits it is light only: no transfer and no sync. log=True: what exceeds a limit runs
    and goes to ferry.set_log's function. Fails inside: RefusedByGuard.
    """
    light_only = {"upload": 0, "download": 0, "peer": 0, "collective": 0, "sync": 0}
    if not set(limits) - {"log"}:
        limits = {**light_only, **limits}
    return scope(name, **limits)


class budget:
    """`with ferry.budget("upload=0,download=4KiB/step"):` limits the traffic of the whole process.

    At the end the budget is removed, not the one before restored. ferry.set_budget sets one for
    good, and None removes it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> "budget":
        _c.fy_budget_set(self.text)
        return self

    def __exit__(self, *exc: Any) -> None:
        _c.fy_budget_set(None)


def set_budget(text: Optional[str]) -> None:
    """A budget for the whole process, as $FERRY_BUDGET; None removes it."""
    _c.fy_budget_set(text or None)


_log: Any = None


def set_log(function: Any) -> None:
    """Sends Ferry's messages to function(level, text); None drops them.

    level: "error", "warning" or "info". Set it before other threads use Ferry. Python prints
    exceptions of `function` and goes on. At exit the function is removed.
    """
    global _log
    if function is not None:
        check_callable("set_log", "function", function)
    levels = ("error", "warning", "info")
    _c.fy_log_set(function and (lambda level, text: function(levels[level], text)))
    if function and _log is None:
        atexit.register(set_log, None)
    _log = function
