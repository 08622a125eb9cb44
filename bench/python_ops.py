"""CPU time of small ops on f32[4] from Python, beside PyTorch in the same run, interleaved:
`python3 bench/python_ops.py [PART OF A NAME]...` where both packages can be imported. Prints a row
for each op: Ferry's median and quartiles, PyTorch's median, and the ratio of the medians."""

import statistics
import sys
import time

import numpy
import torch

import ferry

ROUNDS, CALLS = 31, 2000
torch.set_num_threads(1)

# Expressions of Ferry, one a line; those of PyTorch behind a bar, where they differ.
CASES = """a + b; a * 2; a == b; m @ m; f.relu(a); f.maximum(a, b); f.clamp(a, 0, 1)
f.where(a > b, a, b); f.softmax(a, -1); f.log_softmax(a, -1); f.sum(a); f.sum(m, 0); f.mean(a)
f.max(a); f.max(m, 1) | f.amax(m, 1); f.argmax(m, 1); f.any(a > b); f.var(m, 0); f.cumsum(a, 0)
f.cast(a, "f64") | a.to(f.float64); f.concat([a, b], 0); f.stack([a, b], 0); f.topk(a, 2)
f.gather(m, i) | m[i]; f.conv2d(x, w) | nn.conv2d(x, w)
f.conv2d(x, w, padding_h=1, padding_w=1) | nn.conv2d(x, w, padding=1)
f.layer_norm(m, a, a) | nn.layer_norm(m, (4,), a, a); f.linear(m, m, a) | nn.linear(m, m, a)
f.call("clamp", a, low=0.0) | f.ops.aten.clamp(a, 0.0)
f.fill(a, 1.0) | a.fill_(1.0); f.copy(a, b) | a.copy_(b); f.axpy(a, 0.5, b) | a.add_(b, alpha=0.5)
f.empty(4); f.zeros(4); f.zeros((2, 2)); f.ones(4); f.full((4,), 2.0); f.arange(4); f.tensor(1.0)
f.tensor([1.0, 2.0]); f.tensor([[1.0] * 32] * 32); f.tensor(a) | a.clone(); f.tensor(a.numpy())
a[1]; a[1:3]; a[::2]; a[None]; m[1, 1:3]; m[..., 0]; m[:, None, 1]; list(m)
a.reshape(2, 2); a.reshape((2, -1)); m.T; m.transpose(1, 0); a.broadcast_to(3, 4)
a[None].squeeze(0); a.unsqueeze(0); m.split(2); one.item(); float(one); int(one); bool(one)
a.tolist(); big.tolist(); a.numpy(); f.from_numpy(n); f.from_dlpack(n); a.__dlpack__(); repr(a)
a.shape; a.strides | a.stride(); a.dtype; a.device; a.ndim; a.size | a.numel(); a.nbytes
a.is_host | a.is_cpu; len(a)"""


def operands(f, weights):
    values = {"f": f, "nn": torch.nn.functional, "a": f.full((4,), 1.0), "b": f.full((4,), 2.0)}
    values |= {"m": f.ones((4, 4)), "one": f.ones(1), "i": f.tensor([0, 1]), "big": f.ones(1000)}
    return values | {"x": f.ones((1, 4, 4, 4)), "w": f.ones(weights), "n": numpy.ones(4, "f4")}


def nanoseconds(code, values):
    begin = time.process_time_ns()
    exec(code, values)
    return (time.process_time_ns() - begin) / CALLS


def compiled(expression):
    return compile(f"for _ in range({CALLS}): {expression}", expression, "exec")


def main(parts):
    spaces = operands(ferry, (4, 3, 3, 4)), operands(torch, (4, 4, 3, 3))
    print("PyTorch", torch.__version__, "ns: Ferry [quartiles], PyTorch, ratio")
    for name in (case.strip() for case in CASES.replace("\n", ";").split(";")):
        if parts and not any(part in name for part in parts):
            continue
        codes = [compiled(text) for text in (name.split(" | ") * 2)[:2]]
        times = [], []
        for _ in range(ROUNDS):
            for found, code, values in zip(times, codes, spaces):
                found.append(nanoseconds(code, values))
        low, median, high = statistics.quantiles(times[0], n=4)
        theirs = statistics.median(times[1])
        print("| `%s` | %.0f [%.0f, %.0f] | %.0f | %.2f |" % (
            name.split(" | ")[0], median, low, high, theirs, median / theirs), flush=True)


main(sys.argv[1:])
