"""Writes ferry/_c.py: every function, struct and enumerator of the C API, by ctypes.

Usage: c_module.py INCLUDE COMPILER OUT
"""

import sys

import headers

SCALARS = {
    "int": "c_int", "size_t": "c_size_t", "double": "c_double", "float": "c_float",
    "char": "c_char", "int32_t": "c_int32", "int64_t": "c_int64", "uint8_t": "c_uint8",
    "uint16_t": "c_uint16", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
}  # fmt: skip

HEAD = '''"""The C API, function by function: generated from the headers of Ferry {version}.

Names, parameters and structs are those of C. A function that returns a status raises ferry.Error
if it fails. Handles are integers or None; a Tensor may be passed where C takes one. A handle that
a function here returns is yours to destroy, unless its scope does (lifetimes: docs/lifetimes.md).
"""

from ctypes import (
    CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32,
    c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_uint8, c_void_p, cast, sizeof,
)

from ferry._library import ferry as _ferry, ferry_dist as _ferry_dist, ferry_train as _ferry_train
from ferry._library import no_dist as _no_dist
from ferry._errors import _of, check as _check


def out(function, *arguments):
    """Calls a function whose last parameter is an out pointer to a handle; returns the handle."""
    result = c_void_p()
    function(*arguments, byref(result))
    return result.value


def defaults(struct, **fields):
    """The struct with its defaults (its _init function), struct_size, and these fields."""
    value = struct()
    init = globals().get(struct.__name__.removesuffix("_t") + "_init")
    if init is not None:
        init(byref(value), sizeof(value))
    elif hasattr(value, "struct_size"):
        value.struct_size = sizeof(value)
    for name, given in fields.items():
        if not hasattr(value, name):
            known = ", ".join(f[0] for f in struct._fields_ if f[0] != "struct_size")
            raise TypeError(f"{{struct.__name__}} has no field {{name!r}}; it has: {{known}}")
        setattr(value, name, given)
    return value


def _missing(name):
    def refuse(*arguments):
        raise _of(FY_STATUS_UNAVAILABLE, f"{{name}}: {{_no_dist}}\\n"
                  "  Install all libraries of one version of Ferry into one folder")

    return refuse


def _declare(library, name, result, parameters, signature, comment):
    function = getattr(library, name) if library else _missing(name)
    function.restype = None if result == "void" else c_int if result == "status" else result
    function.argtypes = parameters
    if result == "status":
        function.errcheck = _check
    function.__doc__ = f"{{signature}}\\n\\n{{comment}}" if comment else signature
    return function

'''


class Writer:
    def __init__(self, api):
        self.api = api
        self.structs = {struct.name for struct in api.structs}

    def type(self, text):
        """The ctypes type of a C type."""
        if isinstance(text, tuple):
            result, parameters = text
            kinds = [self.type(result)] + [self.type(p.type) for p in parameters]
            return f"CFUNCTYPE({', '.join(kinds)})"
        words = [
            w for w in text.replace("*", " * ").split() if w not in ("const", "volatile", "struct")
        ]
        stars, base = words.count("*"), words[0]
        base = self.api.aliases.get(base, base)
        if base not in self.structs and f"{base}_t" in self.structs:
            base += "_t"
        if base == "void" or base in self.api.opaque:
            kind, stars = ("c_void_p", stars - 1) if stars else ("None", 0)
        elif base == "char" and stars:
            kind, stars = "c_char_p", stars - 1
        elif base in self.structs:
            kind = base
        elif base in self.api.callbacks:
            kind = base
        elif base in self.api.enums:
            kind = "c_int"
        else:
            kind = SCALARS[base]
        for _ in range(stars):
            kind = f"POINTER({kind})"
        return kind

    def library(self, header):
        if header in ("dist.h", "dist_train.h"):
            return "_ferry_dist"
        return "_ferry_train" if header.startswith("train/") else "_ferry"

    def lines(self):
        api = self.api
        for name, value in {**api.constants, **api.enumerators}.items():
            yield f"{name} = {value}"
        yield ""
        for struct in api.structs:
            yield f"class {struct.name}(Structure): pass"
        yield ""
        for name, callback in api.callbacks.items():
            yield f"{name} = {self.type(callback)}"
        yield ""
        for struct in api.structs:
            yield f"{struct.name}._fields_ = ["
            for field in struct.fields:
                kind = self.type(field.type)
                if field.length:
                    kind += f" * {field.length}"
                yield f'    ("{field.name}", {kind}),'
            yield "]"
        yield ""
        for function in api.functions:
            library = self.library(str(function.header))
            is_status = function.result == "fy_status_t" and function.name != "fy_error_set"
            result = (
                '"status"'
                if is_status
                else '"void"'
                if function.result == "void"
                else self.type(function.result)
            )
            parameters = ", ".join(self.type(p.type) for p in function.parameters)
            named = ", ".join(p.name for p in function.parameters)
            signature = f"{function.name}({named})"
            yield f"{function.name} = _declare({library}, {function.name!r}, {result},"
            yield f"    [{parameters}], {signature!r}, {function.comment!r})"
        yield ""
        names = [function.name for function in api.functions]
        yield f"FUNCTIONS = {names!r}"


def main(include, compiler, out):
    api = headers.read_api(include, compiler)
    version = ".".join(
        str(api.constants[f"FERRY_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")
    )
    with open(out, "w") as file:
        file.write(HEAD.format(version=version) + "\n".join(Writer(api).lines()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
