"""What ferry/ops.py, which is generated, needs beside C: attribute structs, and ops by name."""

from __future__ import annotations

import functools
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ferry import _c, _core
from ferry._tensor import Tensor
from ferry._types import dtype_number, is_sequence

_SIZES = {_c.FY_ATTR_F64: 0, _c.FY_ATTR_I64: 8, _c.FY_ATTR_I32: 4, _c.FY_ATTR_BOOL32: 4}
_FORMATS = {_c.FY_ATTR_F64: "d", _c.FY_ATTR_I64: "q"}


class _Op:
    """What C tells about an op, read once: its attributes by name, and their fallbacks."""

    def __init__(self, name: str) -> None:
        info = _c.fy_op_find(name)
        if info is None:
            raise ValueError(f"there is no op {name!r}")
        self.info, self.name, self.number, self.ndst = info, info.name, info.op, info.ndst
        self.fields = {f.name: (f.type, f.offset, f.choices) for f in info.fields or ()}
        self.fallbacks = {
            f.name: f.fallback if f.type == _c.FY_ATTR_F64 else int(f.fallback)
            for f in info.fields or ()
        }
        self.packed = self.pack(bytes(info.attrs_nbytes), self.fallbacks)

    def pack(self, fallbacks: bytes, values: Dict[str, Any]) -> bytearray:
        """The bytes of the attributes, where `values` replace fallbacks."""
        packed = bytearray(fallbacks)
        for name, value in values.items():
            kind, offset, _ = self.fields[name]
            struct.pack_into(_FORMATS.get(kind, "i"), packed, offset, value)
        return packed


_op = functools.cache(_Op)  # ops are never removed


def _value(op: _Op, name: str, given: Any, rank: int) -> Any:
    kind, _, choices = op.fields[name]
    if (nbytes := _SIZES.get(kind)) is not None:
        return _core.number(op.name, name, given, nbytes)
    if kind == _c.FY_ATTR_DTYPE32:
        return dtype_number(given)
    if kind == _c.FY_ATTR_ENUM32 and isinstance(given, str):
        if given not in choices:
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {given!r}")
        return choices.index(given)
    if kind == _c.FY_ATTR_AXES32 and given is not None:
        several = given if is_sequence(given) else (given,)
        axes = [_core.number(op.name, name, axis, 4) for axis in several]
        bits = {a + rank * (a < 0) for a in axes}
        if not axes or len(bits) < len(axes) or not bits <= set(range(_c.FY_MAX_RANK)):
            raise ValueError(f"axes {given!r} of a tensor of rank {rank}: one is twice or missing")
        return sum(1 << bit for bit in bits)
    if kind == _c.FY_ATTR_AXES32:
        return 0
    return _core.number(op.name, name, given, 4)


def _values(op: _Op, given: Dict[str, Any], rank: int = 0) -> Dict[str, Any]:
    """The given attributes of an op, as C has them."""
    if not given.keys() <= op.fields.keys():
        unknown = next(name for name in given if name not in op.fields)
        known = ", ".join(op.fields) or "none"
        raise TypeError(f"{op.name} has no attribute {unknown!r}; it has: {known}")
    return {name: _value(op, name, value, rank) for name, value in given.items()}


def attributes(name: str, kind: str, given: Dict[str, Any]) -> Any:
    """The struct of a typed call; None, all defaults, if nothing is given."""
    if not given:
        return None
    make = _known_struct if set(map(type, given.values())) <= {int, str} else _new_struct
    return make(name.removesuffix("_with"), kind, tuple(given.items()))


def _new_struct(name: str, kind: str, given: tuple) -> Any:
    op, made = _op(name), getattr(_c, kind)
    known = {key: op.fallbacks[key] for key in made._fields_ if key in op.fallbacks}
    return made(**{**known, **_values(op, dict(given))})


# Not for floats, because 0.0 and -0.0 are one key.
_known_struct = functools.lru_cache(maxsize=256)(_new_struct)


def call(name: str, *sources: Tensor, dst: Optional[Sequence[Any]] = None, **attrs: Any) -> Any:
    """Any op by its name, registered ones as well: ferry.call("clamp", t, low=0.0).

    dst: given results, None for those to be made. Returns the result, or a tuple of several.
    """
    op = _op(name)
    rank = sources[0].ndim if sources and isinstance(sources[0], Tensor) else 0
    given = list(dst) if dst is not None else [None] * op.ndst
    packed = op.pack(op.packed, _values(op, attrs, rank)) if attrs else op.packed
    made = _c.fy_op_call(op.number, sources, packed or None, given)
    return made[0] if len(made) == 1 else made


def op_names() -> List[str]:
    """The names of all ops, registered ones last."""
    return [_c.fy_op_get(i).name for i in range(_c.fy_op_count())]


def op_info(name: str) -> Dict[str, Any]:
    """Summary, number of sources and results, and attributes with defaults and ranges."""
    info = _op(name).info
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
