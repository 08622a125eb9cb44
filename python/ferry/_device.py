"""Devices: places where data lives."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Dict, Iterator, List, Union

from ferry import _c
from ferry._types import FOREVER, NAMES, Value, plain

_by_handle: "weakref.WeakValueDictionary[Any, Device]" = weakref.WeakValueDictionary()


class Device(Value):
    """A place where data lives: ferry.Device("sim:0"), "cuda:0", "host", or "auto".

    Options follow a question mark: "sim:0?profile=h200&capacity=8GiB" (docs/environment.md). The
    device is closed with its last Device object and its last tensor; close(), or `with`, closes
    this object at once.

    Fails: InvalidArgument (names the option), Unavailable (with the reason), OutOfMemory.
    """

    _instead = "pickle its spec, and open ferry.Device(spec) in the other process"

    def __init__(self, spec: str = "auto") -> None:
        handle = _c.fy_device_open(spec)
        self._as_parameter_ = handle
        self.name: str = _c.fy_device_name(handle)
        _by_handle[handle] = self

    def close(self) -> None:
        """Closes this object; tensors on the device stay usable. A second close does nothing."""
        handle, self._as_parameter_ = self._as_parameter_, None
        _c.fy_device_close(handle)

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def info(self) -> Dict[str, Any]:
        """Facts: spec, model, backend, memory_nbytes, free_nbytes, limit_nbytes, ..."""
        return plain(_c.fy_device_query(self))

    def facts(self) -> Dict[str, str]:
        """Further facts that the device's backend knows, for people and logs."""
        found: Dict[str, str] = {}
        _c.fy_device_describe(self, found.__setitem__)
        return found

    def clock(self) -> Dict[str, Any]:
        """Its clock: now_ns, and of simulated devices how long each engine was busy so far."""
        clock = plain(_c.fy_device_clock_query(self))
        clock["kind"] = "model" if clock["kind"] == _c.FY_CLOCK_MODEL else "wall"
        return clock

    def memory(self, scope: Union[str, None] = None) -> Dict[str, Any]:
        """Memory figures of the device, or of the tensors that were made under a scope's path."""
        figures = plain(_c.fy_memory_query(self, scope or None))
        for key in ("by_category", "peak_by_category"):
            names = [_c.fy_category_name(i) for i in range(_c.FY_CATEGORY_COUNT)]
            figures[key] = dict(zip(names, figures[key], strict=False))
        return figures

    def wait(self, timeout_ns: int = FOREVER) -> None:
        """Waits for everything submitted so far: one sync. Raises its first fault, or Timeout."""
        _c.fy_device_wait(self, timeout_ns)

    def supports(self, op: str, *dtypes: str) -> bool:
        """Whether the device can run `op` on sources of these dtypes."""
        from ferry._errors import Error

        info = _c.fy_op_find(op)
        if info is None:
            raise ValueError(f"there is no op {op!r}")
        try:
            _c.fy_op_supported(self, info.op, dtypes)
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
def borrowed(handle: Any) -> Iterator[Device]:
    """A Device that Ferry has opened for a callback; its end closes nothing but the object."""
    device = Device._of(handle)
    device.name = _c.fy_device_name(handle)
    _by_handle[handle] = device
    try:
        yield device
    finally:
        _by_handle.pop(handle, None)
        device._as_parameter_ = None


def device_of(handle: Any) -> Device:
    """The Device object of an open device."""
    known = _by_handle.get(handle)
    if known is not None and known._as_parameter_:
        return known
    return Device(_c.fy_device_name(handle))


def as_device(device: Union[Device, str, None]) -> Device:
    if device is None:
        return host
    return device if isinstance(device, Device) else Device(device)


def devices() -> List[str]:
    """The specs that Device() can open now: "host", those of each plugin that loads, "sim:0"."""
    found: List[str] = []
    _c.fy_device_enumerate(lambda spec, is_simulated: found.append(spec))
    return found


def plugins() -> List[Dict[str, Any]]:
    """The plugins that were searched, and why one was not loaded."""
    found: List[Dict[str, Any]] = []
    while (answer := _c.fy_plugin_query(len(found)))[0]:
        found.append(plain(answer[1]))
    return found


dtypes = tuple(NAMES.values())
