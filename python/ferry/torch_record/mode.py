"""The mode that sees every op. Tensors of the device are host tensors in C++ (with numerics off:
meta tensors); Recorder.device knows their storages, and Python is told "cuda:0"."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .clock import DOWNLOAD, UPLOAD
from .ops import COPY, EMPTY, ITEM, RUN, TO, VIEW, Info, Signature, operands

Tensor = torch.Tensor
untyped = torch._C.TensorBase.untyped_storage
current_node, grad_is_on = torch._C._current_autograd_node, torch.is_grad_enabled
CPU, STRIDED = torch.device("cpu"), torch.strided


class Mode(TorchDispatchMode):
    """Records the ops of the threads that enter it."""

    def __init__(self, recorder, backing):
        super().__init__()
        self.recorder, self.backing = recorder, backing
        self.infos = {}  # by the op's id: ops live as long as the process
        self.is_meta = backing.type == "meta"

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # its wrapper costs 50 us a call

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        recorder = self.recorder
        if not recorder.is_on:
            return func(*args, **(kwargs or {}))
        info = self.infos.get(id(func))
        if info is None:
            info = self.infos[id(func)] = Info(func)
        if info.kind == VIEW:
            return func(*args, **(kwargs or {}))
        asked = None
        if kwargs:
            device = kwargs.get("device")
            if device is not None:
                asked = device.type == "cuda" or (self.is_meta and device.type == "meta")
                if asked:
                    kwargs = dict(kwargs, device=self.backing)
            if kwargs.get("pin_memory"):
                return self.make_pinned(func, args, kwargs)
        thread = recorder.thread
        tensors = operands(args, kwargs)
        known = recorder.device
        storages = [known.get(untyped(t)._cdata) if t.layout is STRIDED else None for t in tensors]
        some = any(storages)
        to_device = thread.to_device
        if not some and not asked and to_device is None:
            return func(*args, **(kwargs or {}))  # an op on the host
        with recorder.lock:
            return self.record(func, info, args, kwargs or {}, tensors, storages, some,
                               asked, to_device)

    def run(self, func, args, kwargs):
        """Runs the kernel; in it, tensors report where their bytes are."""
        thread = self.recorder.thread
        thread.is_inside = True
        try:
            return func(*args, **kwargs)
        finally:
            thread.is_inside = False

    def make_pinned(self, func, args, kwargs):
        out = func(*args, **dict(kwargs, pin_memory=False))
        return self.recorder.pin(out)

    def record(self, func, info, args, kwargs, tensors, storages, some, asked, to_device):
        recorder = self.recorder
        recorder.begin()
        if recorder.dead:
            recorder.free_dead()
        if recorder.wants_step:
            recorder.begin_step()
        site = recorder.site()
        kind = info.kind
        if kind == ITEM:
            return self.item(func, args, kwargs, tensors[0], storages[0], site)
        if kind == COPY and len(tensors) == 2 and bool(storages[0]) != bool(storages[1]):
            return self.cross(func, args, kwargs, tensors, storages, site)
        if some and asked is False and to_device is None:
            asked = None  # C++ took it from the options of a tensor; Python's wish is to_device
        if some and to_device is None and not info.mixed and not all(storages):
            self.check_mixed(info, tensors, storages, site)
        there = to_device if to_device is not None else asked if asked is not None else some
        if kind == TO and tensors and bool(storages[0]) != there:
            return self.move(func, args, kwargs, tensors[0], storages[0], there, site)
        out = self.run(func, args, kwargs)
        if not there:
            return out
        outs = [out] if isinstance(out, Tensor) else (
            [t for t in out if isinstance(t, Tensor)] if isinstance(out, (tuple, list)) else [])
        if kind == EMPTY:
            for t in outs:
                recorder.add(t, category_of(info), site)
            return out
        self.submit(func, info, args, kwargs, tensors, storages, out, outs, site)
        return out

    def submit(self, func, info, args, kwargs, tensors, storages, out, outs, site):
        """Writes an op whose kernel has run."""
        recorder = self.recorder
        known = recorder.device
        if info.writes_lists:
            written = [t for t, s in zip(tensors, storages) if s]
            dst = [s for s in storages if s]
        else:
            written = [args[i] for i in info.writes
                       if i < len(args) and isinstance(args[i], Tensor)]
            dst = [s for s in (known.get(untyped(t)._cdata) for t in written) if s]
        results, node = written, current_node()
        new = []
        for t in outs:
            if t.layout is STRIDED and untyped(t)._cdata not in known:
                new.append(t)
        if not new and not dst:
            if outs:
                return  # a view
            if not info.reads_back:
                return
        if info.fills:
            sources = [t for t in tensors if t is not args[0]]
            src = [(s.number, s.version) for t, s in zip(tensors, storages)
                   if s and t is not args[0]]
        else:
            sources = tensors
            src = [(s.number, s.version) for s in storages if s]
        if new:
            category = ("gradients" if node is not None else category_of(info))
            dst = dst + [recorder.add(t, category, site) for t in new]
            results = results + new
        key = (id(func), *[(t.shape, t.stride(), t.dtype) for t in sources], None,
               *[(t.shape, t.stride(), t.dtype) for t in results])
        entry = recorder.signatures.get(key)
        if entry is None:
            signature = Signature(info, func, args, kwargs, out, sources, results,
                                  recorder.profile)
            text = ""
            if signature.text:
                number = len(recorder.signatures) + 1
                recorder.put("signature", '"id":%d,%s' % (number, signature.text))
                text = ',"signature":%d' % number
            entry = recorder.signatures[key] = (
                text, signature.flops, signature.nbytes, signature.duration_ns)
        recorder.op(info.name, site, entry[0], entry[1], entry[2], entry[3], src, dst,
                    node)
        nbytes = info.reads_back
        if info.masks and any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:]):
            nbytes = 4  # a mask becomes a list of places, whose length the host must know
        if nbytes:
            recorder.copy(DOWNLOAD, nbytes, src[0] if src else None, None, info.name, True, True,
                          site)

    def check_mixed(self, info, tensors, storages, site):
        for t, s in zip(tensors, storages):
            if s is None and t.dim() > 0 and t.layout is STRIDED:
                if current_node() is not None:
                    self.recorder.add(t, "gradients", site)  # made by C++ in the backward
                else:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two "
                        "devices, cuda:0 and cpu! (in %s, %s)"
                        % (info.name, self.recorder.sites.texts[site]))

    # ---- over the link ----

    def item(self, func, args, kwargs, tensor, storage, site):
        recorder = self.recorder
        recorder.copy(DOWNLOAD, tensor.element_size(), (storage.number, storage.version), None,
                      recorder.thread.reason or "item", True, True, site)
        if self.is_meta:
            return False if tensor.dtype is torch.bool else 1 if tensor.dtype.is_floating_point \
                else 0
        return self.run(func, args, kwargs)

    def upload(self, source, target, storage, reason, non_blocking, site):
        recorder = self.recorder
        pinned = recorder.is_pinned(source)
        storage.version += 1
        if non_blocking and not pinned:
            reason += ": non_blocking from pageable memory"
        recorder.copy(UPLOAD, target.numel() * target.element_size(),
                      recorder.host_operand(source, False), (storage.number, storage.version),
                      reason, pinned, not non_blocking, site)

    def download(self, storage, version, target, reason, non_blocking, pinned, site):
        recorder = self.recorder
        recorder.copy(DOWNLOAD, target.numel() * target.element_size(),
                      (storage.number, version), recorder.host_operand(target, True), reason,
                      pinned, not non_blocking, site)

    def cross(self, func, args, kwargs, tensors, storages, site):
        """copy_ between host and device."""
        recorder = self.recorder
        target, source = tensors
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        if self.is_meta:
            out = target.zero_() if storages[0] is None else target
        else:
            out = self.run(func, args, kwargs)
        if storages[0]:
            self.upload(source, target, storages[0], "copy_", non_blocking, site)
        else:
            self.download(storages[1], storages[1].version, target, "copy_", non_blocking,
                          recorder.is_pinned(target), site)
        return out

    def move(self, func, args, kwargs, source, storage, there, site):
        """_to_copy between host and device."""
        recorder = self.recorder
        non_blocking = kwargs.get("non_blocking", False)
        reason = recorder.thread.reason or "to"
        if self.is_meta:
            kwargs = dict(kwargs, device=self.backing if there else CPU)
        if self.is_meta and not there:
            out = torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        else:
            out = self.run(func, args, kwargs)
        if there:
            new = recorder.add(out, category_of(None), site)
            self.upload(source, out, new, reason, non_blocking, site)
        else:
            if non_blocking:
                recorder.pin(out)  # as PyTorch allocates it
            self.download(storage, storage.version, out, reason, non_blocking, bool(non_blocking),
                          site)
        return out


def category_of(info):
    if info is not None and info.kind == RUN and grad_is_on():
        return "activations"
    return "other"
