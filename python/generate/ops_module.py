"""Writes ferry/ops.py: the ops of <ferry/ops.h> as Python functions with types and docstrings.

Usage: ops_module.py INCLUDE COMPILER OUT
"""

import sys

import headers

HEAD = '''"""The ops: generated from ferry/ops.h. Each is one light request on its tensors' device.

A result is a new tensor of the sources' device, or a tuple of them in C's order. Axes are an int, a
sequence, or None for all; names stand for enumerators ("relu", "mean"); attributes are keywords.
Ops that write in place (fill, copy, axpy, ..._step) return None.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence, Tuple, Union

from ferry import _c
from ferry._core import binary as _binary, unary as _unary, wrap as _wrap
from ferry._device import Device, as_device as _as_device
from ferry._tensor import Tensor
from ferry._types import (
    Axes, Shape, axes_arguments as _axes, double as _double, dtype_number as _dtype,
    enumerator as _enumerator, handles as _handles, int64s as _int64s, integer as _integer,
    shape_arguments as _shape,
)
from ferry._ops import attributes as _attributes

_Handle, _byref = ctypes.c_void_p, ctypes.byref


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


'''

# Made by hand in ferry/_tensor.py.
BY_HAND = {"fy_empty", "fy_zeros", "fy_full", "fy_arange", "fy_split"}
OPTIONAL = {"bias", "residual", "mask", "weight", "parts"}
DEFAULTS = {
    "keepdims": "False", "axes": "None", "reduction": '"mean"', "activation": '"none"',
    "reverse": "False", "correction": "1", "eps": "1e-5", "slope": "0.01", "threshold": "20.0",
    "log_target": "False", "value": "0.0",
}  # fmt: skip
ENUMS = {"fy_activation_t": "ACTIVATION", "fy_reduction_t": "REDUCTION"}


def is_out(parameter):
    return parameter.name.startswith("out_") and parameter.type.replace(" ", "") == "fy_tensor_t**"


def function_text(function):
    inputs, call, outs, attrs = [], [], [], False  # inputs: (name, annotation, default)
    parameters, i = function.parameters, 0
    name = function.name.removeprefix("fy_")
    while i < len(parameters):
        p = parameters[i]
        following = parameters[i + 1].name if i + 1 < len(parameters) else ""
        kind = p.type.replace(" ", "").removeprefix("const")
        if is_out(p):
            outs.append(p.name)
            call.append(f"_byref({p.name})")
        elif p.name == "rank" and following == "dims":
            inputs.append(("shape", "Shape", None))
            call.append("*_shape(shape)")
            i += 1
        elif p.name == "naxes":
            inputs.append(("axes", "Axes", "None"))
            call.append("*_axes(axes)")
            i += 1
        elif p.name == "count" and following == "src":
            inputs.append(("tensors", "Sequence[Tensor]", None))
            call.append("len(tensors), _handles(tensors)")
            i += 1
        elif p.name == "attrs":
            attrs = kind.rstrip("*")
            call.append("_attrs")
        elif kind == "fy_tensor_t*":
            default = "None" if p.name in OPTIONAL else None
            inputs.append((p.name, "Optional[Tensor]" if default else "Tensor", default))
            call.append(p.name)
        elif kind == "int64_t*":
            inputs.append((p.name, "Sequence[int]", None))
            call.append(f"_int64s({p.name})")
        elif kind == "fy_dtype_t":
            inputs.append(("dtype", "Any", None))
            call.append("_dtype(dtype)")
        elif kind == "fy_device_t*":
            inputs.append(("device", "Union[Device, str]", None))
            call.append("_as_device(device)")
        elif kind in ENUMS:
            inputs.append((p.name, "str", DEFAULTS[p.name]))
            call.append(f'_enumerator("{ENUMS[kind]}", {p.name})')
        elif kind in ("double", "int", "int64_t"):
            annotation = "float" if kind == "double" else "int"
            default = DEFAULTS.get(p.name)
            if default in ("False", "True"):
                annotation = "bool"
            inputs.append((p.name, annotation, default))
            bits = "" if kind == "int64_t" else ", 32"
            is_float = kind == "double"
            call.append(f"_double({p.name})" if is_float else f"_integer({p.name}{bits})")
        else:
            return None
        i += 1
    # A default is legal only behind the last parameter without one.
    last = max((n for n, (_, _, d) in enumerate(inputs) if d is None), default=-1)
    shown = [
        f"{n}: {t}" + (f" = {d}" if d is not None and k > last else "")
        for k, (n, t, d) in enumerate(inputs)
    ]
    if attrs:
        shown.append("**attrs: Any")
    result = (
        "None"
        if not outs
        else "Tensor"
        if len(outs) == 1
        else f"Tuple[{', '.join(['Tensor'] * len(outs))}]"
    )
    comment = function.comment.replace("\\", "\\\\").replace('"""', "'''").replace("\n", "\n    ")
    lines = [f"def {name}({', '.join(shown)}) -> {result}:", f'    """{comment or name}\n    """']
    tensors = [n for n, t, _ in inputs if t == "Tensor"]
    if not attrs and len(outs) == 1 and len(tensors) == len(inputs) and len(tensors) in (1, 2):
        kind = "_unary" if len(tensors) == 1 else "_binary"
        lines.append(f"    return {kind}(_{name}, {', '.join(tensors)})")
        return f"_{name} = _address(_c.{function.name})\n\n\n" + "\n".join(lines) + "\n"
    if attrs:
        lines.append(f'    _attrs = _attributes("{name}", "{attrs}", attrs)')
    if outs:
        lines.append("    " + "; ".join(f"{o} = _Handle()" for o in outs))
    lines.append(f"    _c.{function.name}({', '.join(call)})")
    if outs:
        results = ", ".join(f"_wrap({o}.value)" for o in outs)
        lines.append(f"    return {results}")
    return "\n".join(lines) + "\n"


def main(include, compiler, out):
    api = headers.read_api(include, compiler)
    names, texts = [], []
    for function in api.functions:
        if str(function.header) != "ops.h" or function.name in BY_HAND:
            continue
        text = function_text(function)
        if text is None:
            raise SystemExit(f"ops_module.py does not know the parameters of {function.name}")
        names.append(function.name.removeprefix("fy_"))
        texts.append(text)
    with open(out, "w") as file:
        file.write(HEAD + f"__all__ = {names!r}\n\n\n" + "\n\n".join(texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
