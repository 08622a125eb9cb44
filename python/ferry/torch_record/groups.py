"""Groups of the CPU's ops that CUDA runs as one op: attention and recurrent layers. The CPU's ops
compute the values, forward and backward; the recording has one op each, with what CUDA keeps for
the backward."""

import math

import torch
import torch.nn.functional as functional

from .ops import Group
from .tensor_api import setting

Tensor = torch.Tensor
HALVES = (torch.float16, torch.bfloat16)


class Plan:
    """A group's forward and backward: names, flops, and the forms of what it keeps."""

    def __init__(self, name, flops, backward_flops, on_device=None):
        self.on_device = on_device  # how many of the results; None: all
        self.forward = Group(name, lambda *args, **kwargs: flops)
        self.backward = Group(name + "_backward", lambda *args, **kwargs: backward_flops)


def listed(out):
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def make_empty(forms, device):
    return tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in forms)


class Grouped(torch.autograd.Function):
    """Runs `function(*tensors)` as one op; `kept`: shapes and dtypes of what CUDA keeps for the
    backward. Its own graph of the CPU's ops makes the gradients."""

    @staticmethod
    def forward(ctx, recorder, plan, function, kept, *tensors):
        inner = [t.detach().requires_grad_(needs)
                 for t, needs in zip(tensors, ctx.needs_input_grad[4:])]
        with torch.enable_grad():
            out = listed(recorder.run_silent(function, tuple(inner)))
        results = tuple(t.detach() for t in out)
        # nothing writes their bytes, so the host's system gives them no memory
        ctx.kept = recorder.run_silent(make_empty, (kept, recorder.backing))
        ctx.recorder, ctx.plan, ctx.inner, ctx.out = recorder, plan, inner, out
        ctx.set_materialize_grads(False)
        write(recorder, plan.forward, tensors, results[:plan.on_device] + ctx.kept, None)
        return results if len(results) > 1 else results[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        pairs = [(t, g) for t, g in zip(ctx.out, grads) if g is not None and t.requires_grad]
        wanted = [t for t in ctx.inner if t.requires_grad]
        node = torch._C._current_autograd_node()

        def run():
            return torch.autograd.grad([t for t, _ in pairs], wanted, [g for _, g in pairs],
                                       retain_graph=True, allow_unused=True)
        found = list(ctx.recorder.run_silent(run, ()))
        sources = tuple(g for _, g in pairs) + tuple(ctx.inner) + \
            tuple(ctx.out[:ctx.plan.on_device]) + ctx.kept
        write(ctx.recorder, ctx.plan.backward, sources, tuple(g for g in found if g is not None),
              node)
        return (None, None, None, None,
                *[found.pop(0) if t.requires_grad else None for t in ctx.inner])


class ScaledDotProductAttention(Grouped):
    """Its node in the backward has this name."""


class CudnnRnn(Grouped):
    """The same for recurrent layers."""


class PackedSequence(Grouped):
    """The same for sequences that are packed or padded."""


def write(recorder, group, sources, results, node):
    with setting(recorder, "category", "gradients" if node else "activations"), recorder:
        if recorder.wants_step:
            recorder.begin_step()
        recorder.record(group, sources, None, results, node)


def run(kind, recorder, plan, function, kept, tensors):
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return kind.apply(recorder, plan, function, kept, *tensors)
    out = recorder.run_silent(function, tensors)
    write(recorder, plan.forward, tensors, listed(out)[:plan.on_device], None)
    return out


def patch_attention(patches, recorder):
    old, plans = functional.scaled_dot_product_attention, {}

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *,
                  scale=None, enable_gqa=False):
        options = dict(dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                       enable_gqa=enable_gqa)
        if torch.is_autocast_enabled("cpu") and query.dtype is torch.float32:
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (t.to(dtype) for t in (query, key, value))
        is_half = query.dtype in HALVES
        by_math = (query.dim() != 4 or not (is_half or query.dtype is torch.float32)
                   or (enable_gqa and not is_half)
                   or (attn_mask is not None and attn_mask.requires_grad))
        if by_math or not (recorder.is_on and recorder.has(query)):
            return old(query, key, value, attn_mask, **options)
        is_flash = is_half and attn_mask is None
        n, heads, length, width = query.shape
        products = 2 * n * heads * length * key.shape[-2]
        flops = products * (width + value.shape[-1])
        case = is_flash, products, width, value.shape[-1]
        plan = plans.get(case)
        if plan is None:
            name = "flash" if is_flash else "efficient"
            # five products in the backward: the scores again, and the gradients of four operands
            plan = plans[case] = Plan("_scaled_dot_product_%s_attention" % name, flops,
                                      products * (3 * width + 2 * value.shape[-1]))
        rows = length if is_flash else math.ceil(length / 32) * 32
        kept = [((n, heads, rows), torch.float32), ((2,), torch.int64)]
        masks = () if attn_mask is None else (attn_mask,)

        def function(q, k, v, *mask):
            with torch.autocast("cpu", enabled=False):
                return old(q, k, v, *mask, **options)
        return run(ScaledDotProductAttention, recorder, plan, function, kept,
                   (query, key, value, *masks))
    patches.set(functional, "scaled_dot_product_attention", attention)


def patch_rnns(patches, recorder):
    plans = {}

    def wrap(old, gates):
        def layer(data, *rest):
            # (data, state, weights, ...), or of a packed sequence (data, sizes, state, weights, ...)
            sizes, rest = ((), rest) if isinstance(rest[1], list) else (rest[:1], rest[1:])
            if not (recorder.is_on and recorder.has(data)):
                return old(data, *sizes, *rest)
            state, weights, options = rest[0], rest[1], rest[2:]
            states = listed(state)
            _, layers, _, _, bidirectional = options[:5]
            directions, hidden = 1 + bidirectional, weights[1].shape[0] // gates
            rows = data.numel() // data.shape[-1]
            products = sum(w.numel() for w in weights if w.dim() == 2)
            case = gates, rows, products, hidden
            plan = plans.get(case)
            if plan is None:
                plan = plans[case] = Plan("_cudnn_rnn", 2 * rows * products, 4 * rows * products)
            kept = [((layers * directions * rows * hidden * (gates + 1),), data.dtype)]

            def function(x, *inner):
                held = inner[:len(states)]
                return old(x, *sizes, held[0] if isinstance(state, Tensor) else held,
                           list(inner[len(states):]), *options)
            return run(CudnnRnn, recorder, plan, function, kept, (data, *states, *weights))
        return layer
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        patches.set(torch._VF, name, wrap(getattr(torch._VF, name), gates))


def patch_packing(patches, recorder):
    """C++ makes some of their tensors where the bytes are, so its copies would cross the link."""
    def wrap(name):
        old, plan = getattr(torch._VF, name), Plan(name, 0, 0, on_device=1)

        def pack(data, *rest):
            if not (recorder.is_on and recorder.has(data)):
                return old(data, *rest)
            return run(PackedSequence, recorder, plan, lambda t: old(t, *rest), [], (data,))
        patches.set(torch._VF, name, pack)
    wrap("_pack_padded_sequence")
    wrap("_pad_packed_sequence")


def patch_groups(patches, recorder):
    patch_attention(patches, recorder)
    patch_rnns(patches, recorder)
    patch_packing(patches, recorder)
