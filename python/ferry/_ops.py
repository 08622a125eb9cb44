"""What ferry/ops.py, which is generated, needs beside C: attribute structs, and ops by name."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ferry import _c, _core
from ferry._tensor import Tensor
from ferry._types import axes_arguments, double, dtype_number, handles, integer, text

_KNOWN: Dict[str, Any] = {}


def _info(name: str) -> Any:
    """fy_op_info_t of an op by its name."""
    if name not in _KNOWN:
        found = _c.fy_op_find(text(name))
        if not found:
            raise ValueError(f"there is no op {name!r}")
        _KNOWN[name] = found.contents
    return _KNOWN[name]


def _value(field: Any, given: Any, rank: Optional[int]) -> Any:
    kind = field.type
    if kind == _c.FY_ATTR_DTYPE32:
        return dtype_number(given)
    if kind == _c.FY_ATTR_ENUM32 and isinstance(given, str):
        choices = [field.choices[i].decode() for i in range(field.nchoices)]
        if given not in choices:
            raise ValueError(f"{field.name.decode()} is one of {', '.join(choices)}, not {given!r}")
        return choices.index(given)
    if kind == _c.FY_ATTR_AXES32:
        count, axes = axes_arguments(given)
        listed = {a + (rank or 0) if a < 0 else a for a in axes[:count]} if count else set()
        if len(listed) != count or not listed <= set(range(_c.FY_MAX_RANK)):
            raise ValueError(f"axes {given!r} of a tensor of rank {rank}: one is twice or missing")
        return sum(1 << a for a in listed)
    return double(given) if kind == _c.FY_ATTR_F64 else integer(given)


_TYPES = {_c.FY_ATTR_F64: ctypes.c_double, _c.FY_ATTR_I64: ctypes.c_int64}


def _fill(info: Any, given: Dict[str, Any], rank: Optional[int] = None) -> Any:
    """The attribute struct of an op as bytes: the fallbacks, and the given values."""
    buffer = (ctypes.c_char * max(info.attrs_nbytes, 1))()
    left = dict(given)
    for i in range(info.nfields):
        field = info.fields[i]
        name = field.name.decode()
        value = _value(field, left.pop(name), rank) if name in left else field.fallback
        kind = _TYPES.get(field.type, ctypes.c_int32)
        is_double = kind is ctypes.c_double
        number = float(value) if is_double else integer(int(value), 8 * ctypes.sizeof(kind))
        ctypes.memmove(
            ctypes.byref(buffer, field.offset), ctypes.byref(kind(number)), ctypes.sizeof(kind)
        )
    if left:
        known = ", ".join(info.fields[i].name.decode() for i in range(info.nfields)) or "none"
        raise TypeError(
            f"{info.name.decode()} has no attribute {next(iter(left))!r}; it has: {known}"
        )
    return buffer


def attributes(name: str, struct: str, given: Dict[str, Any]) -> Any:
    """The struct of a typed call; None, all defaults, if nothing is given."""
    if not given:
        return None
    op = name.removesuffix("_with")
    cls = getattr(_c, struct)
    return ctypes.cast(_fill(_info(op), given), ctypes.POINTER(cls))


def call(name: str, *sources: Tensor, dst: Optional[Sequence[Any]] = None, **attrs: Any) -> Any:
    """Any op by its name, registered ones as well: ferry.call("clamp", t, low=0.0).

    dst: given results, None for those to be made. Returns the result, or a tuple of several.
    """
    info = _info(name)
    rank = sources[0].ndim if sources and isinstance(sources[0], Tensor) else None
    buffer = _fill(info, attrs, rank) if info.attrs_nbytes else None
    given = list(dst) if dst is not None else [None] * info.ndst
    results = handles(given)
    _c.fy_op_call(
        info.op, len(sources), handles(sources), buffer, info.attrs_nbytes, len(given), results
    )
    made = [t if t is not None else _core.wrap(results[i]) for i, t in enumerate(given)]
    return made[0] if len(made) == 1 else tuple(made)


def op_names() -> List[str]:
    """The names of all ops, registered ones last."""
    return [_c.fy_op_get(i).contents.name.decode() for i in range(_c.fy_op_count())]


def op_info(name: str) -> Dict[str, Any]:
    """Summary, number of sources and results, and attributes with defaults and ranges."""
    info = _info(name)
    fields: List[Dict[str, Any]] = []
    for i in range(info.nfields):
        f = info.fields[i]
        described: Dict[str, Any] = {"name": f.name.decode(), "default": f.fallback}
        described["type"] = _c.fy_attr_type_name(f.type).decode()
        if f.low or f.high:
            described["range"] = (f.low, f.high)
        if f.nchoices:
            described["choices"] = [f.choices[c].decode() for c in range(f.nchoices)]
        fields.append(described)
    sources: Tuple[int, Optional[int]] = (info.nsrc_min, info.nsrc_max)
    if info.nsrc_max == _c.FY_OP_VARIADIC:
        sources = (info.nsrc_min, None)
    summary = (info.summary or b"").decode()
    return {
        "name": name,
        "summary": summary,
        "sources": sources,
        "results": info.ndst,
        "attributes": fields,
    }
