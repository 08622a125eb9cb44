"""Layers whose forward is a function of Python."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any, Callable, Mapping, Optional, Tuple, Union

from ferry import _c
from ferry._scope import named
from ferry._tensor import Tensor
from ferry._types import Shape, is_sequence


def _parameter(name: str, given: Any) -> Any:
    has_init = isinstance(given, tuple) and given and isinstance(given[0], (list, tuple))
    shape, *init = given if has_init else (given,)
    dims = tuple(index(n) for n in (shape if is_sequence(shape) else (shape,)))
    if len(dims) > _c.FY_MAX_RANK:
        raise ValueError(f"the parameter {name!r} has {len(dims)} axes, more than {_c.FY_MAX_RANK}")
    inner = prod(dims[1:-1])  # of a filter [outputs, height, width, inputs]
    return _c.fy_layer_param_t(
        name=name, rank=len(dims), dims=dims, fan_in=inner * dims[-1] if len(dims) > 1 else 1,
        fan_out=inner * dims[0] if dims else 1, init=init[0] if init else "constant",
    )  # fmt: skip


def make_custom(
    forward: Callable[..., Tensor], params: Mapping[str, Any], shape: Optional[Callable[..., Shape]],
    macs: Union[int, Callable[[tuple], int]], name: str,
) -> Any:  # fmt: skip
    """The handle of a layer; train.custom documents the parameters."""

    def compute(pass_: Any, given: Any, x: Any) -> Tensor:
        return forward(x, *given)

    def derive(before: tuple) -> Tuple[Any, Any]:
        return before if shape is None else shape(before), macs(before) if callable(macs) else macs

    definition = _c.fy_layer_def_t(
        type=name, forward=named(name, compute), shape=derive,
        params=[_parameter(key, given) for key, given in params.items()],
    )  # fmt: skip
    return _c.fy_layer_create(definition)
