"""Layers whose forward is a function of Python."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from ferry import _c
from ferry._callback import Callback, hand_over, view_of, views
from ferry._tensor import Tensor
from ferry._types import Shape, integer, integers, text

_kept: Dict[int, Tuple[Any, ...]] = {}  # what C calls, by the layer's number
_numbers = itertools.count(1)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop(number: int) -> None:
    _kept.pop(number, None)


def _parameter(name: str, given: Any, make_init: Callable[[Any], Any]) -> Any:
    shape, *init = given if isinstance(given, tuple) and given and _is_shape(given[0]) else (given,)
    dims = integers(shape)
    if len(dims) > _c.FY_MAX_RANK:
        raise ValueError(f"the parameter {name!r} has {len(dims)} axes, more than {_c.FY_MAX_RANK}")
    param = _c.fy_layer_param_t(name=text(name), rank=len(dims))
    param.dims[: len(dims)] = dims
    param.fan_in = dims[-1] if len(dims) > 1 else 1
    param.fan_out = dims[0] if dims else 1
    param.init = make_init(init[0] if init else "constant")
    return param


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def make_custom(
    forward: Callable[..., Tensor], params: Mapping[str, Any], shape: Optional[Callable[..., Shape]],
    macs: Union[int, Callable[[tuple], int]], name: str, make_init: Callable[[Any], Any],
) -> int:  # fmt: skip
    """The handle of a layer; train.custom documents the parameters."""
    fields = dict(_c.fy_layer_def_t._fields_)

    def compute(user: Any, pass_: Any, given: Any, x: Any, out: Any) -> Any:
        inputs = [view_of(x), *views(len(params), given)]
        return hand_over([forward(*inputs)], out)

    def derive(user: Any, rank: int, dims: Any, out_rank: Any, out_dims: Any, out_macs: Any) -> None:
        before = tuple(dims[i] for i in range(rank))
        after = before if shape is None else integers(shape(before))
        if len(after) > _c.FY_MAX_RANK:
            raise ValueError(f"{name}: a result has at most {_c.FY_MAX_RANK} axes, not {len(after)}")
        out_rank[0] = len(after)
        for i, length in enumerate(after):
            out_dims[i] = length
        out_macs[0] = integer(macs(before) if callable(macs) else macs)

    listed = (_c.fy_layer_param_t * max(len(params), 1))()
    for i, (key, given) in enumerate(params.items()):
        listed[i] = _parameter(key, given, make_init)
    callbacks = Callback(fields["forward"], compute, name), Callback(fields["shape"], derive)
    number = next(_numbers)
    definition = _c.defaults(
        _c.fy_layer_def_t, type=text(name), nparams=len(params),
        forward=callbacks[0].pointer, shape=callbacks[1].pointer, destroy=_drop,
    )  # fmt: skip
    definition.params = ctypes.cast(listed, fields["params"])
    _kept[number] = (*callbacks, listed)
    return _c.out(_c.fy_layer_create, ctypes.byref(definition), number)
