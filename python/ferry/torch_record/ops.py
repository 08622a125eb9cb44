"""Facts about PyTorch's ops: which are views, what they write, which make the host wait on CUDA."""

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

VIEW, EMPTY, ITEM, COPY, TO, RUN, COMPOSITE = range(7)
COMPUTE, UPLOAD, DOWNLOAD = range(3)  # engines

# Ops that read results back to the host on CUDA: the bytes, to know the size of their result.
READS_BACK = {
    aten.nonzero.default: 4, aten.masked_select.default: 4, aten._unique2.default: 4,
    aten.unique_dim.default: 4, aten.unique_consecutive.default: 4, aten.equal.default: 1,
    aten.repeat_interleave.Tensor: 8, aten.bincount.default: 8, aten.allclose.default: 1,
}
# Ops whose tensor arguments may be on the host although another one is on the device.
MIXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default,
         aten._index_put_impl_.default, aten.set_.source_Storage,
         aten.set_.source_Storage_storage_offset}
EMPTIES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
           "empty_permuted"}
# Written without being read.
FILLS = {"fill_", "zero_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
         "log_normal_", "cauchy_", "geometric_", "randperm"}
# Names that CUDA gives to the same op.
CUDA_NAMES = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward":
        "_scaled_dot_product_flash_attention_backward",
    "mkldnn_rnn_layer": "_cudnn_rnn", "mkldnn_rnn_layer_backward": "_cudnn_rnn_backward",
}
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16",
          torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
          torch.bool: "bool", torch.int8: "i8", torch.int16: "i16"}


def is_cuda(device):
    """There is one device."""
    if device.type == "cuda" and device.index:
        raise RuntimeError("CUDA error: invalid device ordinal: %s, and there is one" % device)
    return device.type == "cuda"


class Group:
    """Several ops that CUDA has as one, or an op that C++ runs unseen: the `func` of its Info."""

    def __init__(self, name, count_flops=None):
        self.name, self.count_flops = name, count_flops


class Info:
    """What is known of an op before it runs."""

    def __init__(self, func):
        self.fills = self.mixed = self.masks = False
        self.writes, self.written_names, self.reads_back, self.kind = (), (), 0, RUN
        self.call = getattr(func, "_op", None)
        if isinstance(func, Group):
            self.name, self.flops = func.name, func.count_flops
            return
        schema = func._schema
        name = schema.name.split("::")[1]
        self.name = CUDA_NAMES.get(name, name)
        written = [(i, a) for i, a in enumerate(schema.arguments)
                   if a.alias_info and a.alias_info.is_write]
        self.writes = tuple(i for i, a in written if not a.kwarg_only)
        self.written_names = tuple(a.name for _, a in written if a.kwarg_only)
        self.fills = name in FILLS
        self.flops = flop_registry.get(func._overloadpacket)
        self.mixed = func in MIXED
        self.reads_back = READS_BACK.get(func, 0)
        self.masks = func in (aten.index.Tensor, aten.index_put_.default)
        returns = schema.returns
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            self.kind = COMPOSITE
        elif func is aten._local_scalar_dense.default:
            self.kind = ITEM
        elif func is aten.copy_.default:
            self.kind = COPY
        elif name in ("_to_copy", "lift_fresh", "lift_fresh_copy"):
            self.kind = TO
        elif name in EMPTIES:
            self.kind = EMPTY
        elif returns and not schema.is_mutable and all(r.alias_info for r in returns):
            self.kind = VIEW

    def facts(self):
        """For Core (struct op_info)."""
        return (self, self.call, self.name, self.kind, self.writes, self.written_names, self.fills,
                self.mixed, self.masks, self.reads_back)


def list_of(values):
    return "[" + ",".join(map(str, values)) + "]"


def touched(tensor):
    """Bytes of a tensor that an op has to read or write: an expanded axis is one element."""
    count = tensor.numel()
    if count > 1 and 0 in tensor.stride():
        count = 1
        for dim, stride in zip(tensor.shape, tensor.stride()):
            count *= dim if stride else 1
    return count * tensor.element_size()


class Signature:
    """Operands of one form: the text of its line, flops, bytes and model time."""

    __slots__ = ("flops", "nbytes", "duration_ns", "dtype", "text")

    def __init__(self, info, func, args, kwargs, out, sources, results, profile):
        tensors = sources + results
        self.nbytes = sum(touched(t) for t in tensors)
        self.flops = sum(t.numel() for t in results)
        if info.flops:
            try:
                self.flops = int(info.flops(*args, **kwargs, out_val=out))
            except Exception:  # a form that the counter does not know: one flop an element
                pass
        self.dtype = DTYPES.get(tensors[0].dtype, "f32") if tensors else "f32"
        self.duration_ns = profile.op_ns(self.flops, self.nbytes, self.dtype)
        self.text = None
        if len(tensors) <= 16:
            dense = all(t.is_contiguous() for t in tensors)
            self.text = '"name":"%s","sources":%d,"dtypes":"%s","shapes":[%s]%s' % (
                info.name, len(sources),
                " ".join(DTYPES.get(t.dtype, str(t.dtype)[6:]) for t in tensors),
                ",".join(list_of(t.shape) for t in tensors),
                "" if dense else ',"strides":[%s]' % ",".join(
                    "[]" if t.is_contiguous() else list_of(t.stride()) for t in tensors))
