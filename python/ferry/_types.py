"""Values that calls take by name: dtypes, shapes, axes, enumerators, and options of C structs."""

from __future__ import annotations

import ctypes
import numbers
import operator
import os
import sys
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, Union

from ferry import _c

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
    if isinstance(value, (list, tuple)) or _is_array(value) and not is_scalar:
        raise TypeError(
            f"{name} beside a tensor: ferry.tensor(a) is a host tensor with a copy of it, which "
            "upload() moves; ferry.from_dlpack(a) shares its bytes; a.item() is a number"
        )
    if isinstance(value, numbers.Number):
        raise TypeError(f"{name} beside a tensor, whose numbers are float, int and bool")
    return NotImplemented


_SCALARS: Any = {"f": float, "i": int, "u": int, "b": bool}  # by the kind of NumPy's dtype


def double(value: Any) -> float:
    """A number for C. Fails: OverflowError (an integer that a double cannot hold)."""
    number = scalar(value)
    if number is None:
        raise TypeError(f"a number is needed, not {type(value).__name__}: float(x) is one")
    if isinstance(number, int) and int(float(number)) != number:
        raise OverflowError(f"{number} has more digits than numbers of this call: 2**53 is exact")
    return float(number)


def integer(value: Any, bits: int = 64) -> int:
    """A length, an axis or a count for C, which has no more than `bits`."""
    try:
        number = operator.index(bool(value) if isinstance(value, _numpy("bool_")) else value)
    except TypeError:
        raise TypeError(f"lengths, axes and counts are integers, not {value!r}") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{number} is too large: integers of this call have {bits} bits")
    return number


def integers(values: Any, bits: int = 64) -> List[int]:
    """Of one integer, or of several."""
    several = values if hasattr(type(values), "__iter__") else (values,)
    return [integer(value, bits) for value in several]


def _numpy(name: str) -> Any:
    """A class of NumPy for isinstance; without NumPy there are no objects of it."""
    return getattr(sys.modules.get("numpy"), name, ())


def _is_array(value: Any) -> bool:
    return any(hasattr(type(value), name) for name in ("__dlpack__", "__array__"))


def dtype_number(dtype: Any) -> int:
    """The number of "f32", "float32", a dtype or class of NumPy, or float, int and bool."""
    name = dtype.__name__ if isinstance(dtype, type) else getattr(dtype, "name", None) or str(dtype)
    name = _PYTHON.get(dtype) or name.rstrip("_")
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"{dtype!r} is no dtype of Ferry; it has: {', '.join(DTYPES)}")
    return DTYPES[name]


def int64s(values: Iterable[int]) -> ctypes.Array:
    listed = integers(values)
    return (ctypes.c_int64 * max(len(listed), 1))(*listed)


def shape_arguments(shape: Shape) -> tuple:
    """(rank, dims) as C takes them."""
    dims = integers(shape)
    return len(dims), int64s(dims)


def axes_arguments(axes: Axes) -> tuple:
    """(naxes, axes) as C takes them; None: all axes."""
    if axes is None:
        return 0, None
    listed = integers(axes, 32)
    if not listed:
        raise ValueError("axes is empty: None reduces all axes, a sequence names at least one")
    return len(listed), (ctypes.c_int * len(listed))(*listed)


def handles(tensors: Sequence) -> ctypes.Array:
    """The handles of tensors as an array; keep the tensors alive during the call."""
    values = [t if t is None else t._as_parameter_ for t in tensors]
    return (ctypes.c_void_p * max(len(values), 1))(*values)


def enumerator(prefix: str, value: Union[str, int]) -> int:
    """The value of FY_PREFIX_NAME for "name"."""
    if isinstance(value, int):
        return value
    key = f"FY_{prefix}_{value.upper().replace('-', '_')}"
    if not hasattr(_c, key):
        names = [n[len(prefix) + 4 :].lower() for n in vars(_c) if n.startswith(f"FY_{prefix}_")]
        names = [n for n in names if n not in ("count", "capacity")]
        raise ValueError(f"{value!r} is not one of: {', '.join(names)}")
    return getattr(_c, key)


def plain(value: Any) -> Any:
    """A struct of C as plain data: dict, list, int, float, str."""
    if isinstance(value, ctypes.Structure):
        names = [field[0] for field in value._fields_]
        return {n: plain(getattr(value, n)) for n in names if n not in ("struct_size", "reserved")}
    if isinstance(value, ctypes.Array):
        return [plain(v) for v in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def query(function: Any, handle: Any, struct: Any) -> Any:
    """The struct that a query function fills."""
    info = _c.defaults(struct)
    function(handle, ctypes.byref(info))
    return info


def text(value: Optional[str]) -> Optional[bytes]:
    """A name or a spec for C, in UTF-8."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a str is needed, not {type(value).__name__}")
    return None if value is None else _whole(value, value.encode())


def path_bytes(path: Any) -> bytes:
    """A path for C, as open() takes it: str, bytes or an object with __fspath__."""
    return _whole(path, os.fsencode(path))


def _whole(given: Any, encoded: bytes) -> bytes:
    if b"\0" in encoded:
        raise ValueError(f"{given!r} has a NUL character, at which a text of C ends")
    return encoded


def collecting(kind: Any, function: Callable[..., None]) -> Tuple[Any, Callable[[], None]]:
    """A function for C without a status, and a check to call afterwards: it raises what that
    raised, at which ctypes would only print."""
    failed: List[BaseException] = []

    def called(*arguments: Any) -> None:
        try:
            if not failed:
                function(*arguments)
        except BaseException as error:
            failed.append(error)

    def check() -> None:
        if failed:
            raise failed[0]

    return kind(called), check
