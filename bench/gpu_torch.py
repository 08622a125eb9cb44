#!/usr/bin/env python3
"""Ferry beside PyTorch and beside the bare driver on one card, in one run: rounds of `ferry` commands, of the same work in torch, and of
cuda_probe (bare driver calls) take turns; figures are medians.

Usage: gpu_torch.py [--probe CUDA_PROBE] [--seconds N] FERRY DEVICE [ROUNDS]     prints one JSON document; scripts/gpu-check.sh calls it
--probe: the program bench/cuda_probe; without it nothing is compared with the bare calls. --seconds: no new round begins after N seconds.
Bars are against the bare call of the same run where there is one. A bar against torch that lies below the bare call cannot be reached: its
verdict says so. Exit 77 with the reason on standard error where there is no torch or no card: then nothing was compared.
The product needs no Python. Not here: the same comparison on the host (peers_torch.cpp, peers_images.cpp), whose networks these are.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time


def skip(why):
    print(f"gpu_torch: {why}", file=sys.stderr)
    sys.exit(77)


if "--help" in sys.argv:
    print(__doc__.strip())
    sys.exit(0)
parser = argparse.ArgumentParser(
    usage="gpu_torch.py [--probe CUDA_PROBE] [--seconds N] FERRY DEVICE [ROUNDS]", add_help=False
)
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

FERRY, DEVICE, ROUNDS = OPTIONS.ferry, OPTIONS.device, OPTIONS.rounds
if not DEVICE.startswith("cuda:"):
    skip(f"{DEVICE} is no CUDA device")
card = torch.device(DEVICE.split("?")[0])
torch.cuda.set_device(card)
torch.backends.cuda.matmul.allow_tf32 = False  # Ferry's f32 is f32
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def ferry(*arguments):
    done = subprocess.run(
        [FERRY, *arguments, "--device", DEVICE, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"ferry {' '.join(arguments)}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def now():
    return time.perf_counter_ns()


# ---- torch's side ----


def host_ns_of_an_op(count=128):
    """Host time of one more small op in place, as `ferry calibrate` measures launch_submit_ns."""
    x, y = torch.zeros(4, device=card), torch.zeros(4, device=card)

    def submit(n):
        torch.cuda.synchronize()
        begin = now()
        for _ in range(n):
            y.add_(x)
        end = now()
        torch.cuda.synchronize()
        return end - begin

    submit(count)
    return (submit(2 * count) - submit(count)) / count


class Net(nn.Module):
    """The networks of tools/train/image_train.c: PyTorch's mnist example, and a LeNet with average pooling."""

    def __init__(self, is_mnist):
        super().__init__()
        self.is_mnist = is_mnist
        if is_mnist:
            self.conv1, self.conv2, self.fc1 = (
                nn.Conv2d(1, 32, 3),
                nn.Conv2d(32, 64, 3),
                nn.Linear(9216, 128),
            )
        else:
            self.conv1, self.conv2, self.fc1 = (
                nn.Conv2d(1, 20, 3),
                nn.Conv2d(20, 50, 5),
                nn.Linear(800, 128),
            )
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        f = nn.functional
        if self.is_mnist:
            x = f.max_pool2d(f.relu(self.conv2(f.relu(self.conv1(x)))), 2)
            x = f.dropout(x, 0.25, self.training).flatten(1)
            return self.fc2(f.dropout(f.relu(self.fc1(x)), 0.5, self.training))
        x = f.avg_pool2d(f.relu(self.conv1(x)), 2)
        x = f.avg_pool2d(f.relu(self.conv2(x)), 2)
        return self.fc2(f.relu(self.fc1(x.flatten(1))))


class Training:
    """A step as Ferry's: gather a batch of resident images, forward, loss, backward, update."""

    def __init__(self, is_mnist, batch, samples=2048):
        torch.manual_seed(1)
        self.batch, self.samples, self.at, self.graph = batch, samples, 0, None
        self.images = torch.rand(samples, 1, 28, 28, device=card).to(
            memory_format=torch.channels_last
        )
        self.labels = torch.randint(0, 10, (samples,), device=card)
        self.order = torch.randperm(samples, device=card)
        self.chosen = self.order[:batch].clone()
        self.net = Net(is_mnist).to(card).to(memory_format=torch.channels_last)
        if is_mnist:
            self.optimizer = torch.optim.Adadelta(self.net.parameters(), lr=1.0, capturable=True)
        else:
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.2)

    def work(self):
        loss = nn.functional.cross_entropy(
            self.net(self.images[self.chosen]), self.labels[self.chosen]
        )
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
        begin = self.at = (self.at + self.batch) % (self.samples - self.batch)
        self.chosen.copy_(self.order[begin : begin + self.batch])
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()

    def ns_per_step(self, steps=50):
        for _ in range(5):
            self.step()
        torch.cuda.synchronize()
        begin = now()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (now() - begin) / steps


def pinned_ns(nbytes=64 << 20):
    """One page-locked copy up by the runtime's call, and the wait for it."""
    host, there = torch.ones(nbytes, dtype=torch.uint8).pin_memory(), torch.empty(
        nbytes, dtype=torch.uint8, device=card
    )
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        begin = now()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        times.append(now() - begin)
    return statistics.median(times[1:])


def malloc_async_ns(nbytes=1 << 20, count=2000):
    """cudaMallocAsync and cudaFreeAsync, less what ctypes itself costs."""
    runtime = None
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            runtime = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if runtime is None:
        return None
    address, version = ctypes.c_void_p(), ctypes.c_int()
    where, size, stream = ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_void_p(0)
    for _ in range(10):
        if (
            runtime.cudaMallocAsync(where, size, stream) != 0
            or runtime.cudaFreeAsync(address, stream) != 0
        ):
            return None
    begin = now()
    for _ in range(count):
        runtime.cudaMallocAsync(where, size, stream)
        runtime.cudaFreeAsync(address, stream)
    pair = (now() - begin) / count
    torch.cuda.synchronize()
    begin = now()
    for _ in range(count):
        runtime.cudaRuntimeGetVersion(ctypes.byref(version))
    return pair - 2 * (now() - begin) / count


# ---- rounds ----


def row(rows, **wanted):
    for each in rows:
        if all(each.get(key) == value for key, value in wanted.items()):
            return each
    return {}


def ferry_round(found):
    def put(key, value):
        if value is not None:
            found.setdefault(key, []).append(value)

    figures = ferry("calibrate", "--rounds", "5", "--max-bytes", "64MiB")["figures"]
    put("host ns of an eager op", row(figures, figure="launch_submit_ns").get("value"))
    rows = ferry("bench", "train", "--rounds", "3")["rows"]
    for case, batch in (("mnist", 64), ("lenet", 256)):
        put(f"{case} eager ns a step", row(rows, case=case, mode="eager").get("ns_per_step"))
        replayed = ferry(
            "train",
            case,
            "--graph",
            "--batch",
            str(batch),
            "--max-steps",
            "300",
            "--log-every",
            "0",
        )
        put(f"{case} graph ns a step", batch * 1e9 / replayed["images_per_s"])
    rows = ferry("experiment", "link", "--sizes", "64MiB", "--pieces", "1", "--rounds", "5")[
        "rows"
    ]
    put("pinned 64 MiB up ns", row(rows, mode="pinned", direction="up").get("ns"))
    rows = ferry("experiment", "link", "--sizes", "4096", "--pieces", "256", "--rounds", "5")[
        "rows"
    ]
    put("256 x 4 KiB up in a loop ns", row(rows, mode="loop", direction="up").get("ns"))
    put("256 x 4 KiB up at once ns", row(rows, mode="coalesced", direction="up").get("ns"))
    rows = ferry("bench", "alloc", "--quick", "--min-bytes", "1MiB", "--max-bytes", "1MiB")["rows"]
    put("allocator pair ns", row(rows, allocator="ferry-device", pattern="same").get("ns_per_pair"))


def torch_round(found, trainings):
    found.setdefault("host ns of an eager op", []).append(host_ns_of_an_op())
    for key, training in trainings.items():
        found.setdefault(f"{key} ns a step", []).append(training.ns_per_step())
    found.setdefault("pinned 64 MiB up ns", []).append(pinned_ns())
    pair = malloc_async_ns()
    if pair is not None:
        found.setdefault("allocator pair ns", []).append(pair)


def probe_round(found):
    index = DEVICE.split("?")[0].split(":")[1]
    done = subprocess.run(
        [OPTIONS.probe, index, "5"], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{OPTIONS.probe}: {done.stderr.strip()[-300:]}")
    for each in json.loads(done.stdout)["rows"]:
        found.setdefault(each["what"], []).append(each["ns"])


def medians_of(found):
    return {key: statistics.median(values) for key, values in found.items()}


def rows_of(ours, theirs, bare):
    """Each figure beside what it is measured against. `limit`: Ferry's time is at most so many times the other's. `floor`: what the bare driver
    calls of the same work take, which no library goes below."""
    rows = []

    def add(what, mine, against, other, limit=None, floor=None):
        ratio = mine / other if mine is not None and other else None
        verdict = None
        if ratio is not None and limit is not None:
            below = floor is not None and limit * other < floor
            verdict = "reached" if ratio <= limit else "below the bare calls" if below else "missed"
        rows.append(
            {
                "what": what,
                "ferry": mine,
                "peer": against,
                "peer_value": other,
                "ratio": ratio,
                "limit": limit,
                "floor": floor,
                "verdict": verdict,
            }
        )

    launch, launches, graph = (
        bare.get("launch_128_bytes"),
        bare.get("launches_32_until_done"),
        bare.get("graph_32_until_done"),
    )
    op, pinned = "host ns of an eager op", "pinned 64 MiB up ns"
    add(op, ours.get(op), "cuLaunchKernel, 128 bytes", launch, 1.5)
    add(op, ours.get(op), "torch", theirs.get(op), 0.4, launch)
    for case, limit in (("mnist", 0.33), ("lenet", 1 / 1.5)):
        eager, replayed = f"{case} eager ns a step", f"{case} graph ns a step"
        add(eager, ours.get(eager), "torch", theirs.get(eager), limit, launches)
        add(eager, ours.get(eager), "32 bare launches", launches)
        add(replayed, ours.get(replayed), "torch, replayed", theirs.get(replayed))
        add(replayed, ours.get(replayed), "a bare graph of 32 launches", graph)
    add(
        "mnist graph ns a step",
        ours.get("mnist graph ns a step"),
        "torch, eager",
        theirs.get("mnist eager ns a step"),
        0.1,
        graph,
    )
    add(pinned, ours.get(pinned), "cuMemcpyHtoDAsync", bare.get("up_pinned_64MiB"), 1 / 0.98)
    add(pinned, ours.get(pinned), "torch", theirs.get(pinned))
    add(
        "allocator pair ns",
        ours.get("allocator pair ns"),
        "cudaMallocAsync",
        theirs.get("allocator pair ns"),
        1 / 40,
    )
    add(
        "256 x 4 KiB up at once ns",
        ours.get("256 x 4 KiB up at once ns"),
        "ferry, in a loop",
        ours.get("256 x 4 KiB up in a loop ns"),
        1 / 8,
    )
    return rows


def main():
    ours, theirs, bare, failures, trainings, began = {}, {}, {}, [], {}, time.monotonic()
    for case, is_mnist, batch in (("mnist", True, 64), ("lenet", False, 256)):
        trainings[f"{case} eager"] = Training(is_mnist, batch)
        try:
            captured = Training(is_mnist, batch)
            captured.capture()
            trainings[f"{case} graph"] = captured
        except RuntimeError as error:
            failures.append(f"torch could not capture {case}: {error}")
    sides = [lambda: ferry_round(ours), lambda: torch_round(theirs, trainings)]
    if OPTIONS.probe is not None:
        sides.append(lambda: probe_round(bare))
    done = 0
    while done < ROUNDS and (done == 0 or time.monotonic() - began < OPTIONS.seconds):
        for side in sides:
            try:
                side()
            except (
                OSError,
                RuntimeError,
                subprocess.TimeoutExpired,
                KeyError,
                ValueError,
            ) as error:
                failures.append(str(error))
        done += 1
    spread = {}
    for name, found in (("ferry", ours), ("torch", theirs), ("bare", bare)):
        spread[name] = {
            key: max(values) / min(values) - 1 for key, values in found.items() if min(values) > 0
        }
    json.dump(
        {
            "bench": "gpu_torch",
            "clock": "wall",
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "card": torch.cuda.get_device_name(card),
            "device": DEVICE,
            "rounds": done,
            "rows": rows_of(medians_of(ours), medians_of(theirs), medians_of(bare)),
            "spread": spread,
            "failures": failures,
        },
        sys.stdout,
        indent=2,
    )
    print()
    return 1 if failures else 0


sys.exit(main())
