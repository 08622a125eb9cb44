"""Failures of Ferry as exceptions: one class a status, with the record of the C library."""

from enum import IntEnum

from ferry import _c, _core


def _statuses():
    names, number = {}, 0
    while (name := _c.fy_status_name(number)) != "UNKNOWN":
        names[name] = number
        number += 1
    return names


Status = IntEnum("Status", _statuses())
Status.__doc__ = "The status codes of C, without their prefix: Status.DEVICE_MISMATCH."


class Error(Exception):
    """A call of Ferry failed. `except ferry.Error` catches every failure, a subclass one status.

    status: a ferry.Status. text: all of the record, the cause with numbers and the remedy.
    cause: its first line. hint: the other lines: the call that fixes it; without one, who can act.
    file, line: where the library noticed it.
    """

    def __init__(self, status, text, file="", line=0):
        super().__init__(text)
        self.status, self.text, self.file, self.line = Status(status), text, file, line
        cause, _, hint = text.partition("\n")
        self.cause = cause
        self.hint = hint.strip() or _c.fy_status_text(int(status))

    def __reduce__(self):
        return _of, (int(self.status), self.text, self.file, self.line)


_BASES = {
    "INVALID_ARGUMENT": ValueError, "DEVICE_MISMATCH": ValueError, "DTYPE_MISMATCH": ValueError,
    "SHAPE_MISMATCH": ValueError, "BAD_VALUE": ValueError, "CORRUPT_DATA": ValueError,
    "OUT_OF_MEMORY": MemoryError, "PINNED_LIMIT": MemoryError, "TIMEOUT": TimeoutError,
    "IO": OSError, "UNSUPPORTED": RuntimeError, "UNAVAILABLE": RuntimeError,
}  # fmt: skip


def _class_name(name):
    return "IOFailed" if name == "IO" else "".join(word.capitalize() for word in name.split("_"))


def _make(name, number):
    bases = (Error, _BASES[name]) if name in _BASES else (Error,)
    text = _c.fy_status_text(number)
    members = {"__doc__": f"{name}: {text}.", "__module__": "ferry"}
    return type(_class_name(name), bases, members)


CLASSES = {number: _make(name, number) for name, number in _statuses().items() if number}
"""The exception class of each status."""
globals().update({cls.__name__: cls for cls in CLASSES.values()})
__all__ = ["Error", "Status", *(cls.__name__ for cls in CLASSES.values())]


def _of(status, text, file="", line=0):
    return CLASSES[status](status, text, file, line)


def last_error(status):
    """The exception of this thread's last failure, whose status is `status`."""
    if status == Status.CANCELLED:
        _core.raise_interrupt()  # Ctrl-C, in a wait that it ended
    record = _c.fy_error_get()
    if record.status != status:
        return _of(status, _c.fy_status_text(status))
    return _of(status, record.text, record.file or "", record.line)
