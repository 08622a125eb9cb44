"""Replaces what scripts of PyTorch use around tensors: scopes, optimizers, modules, GradScaler,
torch.compile, saved files; and dropout, which CUDA has in another form."""

import functools

import torch
import torch.nn.utils.clip_grad as clip_grad
import torch.optim.optimizer as optimizers
import torch.optim.swa_utils as swa_utils
import torch.utils._foreach_utils as foreach

from .ops import DOWNLOAD, UPLOAD
from .tensor_api import CUDA, setting


def patch_scripts(patches, recorder):
    thread, is_ours = recorder.thread, recorder.has

    # ---- scopes ----
    record_function = torch.autograd.profiler.record_function
    old_enter, old_exit = record_function.__enter__, record_function.__exit__

    def enter(self):
        recorder.enter(self.name)
        return old_enter(self)

    def leave(self, *exc):
        recorder.leave()
        if thread.updated is not None:
            optimizer, thread.updated = thread.updated, None
            recorder.end_step(optimizer)
        return old_exit(self, *exc)
    patches.set(record_function, "__enter__", enter)
    patches.set(record_function, "__exit__", leave)
    old_backward = torch.autograd.backward

    @functools.wraps(old_backward)
    def backward(*args, **kwargs):
        if recorder.wants_step:
            recorder.begin_step()
        recorder.enter("backward")
        try:
            return old_backward(*args, **kwargs)
        finally:
            recorder.leave()
    patches.set(torch.autograd, "backward", backward)

    # ---- optimizers, modules ----
    def after_step(optimizer, args, kwargs):
        thread.updated = optimizer  # the step's scope ends next
    hook = optimizers.register_optimizer_step_post_hook(after_step)
    old_groups = foreach._group_tensors_by_device_and_dtype

    def groups(lists, with_indices=False):
        """C++ groups by its own devices."""
        return {(CUDA if any(t is not None and is_ours(t) for t in value[0][0]) else key[0],
                 key[1]): value for key, value in old_groups(lists, with_indices).items()}
    for module in (foreach, clip_grad, optimizers, swa_utils):
        patches.set(module, "_group_tensors_by_device_and_dtype", groups)
    old_apply = torch.nn.Module._apply

    def apply(self, *args, **kwargs):
        with setting(recorder, "category", "weights"):
            return old_apply(self, *args, **kwargs)
    patches.set(torch.nn.Module, "_apply", apply)
    patches.set(torch.nn.Module, "compile", lambda self, *args, **kwargs: None)

    def compile(model=None, **kwargs):
        return model if model is not None else lambda function: function
    patches.set(torch, "compile", compile)

    # ---- the scaler of losses ----
    scaler = torch.amp.GradScaler
    for name in ("_maybe_opt_step", "update"):
        def method(self, *args, _old=getattr(scaler, name), **kwargs):
            with setting(thread, "reason", "GradScaler"):
                return _old(self, *args, **kwargs)
        patches.set(scaler, name, method)

    # ---- ops that CUDA has in another form ----
    functional = torch.nn.functional
    old_dropout = functional.dropout

    def dropout(input, p=0.5, training=True, inplace=False):
        if inplace or not training or not is_ours(input):
            return old_dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]
    patches.set(functional, "dropout", dropout)

    # ---- files ----
    def saved(storage):
        inner = storage if isinstance(storage, torch.UntypedStorage) else storage._untyped_storage
        ours = recorder.find_storage(inner)
        if ours is None:
            return None
        with recorder:
            recorder.copy(DOWNLOAD, inner.nbytes(), (ours.number, ours.version), None,
                          "torch.save", False, True, recorder.site())
        return "cuda:0"

    def restored(storage, location):
        if not location.startswith("cuda") or not recorder.is_on:
            return None
        t = torch.empty(0, dtype=torch.uint8).set_(storage)
        with recorder:
            site = recorder.site()
            ours = recorder.add(t, "other", site)
            ours.version += 1
            recorder.copy(UPLOAD, storage.nbytes(), None, (ours.number, ours.version),
                          "torch.load", False, True, site)
        return storage
    torch.serialization.register_package(1, saved, restored)
    return hook
