#!/usr/bin/env python3
"""Time of single ops on the host beside PyTorch, in one process, on two threads each.

In each of the interleaved rounds a case runs three times on each side. Columns: the medians of both
sides in microseconds, and of the rounds' ratios of time and of CPU time, which other programs change
less (PyTorch's over Ferry's: larger is better for Ferry). f32 of 2048 x 2048, unless a name says
more; images are channels last. glibc keeps freed memory: no side pays page faults.

Usage: FERRY_LIBRARY=build/release PYTHONPATH=build/release/python PYTHON bench/host_ops_torch.py.
Not here: products, images, attention (peers_torch.py), a card (gpu_torch.py), small ops (python_ops.py).
"""

import argparse
import ctypes
import os
import statistics
import time

# Operands in Ferry's shapes; the ops whose call is the same on both sides.
SHAPES = "x y h k p total 2048 2048|row 2048|w 256|v 1024|a b 4096 1024|image 16 32 32 256|logits 1024 50257"
SAME = """exp tanh sigmoid silu relu erf sin cos expm1 neg abs floor round softplus elu leaky_relu log log1p sqrt rsqrt gelu"""
CASES = """
gelu_tanh | call("gelu_tanh", x) | F.gelu(x, approximate="tanh")
gelu_backward | call("gelu_backward", y, x) | aten.gelu_backward(y, x)
add | call("add", x, y) | x + y
add row | call("add", x, row) | x + row
add bf16 | call("add", h, k) | h + k
mul bf16 | call("mul", h, k) | h * k
cast to bf16 | ferry.cast(x, "bf16") | x.bfloat16()
lt | call("lt", x, y) | x < y
where | call("where", mask, x, y) | torch.where(mask, x, y)
dropout | ferry.dropout(rng, x, 0.5) | F.dropout(x, 0.5)
randn | ferry.randn(rng, "f32", (2048, 2048), 0, 1) | torch.randn_like(x)
sum rows | call("sum", x, axes=(1,)) | x.sum(1)
sum columns | call("sum", x, axes=(0,)) | x.sum(0)
max rows | call("max", x, axes=(1,)) | x.amax(1)
argmax rows | call("argmax", x) | torch.argmax(x, 1)
norm | call("norm", x) | torch.linalg.vector_norm(x)
var rows | ferry.var(x, axes=(1,)) | torch.var(x, 1)
cumsum rows | call("cumsum", x) | torch.cumsum(x, 1)
cumsum columns | call("cumsum", x, axis=0) | torch.cumsum(x, 0)
topk | call("topk", x, k=10) | torch.topk(x, 10)
flip | call("flip", x, axes=(0, 1)) | torch.flip(x, [0, 1])
concat | call("concat", x, y, axis=1) | torch.cat([x, y], 1)
pad | ferry.pad(x, (1, 1), (1, 1)) | F.pad(x, (1, 1, 1, 1))
transpose copy | ferry.copy(total, x.transpose(1, 0)) | total.copy_(x.T)
take_along_axis | call("take_along_axis", x, index) | torch.gather(x, 1, index)
embedding | call("gather", x, ids) | F.embedding(ids, x)
embedding backward | ferry.gather_backward(y, ids, 2048) | aten.embedding_dense_backward(y, ids, 2048, -1, False)
index_add | call("index_add", y, ids, dst=[total]) | total.index_add_(0, ids, y)
softmax | call("softmax", a) | torch.softmax(a, 1)
softmax_backward | call("softmax_backward", b, s) | aten._softmax_backward_data(b, s, 1, a.dtype)
log_softmax | call("log_softmax", a) | torch.log_softmax(a, 1)
log_softmax_backward | call("log_softmax_backward", b, ls) | aten._log_softmax_backward_data(b, ls, 1, a.dtype)
layer_norm | ferry.layer_norm(a, v, v) | torch.native_layer_norm(a, [1024], v, v, 1e-5)
layer_norm_backward | ferry.layer_norm_backward(b, a, mean.reshape(4096), rstd.reshape(4096), v) | aten.native_layer_norm_backward(b, a, [1024], mean, rstd, v, v, [True] * 3)
rms_norm | call("rms_norm", a, v) | F.rms_norm(a, [1024], v)
group_norm | ferry.group_norm(image, 32, w, w) | F.group_norm(image, 32, w, w)
cross_entropy | ferry.cross_entropy(logits, labels) | F.cross_entropy(logits, labels)
"""


def cases(ferry, torch):
    """Name, a call of Ferry and one of PyTorch."""
    theirs = {}
    for line in SHAPES.split("|"):
        shape = [int(word) for word in line.split() if word.isdigit()]
        theirs.update((name, torch.randn(shape)) for name in line.split() if not name.isdigit())
    x, a = theirs["x"], theirs["a"]
    theirs.update(p=x.abs() + 0.5, mask=x > 0, s=a.softmax(1), ls=a.log_softmax(1))
    theirs.update(mean=a.mean(1, True), rstd=1 / a.std(1, keepdim=True))
    theirs.update(index=torch.randint(2048, x.shape))
    theirs.update(ids=theirs["index"][0].clone(), labels=theirs["index"][0, :1024].clone())
    ours = {name: ferry.from_buffer(value.numpy().copy()) for name, value in theirs.items()}
    for name in "hk":
        ours[name], theirs[name] = ferry.cast(ours[name], "bf16"), theirs[name].bfloat16()
    theirs["image"] = theirs["image"].permute(0, 3, 1, 2)
    theirs.update(torch=torch, F=torch.nn.functional, aten=torch.ops.aten)
    ours.update(ferry=ferry, call=ferry.call, rng=ferry.rng_create("host", 1))
    lines = CASES.strip().splitlines()
    for n in SAME.split():
        lines.append(f'{n} | call("{n}", p) | {"torch" if hasattr(torch, n) else "F"}.{n}(p)')
    for line in lines:
        name, our, their = line.split(" | ")
        yield name, eval("lambda: " + our, ours), eval("lambda: " + their, theirs)


def timed(op):
    op()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(3):
        op()
    return (time.perf_counter_ns() - wall) / 3000, (time.process_time_ns() - cpu) / 3000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has it")
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    args = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive")  # read when libgomp loads
    ctypes.CDLL(None).mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD, the most that glibc takes
    ctypes.CDLL(None).mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
    import ferry
    import torch
    torch.set_num_threads(2)
    print(f"PyTorch {torch.__version__}, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| op | Ferry us | PyTorch us | ratio | of CPU time |\n|---|---:|---:|---:|---:|")
    for name, *ops in cases(ferry, torch):
        if args.only in name:
            rounds = [[timed(op) for op in ops] for _ in range(args.rounds)]
            us = [statistics.median(r[side][0] for r in rounds) for side in range(2)]
            ratios = [statistics.median(r[1][k] / r[0][k] for r in rounds) for k in range(2)]
            print("| %s | %.0f | %.0f | %.2f | %.2f |" % (name, *us, *ratios), flush=True)


if __name__ == "__main__":
    main()
