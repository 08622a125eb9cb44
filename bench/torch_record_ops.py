"""CPU time of small PyTorch ops, plain and under `ferry.torch_record`, in interleaved processes:

    PYTHONPATH=BUILD/python FERRY_LIBRARY=BUILD/lib python3 bench/torch_record_ops.py [--rounds N]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CALLS, BAR_US = 3000, 15


class Counter(TorchDispatchMode):
    """Counts ops, views among them."""

    ops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += 1
        return func(*args, **(kwargs or {}))


def measure(device):
    """CPU time of this thread for a call, in microseconds, by the row's name."""
    torch.set_num_threads(1)
    x, y = torch.ones(64, 64, device=device), torch.ones(64, 64, device=device)
    host, ones = torch.ones(4), torch.ones((), device=device)
    layers = [torch.ones(64, 64, device=device, requires_grad=True) for _ in range(8)]

    def train():
        h = x
        for w in layers:
            h = torch.relu(h @ w)
        torch.autograd.grad(h.mean(), layers, ones)

    counter = Counter()
    with counter:
        train()
    times = {}
    for name, op, calls in (
            ("x + y", lambda: x + y, CALLS), ("x.add_(y)", lambda: x.add_(y), CALLS),
            ("x.view(-1)", lambda: x.view(-1), CALLS), ("on the host", lambda: host + host, CALLS),
            ("an op of eight layers' forward and backward", train, CALLS // 30)):
        for _ in range(calls // 10):
            op()
        best = float("inf")
        for _ in range(5):
            begin = time.thread_time()
            for _ in range(calls):
                op()
            best = min(best, (time.thread_time() - begin) / calls)
        times[name] = best * 1e6 / (counter.ops if op is train else 1)
    return times


def child(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child)))
        return
    here = os.path.abspath(__file__)
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.jsonl")
        for _ in range(options.rounds):
            plain.append(child([sys.executable, here, "--child", "cpu"]))
            recorded.append(child([sys.executable, "-m", "ferry.torch_record", "--host-op-ns",
                                   "5000", out, here, "--child", "cuda"]))
    print("| op | plain, us | recorded, us | difference, us |\n|---|---:|---:|---:|")
    for name in plain[0]:
        without = statistics.median(times[name] for times in plain)
        with_it = statistics.median(times[name] for times in recorded)
        print("| %s | %.1f | %.1f | %.1f |" % (name, without, with_it, with_it - without))
    print("bar: a difference of %d us an op" % BAR_US)


main()
