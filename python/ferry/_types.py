"""Numbers beside tensors, names of dtypes, objects for handles, and structs of C as plain data."""

from __future__ import annotations

import numbers
import sys
from typing import Any, Self, Sequence, Union

from ferry import _c, _core

DTYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3, "i32": 4, "i64": 5, "u8": 6, "bool": 7}
"""The names of dtypes, with their numbers in C."""
NAMES = {number: name for name, number in DTYPES.items()}
_ALIASES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int32": "i32",
    "int64": "i64", "longlong": "i64", "uint8": "u8",
}  # fmt: skip
_PYTHON = {float: "f32", int: "i64", bool: "bool"}
FOREVER = _c.FY_FOREVER


class Handle:
    """An object for a handle of C. A second object of it would destroy it twice."""

    __slots__ = ()
    _instead = "make another one, or pass the object itself"

    @classmethod
    def _of(cls, handle: Any) -> Self:
        made = cls.__new__(cls)
        made._as_parameter_ = handle  # type: ignore[attr-defined]
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} has a handle of this process, which is neither copied nor "
            f"pickled: {self._instead}"
        )


class Value(Handle):
    """A Handle that never changes: a copy is the object itself."""

    __slots__ = ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, known: Any) -> Any:
        return self


Shape = Union[int, Sequence[int]]
Axes = Union[None, int, Sequence[int]]


def is_sequence(value: Any) -> bool:
    """Does C take it as several? Texts, bytes, sets and dicts are none."""
    no_sequences = (str, bytes, bytearray, dict, set, frozenset)
    return hasattr(type(value), "__iter__") and not isinstance(value, no_sequences)


def check_callable(call: str, name: str, value: Any) -> None:
    """Before anything runs: C calls it only later."""
    if not callable(value):
        raise TypeError(f"{call}: {name} is {type(value).__name__}, not a callable")


def scalar(value: Any) -> Any:
    """The float, int or bool that a number of Python or NumPy is; None if it is none."""
    if isinstance(value, (float, int)):
        return value
    kind = value.dtype.kind if isinstance(value, _numpy("generic")) else None
    is_number = kind in _SCALARS and not isinstance(value, _numpy("timedelta64"))
    return _SCALARS[kind](value) if is_number else None


def number_of(value: Any) -> Any:
    """The number that an operand beside a tensor is; NotImplemented if it is none.

    TypeError for values that another library would calculate with, or compare as unequal.
    """
    number = scalar(value)
    if number is not None:
        return number
    name = type(value).__name__
    is_scalar = isinstance(value, _numpy("generic"))
    if isinstance(value, _SEQUENCES) or _is_array(value) and not is_scalar:
        raise TypeError(
            f"{name} beside a tensor: ferry.tensor(a) is a host tensor with a copy of it, which "
            "upload() moves; ferry.from_dlpack(a) shares its bytes; a.item() is a number"
        )
    if isinstance(value, numbers.Number):
        raise TypeError(f"{name} beside a tensor, whose numbers are float, int and bool")
    return NotImplemented


_SEQUENCES = (list, tuple, bytes, bytearray, memoryview)  # bytes + a buffer are bytes
_SCALARS: Any = {"f": float, "i": int, "u": int, "b": bool}  # by the kind of NumPy's dtype


def _numpy(name: str) -> Any:
    """A class of NumPy for isinstance; without NumPy there are no objects of it."""
    return getattr(sys.modules.get("numpy"), name, ())


def _is_array(value: Any) -> bool:
    return any(hasattr(type(value), name) for name in ("__dlpack__", "__array__"))


def dtype_number(dtype: Any) -> int:
    """The number of "f32", "float32", a dtype or class of NumPy, or float, int and bool."""
    name = getattr(dtype, "__name__" if isinstance(dtype, type) else "name", None)
    name = _PYTHON.get(dtype) or (name or _core.show(dtype)).rstrip("_")
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        shown = name if isinstance(dtype, int) else repr(dtype)
        raise ValueError(f"{shown} is no dtype of Ferry; it has: {', '.join(DTYPES)}")
    return DTYPES[name]


def plain(value: Any) -> Any:
    """A struct of C as plain data: dict, list, int, float, str."""
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name in value._fields_}
    return [plain(v) for v in value] if isinstance(value, tuple) else value
