"""Ops that need more than a line: copies over the link, tensors made on a device that Python asked
for. Core.dispatch (python/recorder/dispatch.c) sees every op, and calls Slow for these. Tensors of
the device are host tensors in C++ (with numerics off: meta tensors); Core knows their storages, and
Python reads "cuda:0"."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._recorder import Dispatch
from .ops import COPY, DOWNLOAD, EMPTY, ITEM, TO, UPLOAD, is_cuda

Tensor = torch.Tensor
current_node = torch._C._current_autograd_node
CPU, STRIDED = torch.device("cpu"), torch.strided


class Mode(Dispatch, TorchDispatchMode):
    """Records the ops of the threads that enter it."""

    def __init__(self, recorder):
        Dispatch.__init__(self, recorder)
        TorchDispatchMode.__init__(self)

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # its wrapper costs 50 us a call


class Slow:
    """Core's `slow`: runs an op and writes what it did. `recorder` is set before the first call."""

    recorder = None

    def __init__(self, backing):
        self.backing, self.is_meta = backing, backing.type == "meta"

    def __call__(self, info, func, args, kwargs, tensors, storages):
        recorder, kwargs, asked = self.recorder, kwargs or {}, None
        device = kwargs.get("device")
        if device is not None:
            asked = is_cuda(device) or (self.is_meta and device.type == "meta")
            if asked:
                kwargs = dict(kwargs, device=self.backing)
        if kwargs.get("pin_memory"):
            return recorder.pin(func(*args, **dict(kwargs, pin_memory=False)))
        some, to_device = any(storages), recorder.to_device
        if not some and not asked and to_device is None:
            return func(*args, **kwargs)  # an op on the host
        with recorder:
            return self.run(info, func, args, kwargs, tensors, storages, some, asked, to_device)

    def run(self, info, func, args, kwargs, tensors, storages, some, asked, to_device):
        recorder, kind = self.recorder, info.kind
        if recorder.wants_step:
            recorder.begin_step()
        if kind == ITEM:
            return self.item(func, args, kwargs, tensors[0], storages[0])
        if kind == COPY and len(tensors) == 2 and bool(storages[0]) != bool(storages[1]):
            return self.cross(func, args, kwargs, tensors, storages)
        if some and asked is False and to_device is None and not (self.is_meta and kind == TO):
            asked = None  # C++ took it from the options of a tensor; Python's wish is to_device
        if some and to_device is None and not info.mixed and not all(storages):
            self.check_mixed(info, tensors, storages)
        there = to_device if to_device is not None else asked if asked is not None else some
        if kind == TO and tensors and bool(storages[0]) != there:
            return self.move(func, args, kwargs, tensors[0], storages[0], there)
        out = recorder.run_kernel(func, args, kwargs)
        if there and kind == EMPTY:
            recorder.add(out, "other", recorder.site())
        elif there:
            recorder.record(func, args, kwargs, out, current_node())
        return out

    def check_mixed(self, info, tensors, storages):
        for t, s in zip(tensors, storages):
            if s is None and t.dim() > 0 and t.layout is STRIDED:
                site = self.recorder.site()
                if current_node() is not None:
                    self.recorder.add(t, "gradients", site)  # made by C++ in the backward
                else:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two "
                        "devices, cuda:0 and cpu! (in %s, %s)"
                        % (info.name, self.recorder.sites[site]))

    # ---- over the link ----

    def item(self, func, args, kwargs, tensor, storage):
        recorder = self.recorder
        recorder.copy(DOWNLOAD, tensor.element_size(), (storage.number, storage.version), None,
                      recorder.thread.reason or "item", True, True, recorder.site())
        if self.is_meta:
            return False if tensor.dtype is torch.bool else 1 if tensor.dtype.is_floating_point \
                else 0
        return recorder.run_kernel(func, args, kwargs)

    def upload(self, source, target, storage, reason, non_blocking):
        recorder = self.recorder
        pinned = recorder.is_pinned(source)
        storage.version += 1
        if non_blocking and not pinned:
            reason += ": non_blocking from pageable memory"
        recorder.copy(UPLOAD, target.numel() * target.element_size(),
                      recorder.host_operand(source, False), (storage.number, storage.version),
                      reason, pinned, not non_blocking, recorder.site())

    def download(self, storage, target, reason, non_blocking, pinned):
        recorder = self.recorder
        recorder.copy(DOWNLOAD, target.numel() * target.element_size(),
                      (storage.number, storage.version), recorder.host_operand(target, True),
                      reason, pinned, not non_blocking, recorder.site())

    def cross(self, func, args, kwargs, tensors, storages):
        """copy_ between host and device."""
        recorder = self.recorder
        target, source = tensors
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        if self.is_meta:
            out = target.zero_() if storages[0] is None else target
        else:
            out = recorder.run_kernel(func, args, kwargs)
        if storages[0]:
            self.upload(source, target, storages[0], "copy_", non_blocking)
        else:
            self.download(storages[1], target, "copy_", non_blocking, recorder.is_pinned(target))
        return out

    def move(self, func, args, kwargs, source, storage, there):
        """_to_copy between host and device."""
        recorder = self.recorder
        non_blocking = kwargs.get("non_blocking", False)
        reason = recorder.thread.reason or ("backward" if current_node() is not None else "to")
        if self.is_meta:
            kwargs = dict(kwargs, device=self.backing if there else CPU)
        if self.is_meta and not there:
            out = torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        else:
            out = recorder.run_kernel(func, args, kwargs)
        if there:
            new = recorder.add(out, "other", recorder.site())
            self.upload(source, out, new, reason, non_blocking)
        else:
            if non_blocking:
                recorder.pin(out)  # as PyTorch allocates it
            self.download(storage, out, reason, non_blocking, bool(non_blocking))
        return out
