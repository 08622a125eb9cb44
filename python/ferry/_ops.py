"""What ferry/ops.py, which is generated, needs beside C: attribute structs, and ops by name."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ferry import _c, _core
from ferry._tensor import Tensor
from ferry._types import dtype_number, is_sequence

_KNOWN: Dict[str, Any] = {}
_SIZES = {_c.FY_ATTR_F64: 0, _c.FY_ATTR_I64: 8}
_FORMATS = {_c.FY_ATTR_F64: "d", _c.FY_ATTR_I64: "q"}


def _info(name: str) -> Any:
    """fy_op_info_t of an op by its name."""
    if name not in _KNOWN:
        found = _c.fy_op_find(name)
        if found is None:
            raise ValueError(f"there is no op {name!r}")
        _KNOWN[name] = found
    return _KNOWN[name]


def _value(op: str, field: Any, given: Any, rank: int) -> Any:
    kind = field.type
    if kind == _c.FY_ATTR_DTYPE32:
        return dtype_number(given)
    if kind == _c.FY_ATTR_ENUM32 and isinstance(given, str):
        if given not in field.choices:
            raise ValueError(f"{field.name} is one of {', '.join(field.choices)}, not {given!r}")
        return field.choices.index(given)
    if kind == _c.FY_ATTR_AXES32 and given is not None:
        several = given if is_sequence(given) else (given,)
        axes = [_core.number(op, field.name, axis, 4) for axis in several]
        bits = {a + rank * (a < 0) for a in axes}
        if not axes or len(bits) < len(axes) or not bits <= set(range(_c.FY_MAX_RANK)):
            raise ValueError(f"axes {given!r} of a tensor of rank {rank}: one is twice or missing")
        return sum(1 << bit for bit in bits)
    if kind == _c.FY_ATTR_AXES32:
        return 0
    return _core.number(op, field.name, given, _SIZES.get(kind, 4))


def _values(info: Any, given: Dict[str, Any], rank: int = 0) -> Dict[str, Any]:
    """All attributes of an op: the fallbacks, and the given values."""
    unknown = [name for name in given if name not in (field.name for field in info.fields or ())]
    if unknown:
        known = ", ".join(field.name for field in info.fields or ()) or "none"
        raise TypeError(f"{info.name} has no attribute {unknown[0]!r}; it has: {known}")
    found = {}
    for field in info.fields or ():
        fallback = field.fallback if field.type == _c.FY_ATTR_F64 else int(field.fallback)
        if field.name in given:
            found[field.name] = _value(info.name, field, given[field.name], rank)
        else:
            found[field.name] = fallback
    return found


def attributes(name: str, kind: str, given: Dict[str, Any]) -> Any:
    """The struct of a typed call; None, all defaults, if nothing is given."""
    if not given:
        return None
    return getattr(_c, kind)(**_values(_info(name.removesuffix("_with")), given))


def _packed(info: Any, given: Dict[str, Any], rank: int) -> bytes:
    buffer, values = bytearray(info.attrs_nbytes), _values(info, given, rank)
    for field in info.fields or ():
        struct.pack_into(_FORMATS.get(field.type, "i"), buffer, field.offset, values[field.name])
    return bytes(buffer)


def call(name: str, *sources: Tensor, dst: Optional[Sequence[Any]] = None, **attrs: Any) -> Any:
    """Any op by its name, registered ones as well: ferry.call("clamp", t, low=0.0).

    dst: given results, None for those to be made. Returns the result, or a tuple of several.
    """
    info = _info(name)
    rank = sources[0].ndim if sources and isinstance(sources[0], Tensor) else 0
    given = list(dst) if dst is not None else [None] * info.ndst
    made = _c.fy_op_call(info.op, sources, _packed(info, attrs, rank) or None, given)
    return made[0] if len(made) == 1 else made


def op_names() -> List[str]:
    """The names of all ops, registered ones last."""
    return [_c.fy_op_get(i).name for i in range(_c.fy_op_count())]


def op_info(name: str) -> Dict[str, Any]:
    """Summary, number of sources and results, and attributes with defaults and ranges."""
    info = _info(name)
    fields: List[Dict[str, Any]] = []
    for f in info.fields or ():
        described: Dict[str, Any] = {"name": f.name, "default": f.fallback}
        described["type"] = _c.fy_attr_type_name(f.type)
        if f.low or f.high:
            described["range"] = (f.low, f.high)
        if f.choices:
            described["choices"] = list(f.choices)
        fields.append(described)
    sources: Tuple[int, Optional[int]] = (info.nsrc_min, info.nsrc_max)
    if info.nsrc_max == _c.FY_OP_VARIADIC:
        sources = (info.nsrc_min, None)
    return {
        "name": name,
        "summary": info.summary or "",
        "sources": sources,
        "results": info.ndst,
        "attributes": fields,
    }
