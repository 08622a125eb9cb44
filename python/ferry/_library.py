"""Finds and loads libferry, libferry_train and libferry_dist.

In this order: $FERRY_LIBRARY (libferry.so itself, the folder that has it, or an installation's
prefix), the folder lib/ of this package, what the system's loader finds. The others are taken from
beside libferry. Without libferry_dist, only its functions fail.
"""

import os
import sysconfig
from pathlib import Path

from ferry import _core

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("ferry does not support free-threaded Python: use a build with the GIL")


def _candidates():
    named = os.environ.get("FERRY_LIBRARY")
    if named:
        path = Path(named)
        if path.is_file():
            return [path]
        multiarch = sysconfig.get_config_var("MULTIARCH") or "lib"
        folders = [path, path / "lib", path / "lib64", path / "lib" / multiarch]
        return [folder / name for folder in folders for name in ("libferry.so.0", "libferry.so")]
    return [Path(__file__).parent / "lib" / "libferry.so.0"]


def _find():
    candidates = _candidates()
    for path in candidates:
        if path.is_file():
            return str(path.absolute())  # the loader does not look for a bare name here
    if "FERRY_LIBRARY" in os.environ:
        raise ImportError(f"FERRY_LIBRARY is {os.environ['FERRY_LIBRARY']}: no libferry.so there")
    return "libferry.so.0"


path = _find()
"""The file of libferry, or the name that the system's loader resolved."""
_dist = path.replace("libferry.so", "libferry_dist.so")
_has_dist = os.sep not in _dist or os.path.exists(_dist)
_core.load(
    os.fsencode(path),
    os.fsencode(path.replace("libferry.so", "libferry_train.so")),
    os.fsencode(_dist) if _has_dist else None,
    "there is no libferry_dist beside libferry",
)
