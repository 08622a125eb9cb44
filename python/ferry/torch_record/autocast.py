"""torch.autocast("cuda") by the CPU's autocast, with the ops of CUDA's lists that the CPU's lack."""

import torch

Tensor = torch.Tensor
aten = torch.ops.aten
# The lists of PyTorch 2.15's documentation, "CUDA Ops that can autocast", but for those that the
# CPU's autocast treats in the same way.
TO_F32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow
    softplus layer_norm native_layer_norm group_norm norm cosine_similarity dist renorm logsumexp
    softmax log_softmax prod cumprod cumsum linalg_vector_norm linalg_matrix_norm sum"""
TO_HALF = "prelu addmv addr mv"
HALVES = (torch.float16, torch.bfloat16)


def make_kernel(recorder, op, to_half):
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def cast(value):
        if not isinstance(value, Tensor) or not recorder.has(value):
            return value
        if to_half and value.dtype is torch.float32:
            return value.to(torch.get_autocast_dtype("cpu"))
        return value.float() if not to_half and value.dtype in HALVES else value

    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(below):
            if kwargs.get("dtype") is None:
                args = [cast(value) for value in args]
            return op(*args, **kwargs)
    return kernel


def patch_autocast(patches, recorder):
    library = torch.library.Library("aten", "IMPL")
    patches.at_end(library._destroy)
    for names, to_half in ((TO_F32, False), (TO_HALF, True)):
        for name in names.split():
            packet = getattr(aten, name)
            for overload in packet.overloads():
                if "out" in overload or "dimname" in overload:
                    continue
                op = getattr(packet, overload)
                library.impl(op, make_kernel(recorder, op, to_half), "AutocastCPU")
    old_init = torch.autocast.__init__

    def init(self, device_type, dtype=None, *args, **kwargs):
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        old_init(self, device_type, dtype, *args, **kwargs)
    patches.set(torch.autocast, "__init__", init)

    def of_cpu(name):
        """What scripts ask of CUDA's autocast is the state of the CPU's."""
        old = getattr(torch, name)
        patches.set(torch, name, lambda kind="cpu", *args: old(
            "cpu" if kind == "cuda" else kind, *args))
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        of_cpu(name)
    patches.set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cpu"))
