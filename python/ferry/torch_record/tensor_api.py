"""Replaces methods of torch.Tensor and constructors whose result depends on a device, so that
tensors of the device report "cuda:0" and copies that Python asks for are seen."""

import contextlib
import functools

import torch

from .ops import aten, is_cuda

Tensor, Base = torch.Tensor, torch._C.TensorBase
CUDA = torch.device("cuda", 0)


@contextlib.contextmanager
def setting(owner, name, value):
    """The attribute has the value inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Patches:
    """Attributes that are replaced until `undo`."""

    def __init__(self):
        self.old, self.ends = [], []

    def at_end(self, function):
        self.ends.append(function)

    def set(self, owner, name, value):
        missing = object()
        self.old.append((owner, name, owner.__dict__.get(name, missing), missing))
        setattr(owner, name, value)

    def undo(self):
        for owner, name, value, missing in reversed(self.old):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self.old.clear()
        while self.ends:
            self.ends.pop()()


def patch_tensors(patches, recorder, backing):
    thread = recorder.thread
    is_meta = backing.type == "meta"
    old_device, old_is_cpu = Base.device.__get__, Base.is_cpu.__get__
    old_is_meta = Base.is_meta.__get__

    is_ours, shows_cuda = recorder.has, recorder.shows

    set_on_tensor = functools.partial(patches.set, Tensor)
    set_on_tensor("device", property(lambda t: CUDA if shows_cuda(t) else old_device(t)))
    set_on_tensor("is_cuda", property(shows_cuda))
    set_on_tensor("is_cpu", property(lambda t: not shows_cuda(t) and old_is_cpu(t)))
    set_on_tensor("is_meta", property(lambda t: old_is_meta(t) and not shows_cuda(t)))
    set_on_tensor("get_device", lambda t: 0 if shows_cuda(t) else Base.get_device(t))
    set_on_tensor("record_stream", lambda t, stream: None)
    set_on_tensor("is_pinned", lambda t, *a, **k: recorder.is_pinned(t))

    def pin_memory(t, *args, **kwargs):
        if recorder.is_pinned(t):
            return t
        if shows_cuda(t):
            raise RuntimeError("cannot pin 'torch.cuda.Tensor' only dense CPU tensors can be pinned")
        return recorder.pin(t.clone())
    set_on_tensor("pin_memory", pin_memory)

    # ---- copies ----

    def move(t, to_device, reason, **options):
        options = {name: value for name, value in options.items() if value is not None}
        with setting(recorder, "to_device", to_device), setting(thread, "reason", reason):
            made = aten._to_copy.default(t, **options)
        if made.grad_fn is not None:
            made.grad_fn.register_hook(functools.partial(move_back, not to_device))
        return made

    def move_back(to_device, grads, _):
        """The backward of a copy is one in the other direction, which C++ does not do here."""
        return tuple(g if g is None or is_ours(g) == to_device else move(g, to_device, "backward")
                     for g in grads)

    def to(t, *args, **kwargs):
        if recorder.inside:
            return Base.to(t, *args, **kwargs)
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype) + args[1:]
        elif isinstance(kwargs.get("other"), Tensor):
            other = kwargs.pop("other")
            args = (other.device, other.dtype) + args
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or is_cuda(device) == is_ours(t):
            if device is not None and device.type not in ("cuda", "cpu"):
                return Base.to(t, *args, **kwargs)
            if not copy and dtype in (None, t.dtype) and memory_format is None:
                return t
            more = {"memory_format": memory_format} if memory_format is not None else {}
            return Base.to(t, dtype=dtype or t.dtype, copy=copy, **more)
        return move(t, device.type == "cuda", "to(%s)" % device.type, dtype=dtype,
                    non_blocking=non_blocking, memory_format=memory_format)
    set_on_tensor("to", to)
    set_on_tensor("cuda", lambda t, device=None, non_blocking=False, **k:
                  to(t, CUDA if device is None else device, non_blocking=non_blocking, **k))
    set_on_tensor("cpu", lambda t, **k: move(t, False, "cpu()") if is_ours(t) else t)

    def new_on(name):
        """new_zeros and its like: on the device of the tensor, or on the one asked for."""
        old = getattr(Base, name)

        def method(t, *args, device=None, **kwargs):
            # a mode of PyTorch, as that of a default device, calls this method again
            if recorder.inside or recorder.to_device is not None:
                return old(t, *args, device=device, **kwargs)
            want = is_ours(t) if device is None else is_cuda(torch.device(device))
            with setting(recorder, "to_device", want):
                return old(t, *args, device=backing if want else "cpu", **kwargs)
        set_on_tensor(name, method)
    for name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"):
        new_on(name)

    def new_tensor(t, data, *, dtype=None, device=None, **kwargs):
        if recorder.inside:
            return Base.new_tensor(t, data, dtype=dtype, device=device, **kwargs)
        return torch.tensor(data, dtype=dtype or t.dtype,
                            device=t.device if device is None else device, **kwargs)
    set_on_tensor("new_tensor", new_tensor)

    def like_on(name):
        """zeros_like and its like, which name the other device."""
        old = getattr(torch, name)

        def function(t, *args, device=None, **kwargs):
            if recorder.inside:
                return old(t, *args, device=device, **kwargs)
            want = is_ours(t) if device is None else is_cuda(torch.device(device))
            if device is None or want == is_ours(t):
                return old(t, *args, **kwargs)
            with setting(recorder, "to_device", want):
                return old(t, *args, device=backing if want else "cpu", **kwargs)
        patches.set(torch, name, function)
    for name in ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"):
        like_on(name)

    def default_device():
        """PyTorch's asks torch.tensor for the index of the device: it is 0 here."""
        modes = torch.overrides._get_current_function_mode_stack()
        contexts = [getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),
                    *(m for m in modes if isinstance(m, torch.utils._device.DeviceContext))]
        device = contexts[-1].device if contexts[-1] else torch.device("cpu")
        return CUDA if is_cuda(device) else device
    patches.set(torch, "get_default_device", default_device)

    def lifted(name):
        """torch.tensor(..., device="cuda"): made on the host, then copied."""
        old = getattr(torch, name)

        def function(*args, device=None, **kwargs):
            if recorder.inside:
                return old(*args, **kwargs, **({} if device is None else {"device": device}))
            want = default_device() if device is None else torch.device(device)
            if not is_cuda(want):
                return old(*args, **kwargs, **({} if device is None else {"device": device}))
            grad = kwargs.pop("requires_grad", False)
            source = args[0] if args else None
            if isinstance(source, Tensor) and is_ours(source):
                made = old(*args, **kwargs) if name != "tensor" else source.detach().clone()
            else:
                made = to(old(*args, device="cpu", **kwargs), CUDA)
            return made.requires_grad_() if grad else made
        patches.set(torch, name, function)
    for name in ("tensor", "as_tensor", "asarray"):
        lifted(name)

    # ---- reads ----

    def reader(name):
        old = getattr(Base, name)

        def method(t, *args):
            if not is_ours(t):
                return old(t, *args)
            with setting(thread, "reason", thread.reason or name):
                return old(t, *args)
        set_on_tensor(name, method)
    for name in ("item", "__bool__", "__float__", "__int__", "__index__"):
        reader(name)
    set_on_tensor("tolist", lambda t: Base.tolist(move(t, False, "tolist") if is_ours(t) else t))

    def numpy(t, *args, **kwargs):
        if is_ours(t):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() "
                            "to copy the tensor to host memory first.")
        return Base.numpy(t, *args, **kwargs)
    set_on_tensor("numpy", numpy)

    old_copy = Tensor.__deepcopy__

    def deepcopy(t, memo):
        made = old_copy(t, memo)
        if is_ours(t) and not is_ours(made):
            recorder.adopt(made, t, "clone")
        return made
    set_on_tensor("__deepcopy__", deepcopy)

    old_text = torch._tensor_str._str

    def text(t, **kwargs):
        """PyTorch prints with all modes off, so the read is recorded here."""
        if is_ours(t) and recorder.is_on:
            copy = move(t.detach(), False, "print")
            t = copy if is_meta else t
        return old_text(t, **kwargs)
    patches.set(torch._tensor_str, "_str", text)
