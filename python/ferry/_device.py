"""Devices: places where data lives."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import Any, Dict, Iterator, List, Union

from ferry import _c
from ferry._types import FOREVER, NAMES, Value, collecting, plain, query, text

_by_handle: "weakref.WeakValueDictionary[int, Device]" = weakref.WeakValueDictionary()


class Device(Value):
    """A place where data lives: ferry.Device("sim:0"), "cuda:0", "host", or "auto".

    Options follow a question mark: "sim:0?profile=h200&capacity=8GiB" (docs/environment.md). The
    device is closed with its last Device object and its last tensor; close(), or `with`, closes
    this object at once.

    Fails: InvalidArgument (names the option), Unavailable (with the reason), OutOfMemory.
    """

    _instead = "pickle its spec, and open ferry.Device(spec) in the other process"

    def __init__(self, spec: str = "auto") -> None:
        handle = _c.out(_c.fy_device_open, text(spec))
        self._as_parameter_ = handle
        self._close = weakref.finalize(self, _c.fy_device_close, handle)
        self.name: str = _c.fy_device_name(handle).decode()
        _by_handle[handle] = self

    def close(self) -> None:
        """Closes this object; tensors on the device stay usable. A second close does nothing."""
        self._close()
        self._as_parameter_ = None

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def info(self) -> Dict[str, Any]:
        """Facts: spec, model, backend, memory_nbytes, free_nbytes, limit_nbytes, ..."""
        return plain(query(_c.fy_device_query, self, _c.fy_device_info_t))

    def facts(self) -> Dict[str, str]:
        """Further facts that the device's backend knows, for people and logs."""
        found: Dict[str, str] = {}

        def say(user: Any, key: bytes, value: bytes) -> None:
            found[key.decode()] = value.decode(errors="replace")

        pointer, check = collecting(_c.fy_fact_fn, say)
        _c.fy_device_describe(self, pointer, None)
        check()
        return found

    def clock(self) -> Dict[str, Any]:
        """Its clock: now_ns, and of simulated devices how long each engine was busy so far."""
        clock = plain(query(_c.fy_device_clock_query, self, _c.fy_device_clock_t))
        clock["kind"] = "model" if clock["kind"] == _c.FY_CLOCK_MODEL else "wall"
        return clock

    def memory(self, scope: Union[str, None] = None) -> Dict[str, Any]:
        """Memory figures of the device, or of the tensors that were made under a scope's path."""
        path = text(scope or None)
        stats = _c.defaults(_c.fy_memory_stats_t)
        _c.fy_memory_query(self, path, ctypes.byref(stats))
        figures = plain(stats)
        for key in ("by_category", "peak_by_category"):
            names = [_c.fy_category_name(i).decode() for i in range(_c.FY_CATEGORY_COUNT)]
            figures[key] = dict(zip(names, figures[key], strict=False))
        return figures

    def wait(self, timeout_ns: int = FOREVER) -> None:
        """Waits for everything submitted so far: one sync. Raises its first fault, or Timeout."""
        _c.fy_device_wait(self, timeout_ns)

    def supports(self, op: str, *dtypes: str) -> bool:
        """Whether the device can run `op` on sources of these dtypes."""
        from ferry._errors import Error
        from ferry._types import dtype_number

        info = _c.fy_op_find(text(op))
        if not info:
            raise ValueError(f"there is no op {op!r}")
        numbers = (ctypes.c_int * max(len(dtypes), 1))(*(dtype_number(d) for d in dtypes))
        try:
            _c.fy_op_supported(self, info.contents.op, numbers, len(dtypes))
        except Error:
            return False
        return True

    def __repr__(self) -> str:
        return f"ferry.Device({self.name!r})" if self._as_parameter_ else "ferry.Device(closed)"

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self._as_parameter_ == other._as_parameter_

    def __hash__(self) -> int:
        return hash(self._as_parameter_)


host = Device("host")
"""The host as a device: its ops run inside the call."""


@contextlib.contextmanager
def borrowed(handle: int) -> Iterator[Device]:
    """A Device that Ferry has opened for a callback; its end closes nothing but the object."""
    device = Device.__new__(Device)
    device._as_parameter_, device._close = handle, lambda: None
    device.name = _c.fy_device_name(handle).decode()
    _by_handle[handle] = device
    try:
        yield device
    finally:
        _by_handle.pop(handle, None)
        device._as_parameter_ = None


def device_of(handle: int) -> Device:
    """The Device object of an open device."""
    known = _by_handle.get(handle)
    if known is not None and known._as_parameter_:
        return known
    return Device(_c.fy_device_name(handle).decode())


def as_device(device: Union[Device, str, None]) -> Device:
    if device is None:
        return host
    return device if isinstance(device, Device) else Device(device)


def devices() -> List[str]:
    """The specs that Device() can open now: "host", those of each plugin that loads, "sim:0"."""
    found: List[str] = []

    def say(user: Any, spec: bytes, is_simulated: int) -> None:
        found.append(spec.decode())

    pointer, check = collecting(_c.fy_device_fn, say)
    _c.fy_device_enumerate(pointer, None)
    check()
    return found


def plugins() -> List[Dict[str, Any]]:
    """The plugins that were searched, and why one was not loaded."""
    found: List[Dict[str, Any]] = []
    info = _c.defaults(_c.fy_plugin_info_t)
    while _c.fy_plugin_query(len(found), ctypes.byref(info)):
        found.append(plain(info))
    return found


dtypes = tuple(NAMES.values())
