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

from typing import Any, Optional, Sequence, Tuple, Union

from ferry import _c
from ferry._device import Device, as_device as _as_device
from ferry._tensor import Tensor
from ferry._types import Axes, Shape
from ferry._ops import attributes as _attributes

'''

# Made by hand in ferry/_tensor.py.
BY_HAND = {"fy_empty", "fy_zeros", "fy_full", "fy_arange", "fy_split"}
OPTIONAL = {"bias", "residual", "mask", "weight", "parts"}
DEFAULTS = {
    "keepdims": "False", "reduction": '"mean"', "activation": '"none"',
    "reverse": "False", "correction": "1", "eps": "1e-5", "slope": "0.01", "threshold": "20.0",
    "log_target": "False", "value": "0.0",
}  # fmt: skip
KINDS = {
    "fy_tensor_t*": ("Tensor", None), "int64_t*": ("Sequence[int]", None), "double": ("float", None),
    "int": ("int", None), "int64_t": ("int", None), "fy_activation_t": ("str", None),
    "fy_reduction_t": ("str", None), "fy_device_t*": ("Union[Device, str]", None),
    "fy_dtype_t": ("Any", None),
}  # fmt: skip


def function_text(function):
    inputs, call, outs, attrs = [], [], 0, ""  # inputs: (name, annotation, default)
    parameters, i = function.parameters, 0
    name = function.name.removeprefix("fy_")
    while i < len(parameters):
        p = parameters[i]
        following = parameters[i + 1].name if i + 1 < len(parameters) else ""
        kind = p.type.replace(" ", "").removeprefix("const")
        given = (p.name, *KINDS.get(kind, ("", None)))
        if p.name.startswith("out_") and kind == "fy_tensor_t**":
            outs, given = outs + 1, None
        elif p.name == "rank" and following == "dims":
            given, i = ("shape", "Shape", None), i + 1
        elif p.name == "naxes":
            given, i = ("axes", "Axes", "None"), i + 1
        elif p.name == "count" and following == "src":
            given, i = ("tensors", "Sequence[Tensor]", None), i + 1
        elif p.name == "attrs":
            attrs, given = kind.rstrip("*"), None
            call.append(f'_attributes("{name}", "{attrs}", attrs)')
        elif p.name in OPTIONAL:
            given = (p.name, "Optional[Tensor]", "None")
        elif not given[1]:
            return None
        elif p.name in DEFAULTS and kind != "fy_tensor_t*":
            default = DEFAULTS[p.name]
            given = (p.name, "bool" if default in ("False", "True") else given[1], default)
        if given:
            inputs.append(given)
            call.append("_as_device(device)" if given[0] == "device" else given[0])
        i += 1
    # A default is legal only behind the last parameter without one.
    last = max((n for n, (_, _, d) in enumerate(inputs) if d is None), default=-1)
    shown = [
        f"{n}: {t}" + (f" = {d}" if d is not None and k > last else "")
        for k, (n, t, d) in enumerate(inputs)
    ]
    if attrs:
        shown.append("**attrs: Any")
    result = ("None", "Tensor")[outs] if outs < 2 else f"Tuple[{', '.join(['Tensor'] * outs)}]"
    comment = function.comment.replace("\\", "\\\\").replace('"""', "'''").replace("\n", "\n    ")
    returns = "return " if outs else ""
    return (
        f"def {name}({', '.join(shown)}) -> {result}:\n"
        f'    """{comment or name}\n    """\n'
        f"    {returns}_c.{function.name}({', '.join(call)})\n"
    )


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
