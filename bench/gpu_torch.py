#!/usr/bin/env python3
"""Ferry beside PyTorch and beside the bare driver on one card, in one run: `ferry` or its programs, the same work in torch, and
cuda_probe (bare driver calls) take turns; figures are medians of rounds.

Usage: gpu_torch.py [--kernels KERNELS] [--probe CUDA_PROBE] [--seconds N] FERRY DEVICE [ROUNDS]      scripts/gpu-check.sh calls it
Prints a JSON document a line, each as soon as it is known: kernels of bench/kernels.c, steps of resnet18, mobilenet_v3_large, gpt (bf16)
and mnist, called and replayed, host time of an op, copies, the allocator. --kernels, --probe: those programs of bench/; without one its
figures are left out. --seconds: nothing begins after N seconds.
Bars are against the bare call of the same run where there is one. A bar against torch that lies below the bare call cannot be reached: its
verdict says so. Exit 77 with the reason on standard error where there is no torch or no card: then nothing was compared.
The product needs no Python. Not here: the same comparison on the host (peers_torch.py); the models (tests/unit/train/models_reference.py,
beside this file where it was staged).
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import time


def skip(why):
    print(f"gpu_torch: {why}", file=sys.stderr)
    sys.exit(77)


parser = argparse.ArgumentParser(
    usage="gpu_torch.py [--kernels KERNELS] [--probe CUDA_PROBE] [--seconds N] FERRY DEVICE [ROUNDS]",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
)
parser.add_argument("--kernels")
parser.add_argument("--probe")
parser.add_argument("--seconds", type=float, default=1e9)
parser.add_argument("ferry")
parser.add_argument("device")
parser.add_argument("rounds", nargs="?", type=int, default=3)
OPTIONS = parser.parse_args()

try:
    import torch
    from torch import nn
except ImportError as error:
    skip(f"no PyTorch here: {error}")
if not torch.cuda.is_available():
    skip("PyTorch sees no CUDA device")
if not OPTIONS.device.startswith("cuda:"):
    skip(f"{OPTIONS.device} is no CUDA device")
F = nn.functional
card = torch.device(OPTIONS.device.split("?")[0])
torch.cuda.set_device(card)
torch.backends.cuda.matmul.allow_tf32 = False  # Ferry's f32 is f32
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
BEGAN = time.monotonic()
failures = 0


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def ferry(*arguments):
    return run(OPTIONS.ferry, *arguments, "--device", OPTIONS.device, "--json")


def now():
    return time.perf_counter_ns()


def say(**document):
    print(json.dumps(document), flush=True)


def fail(what, error):
    global failures
    failures += 1
    say(what=what, failure=f"{type(error).__name__}: {str(error)[:300]}")


def time_of(call, repeats=20):
    """ns of a call; fewer repeats if they take more than 0.2 s."""
    call()
    torch.cuda.synchronize()
    begin = now()
    call()
    torch.cuda.synchronize()
    repeats = max(1, min(repeats, int(2e8 / (now() - begin))))
    begin = now()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (now() - begin) / repeats


def medians(*sides):
    """Of rounds in which each side runs once and returns figures by name: a dictionary a side."""
    found = [{} for _ in sides]
    for done in range(OPTIONS.rounds):
        if done and time.monotonic() - BEGAN > OPTIONS.seconds:
            break
        for side, figures in zip(sides, found):
            try:
                for key, value in side().items():
                    figures.setdefault(key, []).append(value)
            except (OSError, RuntimeError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
                fail(side.__name__, error)
    return [{key: statistics.median(values) for key, values in each.items()} for each in found]


def add(what, mine, against, other, limit=None, floor=None):
    """`limit`: Ferry's time is at most so many times the other's. `floor`: what the bare driver calls of the same work take, which no
    library goes below."""
    if mine is None:
        return
    ratio = mine / other if other else None
    verdict = None
    if ratio is not None and limit is not None:
        below = floor is not None and limit * other < floor
        verdict = "reached" if ratio <= limit else "below the bare calls" if below else "missed"
    say(what=what, ferry=mine, peer=against, peer_value=other, ratio=ratio, limit=limit, floor=floor, verdict=verdict)


def row(rows, key, **wanted):
    return next(each for each in rows if all(each.get(k) == value for k, value in wanted.items()))[key]


# ---- kernels: the calls and sizes of kernels.c ----

MEBI, WIDTH, CLASSES, IMAGE, CHANNELS, ROWS, HEADS, HEAD = 16, 1024, 50257, 32, 64, 1024, 8, 64


def gradient_of(result, sources, slope):
    return lambda: torch.autograd.grad(result, sources, slope, retain_graph=True)


def torch_kernels():
    aten, n = torch.ops.aten, MEBI << 20
    like = {"device": card, "dtype": torch.bfloat16}
    flat, other = (torch.rand(n, device=card) * 2 - 1 for _ in range(2))
    matrix, dense = flat.view(-1, WIDTH), torch.empty(WIDTH, n // WIDTH, device=card)
    half = flat.bfloat16()
    rows = half.view(-1, WIDTH)
    images = half.view(-1, IMAGE, IMAGE, CHANNELS).permute(0, 3, 1, 2)  # channels last
    filters = torch.rand(CHANNELS, CHANNELS, 3, 3, **like).to(memory_format=torch.channels_last)
    depthwise = torch.rand(CHANNELS, 1, 3, 3, **like).to(memory_format=torch.channels_last)
    heads = half.view(-1, ROWS, HEADS, HEAD).transpose(1, 2)
    wide_heads = half.view(-1, ROWS, HEADS // 2, 2 * HEAD).transpose(1, 2)
    weights, gain, shift = torch.rand(WIDTH, WIDTH, **like), torch.ones(WIDTH, **like), torch.zeros(WIDTH, **like)
    channel_gain, channel_shift = torch.ones(CHANNELS, device=card), torch.zeros(CHANNELS, device=card)
    running = torch.zeros(CHANNELS, device=card), torch.ones(CHANNELS, device=card)
    scores, targets = torch.rand(n // CLASSES, CLASSES, **like), torch.ones(n // CLASSES, device=card, dtype=torch.int64)
    parameter = nn.Parameter(torch.rand(n, device=card))
    parameter.grad = other
    adam = torch.optim.Adam([parameter], fused=True)

    def norm(x):
        return torch.relu_(F.batch_norm(x, *running, channel_gain, channel_shift, True, 0.1, 1e-5))

    def pool(x):
        return F.max_pool2d(x, 3, 2, 1)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def convolution(x, w, groups):
        return lambda: aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)

    def convolution_backward(w, groups, mask):
        return lambda: aten.convolution_backward(images, images, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, mask)

    _, mean, rstd = aten.native_layer_norm(rows, [WIDTH], gain, shift, 1e-5)
    leaf = [scores.detach().requires_grad_(), images.detach().requires_grad_()]
    parts, wide = ([x.detach().requires_grad_() for _ in range(3)] for x in (heads, wide_heads))
    rms = [rows.detach().requires_grad_(), gain.detach().requires_grad_()]

    def rms_norm(x, weight):
        return F.rms_norm(x, [WIDTH], weight, 1e-5)

    channel_gain.requires_grad_(), channel_shift.requires_grad_()
    pooled, of_input, of_weight = pool(leaf[1]), [True, False, False], [False, True, False]
    calls = {
        "add": lambda: torch.add(flat, other),
        "add_bf16": lambda: torch.add(half, half),
        "relu": lambda: torch.relu(half),
        "softmax": lambda: torch.softmax(matrix, 1),
        "sum_columns": lambda: matrix.sum(0),
        "transposed_copy": lambda: dense.copy_(matrix.t()),
        "adam_step": adam.step,
        "gelu_tanh": lambda: F.gelu(half, approximate="tanh"),
        "gelu_tanh_backward": lambda: aten.gelu_backward(half, half, approximate="tanh"),
        "cross_entropy": lambda: F.cross_entropy(scores, targets),
        "cross_entropy_backward": gradient_of(F.cross_entropy(leaf[0], targets), leaf[:1], None),
        "layer_norm": lambda: aten.native_layer_norm(rows, [WIDTH], gain, shift, 1e-5),
        "layer_norm_backward": lambda: aten.native_layer_norm_backward(rows, rows, [WIDTH], mean, rstd, gain, shift, [True] * 3),
        "rms_norm": lambda: rms_norm(rows, gain),
        "rms_norm_backward": gradient_of(rms_norm(*rms), rms, rows),
        "batch_norm": lambda: norm(images),
        "batch_norm_backward": gradient_of(norm(leaf[1]), [leaf[1], channel_gain, channel_shift], images),
        "max_pool": lambda: pool(images),
        "max_pool_backward": gradient_of(pooled, leaf[1:], pooled.detach()),
        "depthwise": convolution(images, depthwise, CHANNELS),
        "depthwise_input": convolution_backward(depthwise, CHANNELS, of_input),
        "depthwise_weight": convolution_backward(depthwise, CHANNELS, of_weight),
        "conv2d_f32": convolution(images.float(), filters.float(), 1),
        "conv2d": convolution(images, filters, 1),
        "conv2d_input": convolution_backward(filters, 1, of_input),
        "conv2d_weight": convolution_backward(filters, 1, of_weight),
        "linear_gelu": lambda: F.gelu(F.linear(rows, weights)),
        "attention": lambda: attend(heads, heads, heads),
        "attention_backward": gradient_of(attend(*parts), parts, heads),
        "attention_128": lambda: attend(wide_heads, wide_heads, wide_heads),
        "attention_128_backward": gradient_of(attend(*wide), wide, wide_heads),
    }
    return {name: time_of(call) for name, call in calls.items()}


def ferry_kernels():
    return {each["what"]: each["ns"] for each in run(OPTIONS.kernels, OPTIONS.device, str(MEBI))["rows"]}


def compare_kernels():
    if OPTIONS.kernels is None:
        return
    ours, theirs = medians(ferry_kernels, torch_kernels)
    for name, ns in sorted(ours.items(), key=lambda each: -each[1] / theirs.get(each[0], each[1])):
        add(f"{name} ns", ns, "torch", theirs.get(name), 1)


# ---- steps ----


class MnistNet(nn.Module):
    """That of tools/train/image_train.c: PyTorch's mnist example."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.dropout(x, 0.25, self.training).flatten(1)
        return self.fc2(F.dropout(F.relu(self.fc1(x)), 0.5, self.training))


def models():
    """name: Ferry's model, its batch, precision; torch's network, optimizer, sample."""
    folder = pathlib.Path(__file__).resolve().parent
    sys.path[:0] = [str(folder), str(folder.parent / "tests/unit/train")]
    import models_reference as reference

    def resnet18():
        net = reference.ResNet18()
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1)
        return net

    gpt = "layers=12,heads=12,width=768,context=256,vocab=256"
    sizes = {key: int(value) for key, value in (pair.split("=") for pair in gpt.split(","))}

    def momentum(parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def adadelta(parameters):
        return torch.optim.Adadelta(parameters, lr=1.0, capturable=True)

    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.0005, fused=True)

    def adamw(parameters):
        return torch.optim.AdamW(parameters, fused=True)

    return {
        "resnet18": ("resnet18", 512, "bf16", resnet18, momentum, (3, 32, 32)),
        "mobilenet_v3_large": (
            "mobilenet_v3_large:classes=10,size=32,channels=3",
            512,
            "bf16",
            reference.MobileNetV3Large,
            adam,
            (3, 32, 32),
        ),
        "gpt": (f"gpt:{gpt}", 8, "bf16", lambda: reference.Gpt(**sizes), adamw, (sizes["context"],)),
        "mnist": ("mnist", 64, "f32", MnistNet, adadelta, (1, 28, 28)),
    }


class Training:
    """A step as Ferry's: gather a batch of resident samples, forward, loss, backward, update."""

    def __init__(self, batch, precision, net, optimizer, sample):
        torch.manual_seed(1)
        count = 2 * batch
        self.batch, self.at, self.graph = batch, 0, None
        self.precision = torch.autocast(card.type, torch.bfloat16, enabled=precision == "bf16")
        self.net = net().to(card)
        if len(sample) == 1:
            self.samples = torch.randint(0, 256, (count, *sample), device=card)
            self.labels = torch.randint(0, 256, (count, *sample), device=card)
        else:
            self.samples = torch.rand(count, *sample, device=card).to(memory_format=torch.channels_last)
            self.labels = torch.randint(0, 10, (count,), device=card)
            self.net = self.net.to(memory_format=torch.channels_last)
        self.order = torch.randperm(count, device=card)
        self.chosen = self.order[:batch].clone()
        self.optimizer = optimizer(self.net.parameters())

    def work(self):
        with self.precision:
            scores, labels = self.net(self.samples[self.chosen]), self.labels[self.chosen]
            loss = F.cross_entropy(scores.flatten(0, -2), labels.flatten())
        self.optimizer.zero_grad(set_to_none=self.graph is None)
        loss.backward()
        self.optimizer.step()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.work()
        self.graph = graph

    def step(self):
        self.at = (self.at + self.batch) % len(self.order)
        self.chosen.copy_(self.order[self.at : self.at + self.batch])
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


def compare_steps(name, launches, graph):
    spec, batch, precision, *torchs = models()[name]
    eager, replayed = Training(batch, precision, *torchs), Training(batch, precision, *torchs)
    try:
        replayed.capture()
    except RuntimeError as error:
        fail(f"torch, replayed: {name}", error)

    def ferry_steps():
        words = ["train", spec, "--batch", str(batch), "--precision", precision, "--log-every", "0"]
        words += ["--max-steps", "24", "--limit-samples", str(2 * batch)]
        return {
            mode: batch * 1e9 / ferry(*words, *options)["images_per_s"]
            for mode, options in (("eager", []), ("graph", ["--graph"]))
        }

    def torch_steps():
        found = {"eager": time_of(eager.step)}
        if replayed.graph is not None:
            found["graph"] = time_of(replayed.step)
        return found

    ours, theirs = medians(ferry_steps, torch_steps)
    limit, ahead = (0.33, 0.1) if name == "mnist" else (1, 1)
    add(f"{name} eager ns a step", ours.get("eager"), "torch", theirs.get("eager"), limit, launches)
    add(f"{name} graph ns a step", ours.get("graph"), "torch, replayed", theirs.get("graph"), 1)
    add(f"{name} graph ns a step", ours.get("graph"), "torch, eager", theirs.get("eager"), ahead, graph)


# ---- small calls and copies ----


def torch_small():
    """Host time of one more small op in place, as `ferry calibrate` measures launch_submit_ns; one page-locked copy up and the wait for
    it; cudaMallocAsync and cudaFreeAsync."""
    x, y, nbytes = torch.zeros(4, device=card), torch.zeros(4, device=card), 64 << 20

    def submit(count):
        torch.cuda.synchronize()
        begin = now()
        for _ in range(count):
            y.add_(x)
        return now() - begin

    submit(128)
    host, there = torch.ones(nbytes, dtype=torch.uint8).pin_memory(), torch.empty(nbytes, dtype=torch.uint8, device=card)
    found = {
        "op": (submit(256) - submit(128)) / 128,
        "pinned": time_of(lambda: there.copy_(host, non_blocking=True), 1),
    }
    pair = malloc_async_ns()
    return found if pair is None else {**found, "pair": pair}


def malloc_async_ns(nbytes=1 << 20, count=2000):
    """Less what ctypes itself costs."""
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            runtime = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        return None
    address, version = ctypes.c_void_p(), ctypes.c_int()
    where, size, stream = ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_void_p(0)

    def pairs(repeats):
        return all(
            runtime.cudaMallocAsync(where, size, stream) == 0 and runtime.cudaFreeAsync(address, stream) == 0
            for _ in range(repeats)
        )

    if not pairs(10):
        return None
    begin = now()
    pairs(count)
    pair = (now() - begin) / count
    torch.cuda.synchronize()
    begin = now()
    for _ in range(count):
        runtime.cudaRuntimeGetVersion(ctypes.byref(version))
    return pair - 2 * (now() - begin) / count


def ferry_small():
    figures = ferry("calibrate", "--rounds", "5", "--max-bytes", "64MiB")["figures"]
    large = ferry("experiment", "link", "--sizes", "64MiB", "--pieces", "1", "--rounds", "5")["rows"]
    small = ferry("experiment", "link", "--sizes", "4096", "--pieces", "256", "--rounds", "5")["rows"]
    blocks = ferry("bench", "alloc", "--quick", "--min-bytes", "1MiB", "--max-bytes", "1MiB")["rows"]
    return {
        "op": row(figures, "value", figure="launch_submit_ns"),
        "pinned": row(large, "ns", mode="pinned", direction="up"),
        "loop": row(small, "ns", mode="loop", direction="up"),
        "at once": row(small, "ns", mode="coalesced", direction="up"),
        "pair": row(blocks, "ns_per_pair", allocator="ferry-device", pattern="same"),
    }


def compare_small(bare):
    ours, theirs = medians(ferry_small, torch_small)
    launch, op, pinned = bare.get("launch_128_bytes"), "host ns of an eager op", "pinned 64 MiB up ns"
    add(op, ours.get("op"), "cuLaunchKernel, 128 bytes", launch, 1.5)
    add(op, ours.get("op"), "torch", theirs.get("op"), 0.4, launch)
    add(pinned, ours.get("pinned"), "cuMemcpyHtoDAsync", bare.get("up_pinned_64MiB"), 1 / 0.98)
    add(pinned, ours.get("pinned"), "torch", theirs.get("pinned"))
    add("allocator pair ns", ours.get("pair"), "cudaMallocAsync", theirs.get("pair"), 1 / 40)
    add("256 x 4 KiB up at once ns", ours.get("at once"), "ferry, in a loop", ours.get("loop"), 1 / 8)


def probe():
    index = OPTIONS.device.split("?")[0].split(":")[1]
    return {each["what"]: each["ns"] for each in run(OPTIONS.probe, index, "5")["rows"]}


def main():
    say(bench="gpu_torch", clock="wall", torch=torch.__version__, cuda=torch.version.cuda, card=torch.cuda.get_device_name(card))
    bare = medians(probe)[0] if OPTIONS.probe is not None else {}
    parts = {"kernels": compare_kernels}
    for name in ("resnet18", "gpt", "mobilenet_v3_large", "mnist"):
        parts[name] = lambda name=name: compare_steps(
            name, bare.get("launches_32_until_done"), bare.get("graph_32_until_done")
        )
    parts["small calls"] = lambda: compare_small(bare)
    for number, (name, part) in enumerate(parts.items()):
        if number and time.monotonic() - BEGAN > OPTIONS.seconds:
            fail(name, TimeoutError(f"no time left after {OPTIONS.seconds:.0f} s"))
            continue
        try:
            part()
        except (OSError, RuntimeError, ImportError, SystemExit) as error:
            fail(name, error)
    return failures > 0


sys.exit(main())
