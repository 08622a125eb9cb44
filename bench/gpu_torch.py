#!/usr/bin/env python3
"""Ferry beside PyTorch on one card, in one run: rounds of `ferry` commands and of the same work in torch take turns; figures are medians.

Usage: gpu_torch.py FERRY DEVICE [ROUNDS]     prints one JSON document; scripts/gpu-check.sh calls it
Exit 77 with the reason on standard error where there is no torch or no card: then nothing was compared. The product needs no Python.
Not here: the same comparison on the host (peers_torch.cpp, peers_images.cpp), whose networks and optimizers these are.
"""
import ctypes
import json
import statistics
import subprocess
import sys
import time


def skip(why):
    print(f"gpu_torch: {why}", file=sys.stderr)
    sys.exit(77)


if len(sys.argv) not in (3, 4) or "--help" in sys.argv:
    asked = "--help" in sys.argv
    print(__doc__.strip(), file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

try:
    import torch
    from torch import nn
except ImportError as error:
    skip(f"no PyTorch here: {error}")
if not torch.cuda.is_available():
    skip("PyTorch sees no CUDA device")

FERRY, DEVICE = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
if not DEVICE.startswith("cuda:"):
    skip(f"{DEVICE} is no CUDA device")
card = torch.device(DEVICE.split("?")[0])
torch.cuda.set_device(card)
torch.backends.cuda.matmul.allow_tf32 = False  # Ferry's f32 is f32
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def ferry(*arguments):
    done = subprocess.run([FERRY, *arguments, "--device", DEVICE, "--json"], capture_output=True, text=True, timeout=120, check=False)
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
    """The networks of tools/image_train.c: PyTorch's mnist example, and a LeNet with average pooling."""

    def __init__(self, is_mnist):
        super().__init__()
        self.is_mnist = is_mnist
        if is_mnist:
            self.conv1, self.conv2, self.fc1 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Linear(9216, 128)
        else:
            self.conv1, self.conv2, self.fc1 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5), nn.Linear(800, 128)
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
        self.images = torch.rand(samples, 1, 28, 28, device=card).to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (samples,), device=card)
        self.order = torch.randperm(samples, device=card)
        self.chosen = self.order[:batch].clone()
        self.net = Net(is_mnist).to(card).to(memory_format=torch.channels_last)
        if is_mnist:
            self.optimizer = torch.optim.Adadelta(self.net.parameters(), lr=1.0, capturable=True)
        else:
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.2)

    def work(self):
        loss = nn.functional.cross_entropy(self.net(self.images[self.chosen]), self.labels[self.chosen])
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
    host, there = torch.ones(nbytes, dtype=torch.uint8).pin_memory(), torch.empty(nbytes, dtype=torch.uint8, device=card)
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
        if runtime.cudaMallocAsync(where, size, stream) != 0 or runtime.cudaFreeAsync(address, stream) != 0:
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
        replayed = ferry("train", case, "--graph", "--batch", str(batch), "--max-steps", "300", "--log-every", "0")
        put(f"{case} graph ns a step", batch * 1e9 / replayed["images_per_s"])
    rows = ferry("experiment", "link", "--sizes", "64MiB", "--pieces", "1", "--repeats", "5")["rows"]
    put("pinned 64 MiB up ns", row(rows, mode="pinned", direction="up").get("ns"))
    rows = ferry("experiment", "link", "--sizes", "4096", "--pieces", "256", "--repeats", "5")["rows"]
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


def main():
    ours, theirs, failures, trainings = {}, {}, [], {}
    for case, is_mnist, batch in (("mnist", True, 64), ("lenet", False, 256)):
        trainings[f"{case} eager"] = Training(is_mnist, batch)
        try:
            captured = Training(is_mnist, batch)
            captured.capture()
            trainings[f"{case} graph"] = captured
        except RuntimeError as error:
            failures.append(f"torch could not capture {case}: {error}")
    for _ in range(ROUNDS):
        for side in (lambda: ferry_round(ours), lambda: torch_round(theirs, trainings)):
            try:
                side()
            except (RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError) as error:
                failures.append(str(error))
    rows = []
    # What is asked of a card: Ferry's time over torch's at most so much.
    limits = {
        "host ns of an eager op": 0.4,
        "mnist eager ns a step": 0.33,
        "mnist graph ns a step": None,  # 0.1 of torch's eager step: below
        "lenet eager ns a step": 1 / 1.5,
        "lenet graph ns a step": None,
        "pinned 64 MiB up ns": 1 / 0.98,
        "allocator pair ns": 1 / 40,
    }
    medians = {key: statistics.median(values) for key, values in ours.items()}
    peers = {key: statistics.median(values) for key, values in theirs.items()}

    def add(what, mine, other, against, limit):
        ratio = mine / other if mine is not None and other else None
        verdict = None if ratio is None or limit is None else "reached" if ratio <= limit else "missed"
        rows.append({"what": what, "ferry": mine, "peer": against, "peer_value": other, "ratio": ratio, "limit": limit, "verdict": verdict})

    for what, limit in limits.items():
        add(what, medians.get(what), peers.get(what), "cudaMallocAsync" if "allocator" in what else "torch", limit)
    add("mnist graph ns a step", medians.get("mnist graph ns a step"), peers.get("mnist eager ns a step"), "torch, eager", 0.1)
    add("256 x 4 KiB up at once ns", medians.get("256 x 4 KiB up at once ns"), medians.get("256 x 4 KiB up in a loop ns"), "ferry, in a loop", 1 / 8)
    worst = {key: [max(values) / min(values) - 1 for values in (ours.get(key), theirs.get(key)) if values] for key in limits}
    json.dump({"bench": "gpu_torch", "clock": "wall", "torch": torch.__version__, "cuda": torch.version.cuda, "card": torch.cuda.get_device_name(card),
               "device": DEVICE, "rounds": ROUNDS, "rows": rows, "spread": worst, "failures": failures}, sys.stdout, indent=2)
    print()
    return 1 if failures else 0


sys.exit(main())
