"""Values that calls take by name: dtypes, shapes, axes, enumerators, and options of C structs."""

from __future__ import annotations

import ctypes
import numbers
import sys
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple, Union

from ferry import _c

DTYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3, "i32": 4, "i64": 5, "u8": 6, "bool": 7}
"""The names of dtypes, with their numbers in C."""
NAMES = {number: name for name, number in DTYPES.items()}
_ALIASES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int32": "i32",
    "int64": "i64", "uint8": "u8",
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


def number_of(value: Any) -> Any:
    """The float, int or bool that a scalar of Python or NumPy is; NotImplemented if it is none.

    TypeError for values that another library would calculate with, or compare as unequal.
    """
    if isinstance(value, (float, int)):
        return value
    kind = value.dtype.kind if isinstance(value, _numpy("generic")) else None
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    name = type(value).__name__
    if isinstance(value, (list, tuple)) or kind is None and _is_array(value):
        raise TypeError(
            f"{name} beside a tensor: ferry.tensor(a) is a host tensor with a copy of it, which "
            "upload() moves; ferry.from_dlpack(a) shares its bytes; a.item() is a number"
        )
    if isinstance(value, numbers.Number):
        raise TypeError(f"{name} beside a tensor, whose numbers are float, int and bool")
    return NotImplemented


_SCALARS = {"f": float, "i": int, "u": int, "b": bool}  # by the kind of NumPy's dtype


def _numpy(name: str) -> Any:
    """A class of NumPy for isinstance; without NumPy there are no objects of it."""
    return getattr(sys.modules.get("numpy"), name, ())


def _is_array(value: Any) -> bool:
    return any(hasattr(type(value), name) for name in ("__dlpack__", "__array__"))


def dtype_number(dtype: Any) -> int:
    """The number of "f32", "float32", a NumPy dtype, or float, int and bool."""
    name = _PYTHON.get(dtype) or getattr(dtype, "name", None) or str(dtype)
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"{dtype!r} is no dtype of Ferry; it has: {', '.join(DTYPES)}")
    return DTYPES[name]


def int64s(values: Iterable[int]) -> ctypes.Array:
    values = [int(v) for v in values]
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def shape_arguments(shape: Shape) -> tuple:
    """(rank, dims) as C takes them."""
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    return len(dims), int64s(dims)


def axes_arguments(axes: Axes) -> tuple:
    """(naxes, axes) as C takes them; None: all axes."""
    if axes is None:
        return 0, None
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    if not axes:
        raise ValueError("axes is empty: None reduces all axes, a sequence names at least one")
    return len(axes), (ctypes.c_int * len(axes))(*axes)


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
    return None if value is None else str(value).encode()


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
