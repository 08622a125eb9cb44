#!/usr/bin/env python3
"""The depthwise convolutions of MobileNetV3-Large (224 x 224) on the host: Ferry beside PyTorch in channels_last, in interleaved rounds.

A round runs each given program of bench/depthwise.c once, in a process of its own, then PyTorch's forward, data gradient and weight
gradient of each layer. A table of medians over the rounds, in us, is printed: a column for each program, then PyTorch, then the ratio
of PyTorch's time and the last program's (larger is better for Ferry). The last row adds up the layers of the network.
Not here: equal values (tests/ops compares with an oracle). Nothing is asserted.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

PASSES = ("forward", "input", "weight")


def time_of(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times)


def torch_layer(torch, layer, batch, repeats):
    """ns of the three passes"""
    size, channels, kernel, stride = (layer[k] for k in ("image", "channels", "kernel", "stride"))
    like = {"memory_format": torch.channels_last}
    x = torch.rand(batch, channels, size, size).to(**like)
    w = torch.rand(channels, 1, kernel, kernel)
    conv = (None, (stride, stride), (kernel // 2, kernel // 2), (1, 1), False, (0, 0), channels)
    with torch.no_grad():
        y = torch.ops.aten.convolution(x, w, *conv)
    slopes = torch.rand(y.shape).to(**like)

    def backward(mask):
        return torch.ops.aten.convolution_backward(slopes, x, w, *conv, mask)

    with torch.no_grad():
        return [
            time_of(lambda: torch.ops.aten.convolution(x, w, *conv), repeats),
            time_of(lambda: backward((True, False, False)), repeats),
            time_of(lambda: backward((False, True, False)), repeats),
        ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "programs", nargs="+", help="build/release/bin/bench/depthwise, of one build or several"
    )
    parser.add_argument("--batch", type=int, default=16, help="images (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=9, help="calls of each in a round (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of both sides (default: %(default)s)"
    )
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch  # reads the environment

    torch.set_num_threads(args.threads)
    times = {}  # (layer, pass, side): ns of each round
    layers = []
    for _ in range(args.rounds):
        for side, program in enumerate(args.programs):
            command = [program, str(args.batch), str(args.repeats)]
            layers = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)[
                "rows"
            ]
            for i, layer in enumerate(layers):
                for name in PASSES:
                    times.setdefault((i, name, side), []).append(layer[f"{name}_ns"])
        for i, layer in enumerate(layers):
            for name, ns in zip(PASSES, torch_layer(torch, layer, args.batch, args.repeats)):
                times.setdefault((i, name, "torch"), []).append(ns)

    sides = [*range(len(args.programs)), "torch"]
    print(f"PyTorch {torch.__version__}, {args.threads} threads, batch {args.batch}, us")
    print("| layer | times |" + "".join(f" {name} | | |" + " |" * len(args.programs[1:]) for name in PASSES))
    print("|---|---|" + "---|" * len(PASSES) * (len(sides) + 1))
    total = {}
    for i, layer in enumerate(layers):
        row = f"| {layer['channels']} at {layer['image']}, {layer['kernel']} x {layer['kernel']}"
        row += f", stride {layer['stride']} | {layer['times']} |"
        for name in PASSES:
            medians = [statistics.median(times[i, name, side]) for side in sides]
            for side, ns in zip(sides, medians):
                total[name, side] = total.get((name, side), 0) + ns * layer["times"]
            row += "".join(f" {ns / 1e3:.0f} |" for ns in medians)
            row += f" {medians[-1] / medians[-2]:.1f} |"
        print(row)
    row = "| all | |"
    for name in PASSES:
        row += "".join(f" {total[name, side] / 1e3:.0f} |" for side in sides)
        row += f" {total[name, 'torch'] / total[name, sides[-2]]:.1f} |"
    print(row)


if __name__ == "__main__":
    main()
