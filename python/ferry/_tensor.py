"""Tensors. Arithmetic and the exchange of bytes are in C (core/); this is the rest."""

from __future__ import annotations

import atexit
import html
import struct
import threading
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from ferry import _c, _core
from ferry import _errors
from ferry._device import Device, as_device, device_of, host
from ferry._types import (
    DTYPES, NAMES, Handle, Shape, dtype_number, is_sequence, number_of, plain, scalar,
)  # fmt: skip

if TYPE_CHECKING:
    from ferry._stream import Download, Ticket

LEGACY_STREAM = 1  # of CUDA: what DLPack means by no stream
_DLPACK_VERSION = (1, 3)
_CODES = {"f32": "f", "f64": "d", "f16": "e", "i32": "i", "i64": "q", "u8": "B", "bool": "?"}


class Tensor(_core.Tensor, Handle):
    """A strided array on one device. Nothing moves it but upload, download and send.

    Made by ferry.tensor, ferry.zeros, ferry.from_numpy, uploads and ops. Operators (+ - * / // % @
    ** and comparisons) are ops: elementwise, broadcast as NumPy does, on one device and of one
    dtype. A number of Python or NumPy takes the tensor's dtype. Slices and transposed tensors are
    views of the same bytes; t[key] takes integers, slices with a step of 1 or more, ... and None.
    The bytes are freed with the last object, view or copy in flight.

    float(t), bool(t), int(t), t.item(), t.tolist(), t.numpy() read host tensors and raise
    DeviceMismatch on others: download them. repr(t) shows values of host tensors only.
    """

    __slots__ = ()
    _instead = "ferry.tensor(t) copies a host tensor; pickle t.numpy(), or write a file"
    __array_ufunc__ = None  # NumPy's operators leave the operation to those of tensors

    # ---- facts ----

    if TYPE_CHECKING:  # core/ has them
        device: Device
        dtype: str
        ndim: int
        size: int
        nbytes: int
        is_host: bool

        def tolist(self) -> Any: ...
        def __getitem__(self, key: Any) -> "Tensor": ...
        def __len__(self) -> int: ...

    @property
    def name(self) -> str:
        """Shown in errors and plans; "" for none. Cut at 31 bytes."""
        return _c.fy_tensor_query(self).name or ""

    @name.setter
    def name(self, value: Optional[str]) -> None:
        _c.fy_tensor_set_name(self, value)

    def info(self) -> dict:
        """All facts of C: dims, strides, version, is_pinned, storage, is_read_only, ..."""
        info = _c.fy_tensor_query(self)
        facts = plain(info)
        facts["dims"], facts["strides"] = facts["dims"][: info.rank], facts["strides"][: info.rank]
        return {**facts, "device": self.device, "dtype": self.dtype}

    # ---- transfers: heavy, explicit, counted ----

    def upload(self, device: Union[Device, str], dtype: Any = None) -> "Tensor":
        """A new tensor on `device` with the elements of this host tensor. Heavy.

        dtype: of the result; the device converts. Fails: DeviceMismatch (this is not on the host),
        OutOfMemory, PinnedLimit, RefusedByGuard.
        """
        return _c.fy_tensor_upload(self, as_device(device), transfer_options(dtype))

    def download(self, dtype: Any = None) -> "Download":
        """Requests the bytes as they are now. Heavy. `wait()` of the result gives the host tensor.

        Fails: OutOfMemory, PinnedLimit, RefusedByGuard.
        """
        from ferry._stream import Download

        return Download(_c.fy_tensor_download(self, transfer_options(dtype)))

    def send(self, device: Union[Device, str]) -> "Tensor":
        """A copy on another device of the same backend, without the host: peer traffic."""
        return _c.fy_tensor_send(self, as_device(device))

    def upload_from(self, source: "Tensor") -> None:
        """Uploads a host tensor of the same shape and dtype into this tensor or view. Heavy."""
        _c.fy_tensor_upload_into(self, source)

    def download_into(self, target: "Tensor") -> None:
        """Downloads into a host tensor of the same shape and dtype: heavy, and one sync."""
        _c.fy_tensor_download_into(target, self)

    def pin(self, device: Union[Device, str]) -> None:
        """Page-locks the bytes of this host tensor for `device`. Slow: once, not per transfer."""
        _c.fy_tensor_pin(self, as_device(device))

    @property
    def ticket(self) -> "Ticket":
        """The ticket of the last write to its bytes: poll it, wait for it, await it."""
        from ferry._stream import Ticket

        return Ticket._of(_c.fy_tensor_ticket(self))

    # ---- the host's bytes ----

    def numpy(self, writable: bool = False) -> Any:
        """A NumPy array on the bytes of a host tensor, without a copy; read-only by default.

        Fails: DeviceMismatch (download it first), Busy (writable, while an upload borrows it),
        DtypeMismatch (bf16, which NumPy lacks: ferry.cast).
        """
        import numpy

        array = numpy.asarray(memoryview(self))
        if not writable:
            return array
        if self._is_read_only:
            raise BufferError("the tensor is read-only, or a view that repeats elements: copy it")
        return numpy.from_dlpack(self)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        array = self.numpy()
        is_other = dtype is not None and array.dtype != dtype
        if is_other and copy is False:
            raise ValueError(f"{self.dtype} as {dtype} needs a copy, and copy=False forbids it")
        return array.astype(dtype or array.dtype) if is_other or copy else array

    def __dlpack_device__(self) -> Tuple[int, int]:
        """(1, 0) for the host, page-locked or not; (2, N) for cuda:N."""
        name = self.device.name
        if name.startswith("cuda:"):
            return (2, int(name.partition(":")[2].partition("?")[0]))
        if not self.is_host:
            self._dlpack(True, True, None)  # refuses, with the call that makes it possible
        return (1, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """A capsule of DLPack, without a copy; of version 1 if max_version allows it.

        The consumer may write to the bytes, unless the tensor is read-only, as views that repeat
        elements are. Consumers in C find the table __dlpack_c_exchange_api__ in the type.
        """
        is_versioned = max_version is not None and max_version[0] >= 1
        is_read_only = self._is_read_only
        if is_read_only and not is_versioned:
            raise BufferError(
                "the tensor is read-only, which DLPack before version 1 cannot express: ask with "
                "max_version=(1, 0), or copy the tensor"
            )
        if copy:
            raise BufferError("ferry copies nothing by itself: copy on your side")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("ferry moves nothing by itself: download or upload the tensor first")
        if stream == -1 or not self.device.name.startswith("cuda:"):
            return self._dlpack(is_read_only, is_versioned, None)
        native = LEGACY_STREAM if stream is None else int(stream)
        wrapped = _c.fy_stream_create(self.device, _c.fy_stream_options_t(native=native))
        return self._dlpack(is_read_only, is_versioned, wrapped)

    # ---- views: nothing moves ----

    def reshape(self, *shape: int) -> "Tensor":
        """The same elements in another shape; one length may be -1. Contiguous tensors only."""
        return _c.fy_reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: int) -> "Tensor":
        """Axis i of the view is axis axes[i]; without axes: all reversed."""
        return _c.fy_transpose(self, axes[0] if len(axes) == 1 else axes or None)

    @property
    def T(self) -> "Tensor":
        """The view with its axes reversed."""
        return self.transpose()

    def broadcast_to(self, *shape: int) -> "Tensor":
        """A read-only view, repeated as NumPy broadcasts."""
        return _c.fy_broadcast(self, shape[0] if len(shape) == 1 else shape)

    def squeeze(self, axis: int) -> "Tensor":
        """Without an axis of length 1."""
        return _c.fy_squeeze(self, axis)

    def unsqueeze(self, axis: int) -> "Tensor":
        """With a new axis of length 1 before `axis`."""
        return _c.fy_unsqueeze(self, axis)

    def split(self, parts: Union[int, Sequence[int]], axis: int = 0) -> List["Tensor"]:
        """Views along `axis`: `parts` equal ones, or ones of these lengths."""
        sizes = tuple(parts) if is_sequence(parts) else None
        count = _core.number("split", "parts", parts, 8) if sizes is None else len(sizes)
        if count < 1 or sizes is None and count > max((1, *self.shape)):
            raise ValueError(f"split: {count} parts of a tensor of the shape {self.shape}")
        return list(_c.fy_split(self, axis, count, sizes))

    def __iter__(self) -> Any:
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, value: Any) -> bool:
        raise TypeError("`in` would read every element: ferry.any(t == value), then download it")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "tensors are written by ops: ferry.fill(t[...], 0.0), ferry.copy(t[...], u)"
        )

    # ---- as text ----

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        name = f" {self.name!r}" if self.name else ""
        head = f"ferry.Tensor({shape} {self.dtype} on {self.device.name}{name}"
        if not self.is_host or self.size > 64:
            return head + ")"
        try:
            return f"{head}: {self.tolist()})"
        except _errors.Error as error:
            return f"{head}: unreadable, {type(error).__name__})"

    def _repr_html_(self) -> str:
        """Notebooks: a table of a small host tensor, else its facts. Never moves data."""
        facts = {"shape": self.shape, "dtype": self.dtype, "device": self.device.name}
        facts.update({"name": self.name} if self.name else {}, bytes=self.nbytes)
        rows = "".join(
            f"<tr><th>{key}</th><td>{html.escape(str(value))}</td></tr>"
            for key, value in facts.items()
        )
        table = f"<table>{rows}</table>"
        if not self.is_host or self.ndim > 2 or self.size > 400 or self.ndim == 0:
            return table
        values = self.tolist() if self.ndim == 2 else [self.tolist()]
        cells = "".join(
            "<tr>" + "".join(f"<td>{value!r}</td>" for value in row) + "</tr>" for row in values
        )
        return f"{table}<table>{cells}</table>"


def transfer_options(dtype: Any) -> Any:
    return None if dtype is None else _c.fy_transfer_options_t(dtype=dtype)


def from_dlpack(source: Any) -> Tensor:
    """A tensor on the bytes of an object with __dlpack__, without a copy.

    Host memory becomes a host tensor, memory of CUDA device N one of cuda:N. Read-only stays so;
    producers before DLPack 1 cannot tell. Fails: Unsupported (version, dtype, lanes),
    InvalidArgument (layout), DeviceMismatch.
    """
    kind, number = source.__dlpack_device__()
    device = Device(f"cuda:{number}") if kind == 2 else host
    stream = None
    if kind == 2:
        stream = _c.fy_stream_native(device, None)
    try:
        capsule = source.__dlpack__(stream=stream, max_version=_DLPACK_VERSION)
    except TypeError as error:
        if not any(word in str(error) for word in ("max_version", "keyword", "argument")):
            raise  # not about the call: from inside the producer
        # a producer before DLPack 1
        capsule = source.__dlpack__(stream=stream)
    return _core.from_dlpack(capsule, device)


def from_buffer(source: Any) -> Tensor:
    """A host tensor on the bytes of an object with the buffer protocol, without a copy.

    For NumPy arrays, bytes, array.array, memoryview. Read-only stays so. The object is kept until
    the last use of its bytes. Fails: DtypeMismatch, InvalidArgument (negative strides, unaligned).
    """
    return _core.from_buffer(source)


from_numpy = from_buffer


def tensor(data: Any, dtype: Any = None, device: Union[Device, str, None] = None) -> Tensor:
    """A host tensor with a copy of `data`: a number, nested sequences, or anything with a buffer.

    dtype: by default that of the buffer, else "f32", "i64" or "bool" by the elements, which are
    numbers of Python or NumPy. Another dtype than the buffer's is a cast, as by ferry.cast. With
    `device`, the tensor is then uploaded there: heavy, as .upload(device). Fails: DeviceMismatch
    (`data` is a tensor on another device: download it), ValueError (an element of a sequence is
    out of the dtype's range; f32 and bf16 give infinity), TypeError (an element is no number).
    """
    is_tensor = isinstance(data, Tensor)
    if is_tensor and not data.is_host:
        memoryview(data)  # refuses, with the call that makes it possible
    if not is_tensor and (isinstance(data, (list, tuple)) or scalar(data) is not None):
        shape, flat = _flatten(data)
        name = NAMES[dtype_number(dtype)] if dtype else _common_dtype(flat)
        made = _from_values(shape, flat, name)
    else:
        made = data if is_tensor else from_buffer(data)
        is_other = dtype is not None and dtype_number(dtype) != DTYPES[made.dtype]
        made = _c.fy_cast(made, dtype) if is_other else copied(made)
    if device is None or as_device(device) == host:
        return made
    return made.upload(device)


def copied(source: Tensor) -> Tensor:
    """A new tensor with the elements of `source`, on its device."""
    made = _c.fy_tensor_create(source.device, source.dtype, source.shape)
    _c.fy_copy(made, source)
    return made


def _from_values(shape: tuple, flat: list, name: str) -> Tensor:
    stored = "f32" if name == "bf16" else name
    made = _c.fy_tensor_create(host, stored, shape)
    if flat:
        try:
            packed = struct.pack(f"{len(flat)}{_CODES[stored]}", *flat)
        except (struct.error, OverflowError):
            shown = _core.show(_first_unfit(stored, flat))
            raise ValueError(f"a tensor of {name} cannot hold {shown}") from None
        made._write(packed)
    return made if stored == name else _c.fy_cast(made, name)


def _first_unfit(dtype: str, flat: list) -> Any:
    for value in flat:
        try:
            struct.pack(_CODES[dtype], value)
        except (struct.error, OverflowError):
            return value


def _flatten(data: Any) -> Tuple[tuple, list]:
    if not isinstance(data, (list, tuple)):
        number = scalar(data)
        if number is None:
            raise TypeError(
                f"elements of a tensor are numbers, not {type(data).__name__}: numpy.array(list) "
                "joins arrays, ferry.stack joins tensors"
            )
        return (), [number]
    if data and _kinds(data) <= {float, int, bool}:
        return (len(data),), list(data)
    parts = [_flatten(part) for part in data]
    if not parts:
        return (0,), []
    if len({shape for shape, _ in parts}) > 1:
        raise ValueError("nested sequences of a tensor have equal lengths")
    return (len(parts), *parts[0][0]), [value for _, flat in parts for value in flat]


def _kinds(values: Any) -> set:
    return set(map(type, values))


def _common_dtype(flat: list) -> str:
    kinds = _kinds(flat)
    if kinds <= {float} or False in {issubclass(kind, int) for kind in kinds}:
        return "f32"
    return "bool" if kinds == {bool} else "i64"


def empty(shape: Shape, dtype: Any = "f32", device: Union[Device, str, None] = None) -> Tensor:
    """Undefined contents."""
    return _c.fy_empty(as_device(device), dtype, shape)


def pinned(shape: Shape, device: Union[Device, str], dtype: Any = "f32") -> Tensor:
    """A host tensor with undefined contents in memory that is page-locked for `device`."""
    return _c.fy_tensor_create_pinned(as_device(device), dtype, shape)


def zeros(shape: Shape, dtype: Any = "f32", device: Union[Device, str, None] = None) -> Tensor:
    """Zeros, made on the device."""
    return _c.fy_zeros(as_device(device), dtype, shape)


def ones(shape: Shape, dtype: Any = "f32", device: Union[Device, str, None] = None) -> Tensor:
    """Ones, made on the device."""
    return full(shape, 1, dtype, device)


def full(
    shape: Shape, value: float, dtype: Any = "f32", device: Union[Device, str, None] = None
) -> Tensor:
    """Every element is `value`. Fails: OverflowError (an integer that a C double cannot hold)."""
    return _c.fy_full(as_device(device), dtype, shape, value)


def arange(
    count: int, start: float = 0, step: float = 1, dtype: Any = "i64",
    device: Union[Device, str, None] = None,
) -> Tensor:  # fmt: skip
    """start + i * step for i below count."""
    return _c.fy_arange(as_device(device), dtype, start, step, count)


def upload_many(tensors: Sequence[Tensor], device: Union[Device, str]) -> List[Tensor]:
    """Uploads several host tensors; small ones cross packed in one copy. All or nothing."""
    return list(_c.fy_tensor_upload_many(tensors, as_device(device)))


atexit.register(_core.end)
_is_main = threading.current_thread() is threading.main_thread()
_core.bind(
    _errors.Error, _errors.last_error, _errors._of, Tensor, number_of, scalar, dtype_number, device_of,
    host, _is_main,
)
