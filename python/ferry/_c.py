"""The C API, function by function, from the headers: the names, parameters and structs are C's.

Arguments are checked: an object of another type is a TypeError, an integer outside of its C type an
OverflowError. A function that returns a status raises ferry.Error if it fails. Out parameters are
results; several are a tuple. Lengths of sequences are no parameters, and a function of Python takes
the place of a callback and its `user`. None is NULL, and may be left out at the end. Enumerators may
be given by name ("relu"), options as keywords: fy_linear_options_t(no_bias=1). Objects own handles.
"""

import contextlib
import copyreg
from typing import TYPE_CHECKING, Any

import ferry._library  # noqa: F401  it loads the libraries
from ferry import _core

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


_core.fill(globals())


def _made(kind: Any, fields: Any) -> Any:
    struct = kind()
    for name, value in fields.items():
        with contextlib.suppress(AttributeError):  # the length of an array is set with it
            setattr(struct, name, value)
    return struct


def _reduce(struct: Any) -> Any:
    return _made, (type(struct), {name: getattr(struct, name) for name in struct._fields_})


for _type in tuple(globals().values()):
    if hasattr(_type, "_fields_"):
        copyreg.pickle(_type, _reduce)
