"""The command: arguments, the recorder's life, the script."""

import argparse
import os
import runpy
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .autocast import patch_autocast
from .cuda_api import patch_cuda, patch_threads
from .events import Recorder
from .groups import patch_groups
from .mode import Mode, Slow
from .ops import VIEW, Info
from .profile import CAPABILITIES, Profile
from .script_api import patch_scripts
from .tensor_api import Patches, patch_tensors

NOTES = (
    "ops are those that PyTorch runs on a CPU, but for dropout, attention and recurrent layers",
    "attention is the flash kernel in half precision without a mask, else the memory-efficient "
    "one; in float64, with grouped heads in float32 or with a mask that has a gradient it is the "
    "CPU's ops",
    "a recurrent layer is one op; the bytes that it keeps for the backward are estimated, and "
    "autocast does not change them",
    "packing a sequence is one op, and so is padding it",
    "autocast: the ops of CUDA's lists, and those that only the CPU's autocast casts to float32",
    "flops of matrix products, convolutions, attention and recurrent layers are counted, those of "
    "another op are one an element of its result",
    "model times are by the peak rates of the profile, the host's by a constant for each op",
    "Python's own time and the data loader's are not in the model time",
    "workspaces of cuBLAS and cuDNN and the memory that the allocator caches are not in the file",
    "the bytes that a hidden read moves are those of PyTorch 2.15's kernels",
    "printing a tensor is one download",
    "random numbers are the CPU's",
    "a gradient that crosses the link in the backward is not seen",
)


class Counter(TorchDispatchMode):
    """Counts ops that are no views."""

    ops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += Info(func).kind != VIEW
        return func(*args, **(kwargs or {}))


def calibrate():
    """Nanoseconds of this host for an op: a step of a network so small that its kernels take next
    to nothing, in eager PyTorch, divided by the ops in it."""
    net = torch.nn.Sequential(*[layer for _ in range(4)
                                for layer in (torch.nn.Linear(4, 4), torch.nn.ReLU())])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    x = torch.ones(2, 4)

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
    state = torch.get_rng_state()
    counter = Counter()
    step()
    with counter:
        step()
    best = 1 << 62
    for _ in range(30):
        begin = time.perf_counter_ns()
        for _ in range(5):
            step()
        best = min(best, (time.perf_counter_ns() - begin) // 5)
    torch.set_rng_state(state)
    return best // counter.ops


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m ferry.torch_record",
        description="Runs an unmodified PyTorch script as if it had a CUDA device, and records "
                    "what it would move, wait for and hold.")
    parser.add_argument("--profile", choices=sorted(CAPABILITIES), default="h200",
                        help="the device that is simulated [h200]")
    parser.add_argument("--numerics", choices=("on", "off"), default="on",
                        help="off: tensors of the device have no bytes; reads return 1 or 0")
    parser.add_argument("--host-op-ns", type=int, metavar="N",
                        help="host time of an op by the model clock; default: measured")
    parser.add_argument("out", metavar="OUT.jsonl", help="the event file; .gz: compressed")
    parser.add_argument("script", metavar="script.py")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    profile = Profile(options.profile)
    notes = list(NOTES)
    if options.numerics == "off":
        notes.append("numerics off: tensors of the device have no values, item() returns 1 or 0")
    host_op_ns = options.host_op_ns
    if host_op_ns is None:
        host_op_ns = calibrate() + profile.launch_submit_ns
    notes.append("the host takes %d ns an op%s" % (
        host_op_ns, "" if options.host_op_ns is not None else
        ", measured by a small network where it was recorded, and the profile's launch"))
    backing = torch.device("cpu" if options.numerics == "on" else "meta")
    folder = os.path.dirname(os.path.abspath(options.script))
    slow = Slow(backing)
    slow.recorder = recorder = Recorder(
        options.out, folder, profile, host_op_ns,
        "torch_record " + " ".join([options.script] + options.args), notes, slow)
    recorder.mode = mode = Mode(recorder)
    patches = Patches()
    os.register_at_fork(after_in_child=recorder.forget)
    patch_tensors(patches, recorder, backing)
    patch_cuda(patches, recorder)
    patch_threads(patches, mode)
    patch_groups(patches, recorder)
    patch_autocast(patches, recorder)
    hook = patch_scripts(patches, recorder)
    sys.argv = [options.script] + options.args
    sys.path.insert(0, folder)
    try:
        with mode:
            runpy.run_path(options.script, run_name="__main__")
    finally:
        try:
            recorder.close()
        finally:
            hook.remove()
            patches.undo()
        if os.getpid() == recorder.process:
            print("%s: %d events, %d ops, model time %.3f ms, peak %d bytes" % (
                options.out, recorder.events, recorder.ops, recorder.now_ns / 1e6,
                recorder.peak), file=sys.stderr)
