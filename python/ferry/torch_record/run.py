"""The command: arguments, the recorder's life, the script."""

import argparse
import os
import runpy
import sys
import time

import torch

from .cuda_api import patch_cuda, patch_threads
from .events import Recorder
from .mode import Mode, Slow
from .profile import PROFILES, Profile
from .script_api import patch_scripts
from .tensor_api import Patches, patch_tensors

NOTES = (
    "ops are those that PyTorch runs on a CPU, but for dropout and the names of attention",
    "an RNN is an op each time step",
    "autocast casts the ops of the CPU's list",
    "flops of matrix products, convolutions and attention by torch.utils.flop_counter, else one "
    "an element of the result",
    "model times are by the peak rates of the profile, the host's by a constant for each op",
    "Python's own time and the data loader's are not in the model time",
    "workspaces of cuBLAS and cuDNN and the memory that the allocator caches are not in the file",
    "the bytes that a hidden read moves are those of PyTorch 2.15's kernels",
    "printing a tensor is one download",
    "random numbers are the CPU's",
    "a gradient that crosses the link in the backward is not seen",
)


def calibrate():
    """Nanoseconds of the host for an op: eager PyTorch on a tensor of one element."""
    x = torch.ones(1)
    best = 1 << 62
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(2000):
            torch.add(x, x)
        best = min(best, (time.perf_counter_ns() - begin) // 2000)
    return best


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m ferry.torch_record",
        description="Runs an unmodified PyTorch script as if it had a CUDA device, and records "
                    "what it would move, wait for and hold.")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="h200",
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
        notes.append("numerics off: tensors of the device have no values, item() returns 1 or 0; "
                     "ops are those of meta tensors, so attention is several ops")
    host_op_ns = options.host_op_ns
    if host_op_ns is None:
        host_op_ns = calibrate() + profile.launch_submit_ns
    notes.append("the host takes %d ns an op" % host_op_ns)
    backing = torch.device("cpu" if options.numerics == "on" else "meta")
    folder = os.path.dirname(os.path.abspath(options.script))
    slow = Slow(backing)
    slow.recorder = recorder = Recorder(
        options.out, folder, profile, host_op_ns,
        "torch_record " + " ".join([options.script] + options.args), notes, slow)
    mode, patches = Mode(recorder), Patches()
    os.register_at_fork(after_in_child=recorder.forget)
    patch_tensors(patches, recorder, backing)
    patch_cuda(patches, recorder)
    patch_threads(patches, mode)
    hook = patch_scripts(patches, recorder)
    sys.argv = [options.script] + options.args
    sys.path.insert(0, folder)
    try:
        with mode:
            runpy.run_path(options.script, run_name="__main__")
    finally:
        recorder.close()
        hook.remove()
        patches.undo()
        if os.getpid() == recorder.process:
            print("%s: %d events, %d ops, model time %.3f ms, peak %d bytes" % (
                options.out, recorder.events, recorder.ops, recorder.now_ns / 1e6,
                recorder.peak), file=sys.stderr)
