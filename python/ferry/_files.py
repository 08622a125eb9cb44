"""Files: npy, npz, safetensors, memory snapshots, event files."""

from __future__ import annotations

import gzip
import json
import os
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Union

from ferry import _c
from ferry._device import Device, as_device
from ferry._errors import CLASSES, Status
from ferry._tensor import Tensor, upload_many


def read_npy(path: Any) -> Tensor:
    """The array of an .npy file as a host tensor. Fails: IOFailed, CorruptData, Unsupported."""
    return _c.fy_npy_read(path)


def write_npy(path: Any, tensor: Tensor) -> None:
    """Writes a host tensor as numpy.save does, byte for byte. A complete file or none."""
    _c.fy_npy_write(path, tensor)


def read_npz(path: Any, names: Optional[Iterable[str]] = None) -> Dict[str, Tensor]:
    """Arrays of an .npz archive by name, as host tensors; by default all whose dtype Ferry has.

    A warning names those that are left out. With `names`, only these are read, and each of them
    must be there and have a dtype of Ferry. Fails: KeyError, and as read_npy.
    """
    file = _c.fy_npz_open(path)
    found = {_c.fy_npz_name(file, index): index for index in range(_c.fy_npz_count(file))}
    return _read(path, found, names, lambda index: _c.fy_npz_read(file, index))


def _read(path: Any, found: Dict[str, int], names: Any, read: Callable[[int], Tensor]) -> dict:
    """The members of these names; of None, those that Ferry can read."""
    if names is not None:
        wanted = [names] if isinstance(names, str) else list(names)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise KeyError(f"{path} has no {missing[0]!r} among its {len(found)} members")
        return {name: read(found[name]) for name in wanted}
    tensors, refused = {}, []
    for name, index in found.items():
        try:
            tensors[name] = read(index)
        except CLASSES[Status.UNSUPPORTED] as error:
            refused.append(f"{name!r} ({error.text})")
    if refused:
        left_out = f"{path}: {len(refused)} of {len(found)} members are left out: "
        warnings.warn(left_out + ", ".join(refused), stacklevel=3)
    return tensors


def write_npz(path: Any, tensors: Mapping[str, Tensor]) -> None:
    """Writes host tensors by name as numpy.savez does, byte for byte. A complete file or none."""
    _c.fy_npz_write(path, tuple(tensors.items()))


def read_safetensors(
    path: Any, device: Union[Device, str, None] = None, names: Optional[Iterable[str]] = None
) -> Dict[str, Tensor]:
    """Tensors of a file by name: on the host, or uploaded to `device` in one call.

    names: as in read_npz; by default all whose dtype Ferry has, with a warning about others.
    """
    file = _c.fy_safetensors_open(path)
    count = _c.fy_safetensors_count(file)
    indices = {_c.fy_safetensors_at(file, index).name: index for index in range(count)}
    found = _read(path, indices, names, lambda index: _c.fy_safetensors_read(file, index))
    if device is None or not found:
        return found
    uploaded = upload_many(list(found.values()), as_device(device))
    return dict(zip(found, uploaded, strict=True))


def write_safetensors(
    path: Any, tensors: Mapping[str, Tensor], metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Writes host tensors by name, and texts into __metadata__. A complete file or none."""
    _c.fy_safetensors_write(path, tuple(tensors.items()), tuple((metadata or {}).items()))


def snapshot(device: Union[Device, str], path: Any, format: str = "json") -> None:
    """Writes every block of the device's memory to a file: "json", "svg" or "text"."""
    _c.fy_memory_snapshot(as_device(device), path, format)


def read_events(path: Any) -> Iterator[Dict[str, Any]]:
    """The events of a file that ferry.record or $FERRY_RECORD wrote, one dict each."""
    name = os.fsdecode(path)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(name, "rt", encoding="utf-8", errors="replace") as file:
        for line in file:
            yield json.loads(line)
