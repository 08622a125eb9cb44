#!/usr/bin/env python3
"""Training of mnist (batch 64), lenet (256), resnet18 (28 x 28, 64), mobilenet_v3_large (224 x 224, 16) and a gpt (4 layers, 256 wide, 16
pieces of 128 bytes) on the host: Ferry beside the best mode of PyTorch, in interleaved rounds.

A step of both: gather a batch of resident made-up samples, forward, loss, backward, update (mnist Adadelta, the others SGD), in f32.
Ferry runs `ferry bench train --case NAME --device host --rounds 1` once a round, in a process of its own; PyTorch's modes run in this one:
  eager                  NCHW tensors
  channels_last          images and weights in channels_last
  compile                forward, loss and the optimizer's step by torch.compile
  compile,channels_last  both
Each round times Ferry and then every mode. The ratio of a round is PyTorch's time over Ferry's, taken for each mode; the median of a
mode's ratios counts, and the mode with the smallest median is the best. Larger is better for Ferry.
Not here: equal losses (peers_images.cpp compares them), a card (gpu_torch.py). Nothing is asserted.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

WANTED = (
    "2.15"  # the figures in docs/results are of this version; another one answers another question
)
CASES = {  # batch, samples, limit, goal
    "mnist": (64, 1024, 2.2, 2.8),
    "lenet": (256, 1024, 1.5, 2.0),
    "resnet18": (64, 256, 1.05, 1.2),
    "mobilenet_v3_large": (16, 64, 1.4, 1.6),
    "gpt": (16, 256, 1.2, 1.5),
}
MODES = ("eager", "channels_last", "compile", "compile,channels_last")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ferry", help="the ferry program, of a release build")
    parser.add_argument("--case", choices=sorted(CASES), help="only this network (default: all)")
    parser.add_argument(
        "--modes",
        default=";".join(MODES),
        help="PyTorch's modes, separated by ';' (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="interleaved rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=10, help="steps of PyTorch in a round (default: %(default)s)"
    )
    parser.add_argument(
        "--round-ms", type=int, default=300, help="time of Ferry in a round (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of both sides (default: %(default)s)"
    )
    parser.add_argument(
        "--any-torch", action="store_true", help=f"accept a PyTorch that is not {WANTED}"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on standard output"
    )
    args = parser.parse_args()
    args.modes = args.modes.split(";")
    for mode in args.modes:
        if mode not in MODES:
            parser.error(f"there is no mode '{mode}'; there are: {'; '.join(MODES)}")
    if min(args.rounds, args.steps, args.round_ms, args.threads) < 1:
        parser.error("--rounds, --steps, --round-ms and --threads must be at least 1")
    return args


ARGS = arguments()
os.environ["OMP_NUM_THREADS"] = str(
    ARGS.threads
)  # read when libgomp loads, so before torch is imported
try:
    import torch
    from torch import nn
except ImportError as problem:
    sys.exit(
        f"peers_torch: no PyTorch here ({problem}): install it in a virtual environment and start this program with its python"
    )
if torch.__version__.split("+")[0].rsplit(".", 1)[0] != WANTED and not ARGS.any_torch:
    sys.exit(
        f"peers_torch: this is PyTorch {torch.__version__}, the comparison is with {WANTED}: install that, or pass --any-torch"
    )
torch.set_num_threads(ARGS.threads)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/unit/train"))
from models_reference import Gpt, MobileNetV3Large, ResNet18  # noqa: E402


class Net(nn.Module):
    """The networks of tools/train/image_train.c."""

    def __init__(self, case):
        super().__init__()
        self.is_mnist = case == "mnist"
        if self.is_mnist:
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


def network(case):
    if case == "resnet18":
        return ResNet18()
    if case == "mobilenet_v3_large":
        return MobileNetV3Large()
    if case == "gpt":
        return Gpt(layers=4, heads=4, width=256, context=128, vocab=256)
    return Net(case)


class Training:
    def __init__(self, case, mode):
        torch.manual_seed(1)
        (self.batch, samples), self.at = CASES[case][:2], 0
        self.samples = samples
        form = torch.channels_last if "channels_last" in mode else torch.contiguous_format
        self.order = torch.arange(samples)
        if case == "gpt":  # tokens have no memory format
            self.form = torch.contiguous_format
            self.images = torch.randint(0, 256, (samples, 128))
            self.labels = torch.randint(0, 256, (samples, 128))
        else:
            size = (3, 224, 224) if case == "mobilenet_v3_large" else (1, 28, 28)
            self.form, self.images = form, torch.rand(samples, *size).to(memory_format=form)
            self.labels = torch.randint(0, 10, (samples,))
        net = network(case)
        if case != "gpt":
            net = net.to(memory_format=form)
        if case == "mnist":
            self.optimizer = torch.optim.Adadelta(
                net.parameters(), lr=1.0, foreach="compile" in mode
            )
        else:
            self.optimizer = torch.optim.SGD(
                net.parameters(), lr=0.2 if case == "lenet" else 0.01, foreach="compile" in mode
            )

        def loss(x, target):
            return nn.functional.cross_entropy(net(x).flatten(0, -2), target.flatten())

        self.loss, self.update = loss, self.optimizer.step
        if "compile" in mode:
            self.loss, self.update = torch.compile(loss), torch.compile(self.optimizer.step)

    def step(self):
        chosen = self.order[self.at : self.at + self.batch]
        self.at = (self.at + self.batch) % self.samples
        self.optimizer.zero_grad()
        self.loss(
            self.images[chosen].contiguous(memory_format=self.form), self.labels[chosen]
        ).backward()
        self.update()

    def ns_per_step(self, steps):
        begin = time.perf_counter_ns()
        for _ in range(steps):
            self.step()
        return (time.perf_counter_ns() - begin) / steps


def ferry_ns(case):
    command = [
        ARGS.ferry,
        "bench",
        "train",
        "--case",
        case,
        "--device",
        "host",
        "--rounds",
        "1",
        "--round-ms",
        str(ARGS.round_ms),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"peers_torch: {' '.join(command)}: {done.stderr.strip()[-500:]}")
    return next(
        row["ns_per_step"] for row in json.loads(done.stdout)["rows"] if row["mode"] == "eager"
    )


def compare(case):
    # a network of tokens has no images whose format could change
    wanted = [mode for mode in ARGS.modes if case != "gpt" or "channels_last" not in mode]
    modes = {mode: Training(case, mode) for mode in wanted}
    ferry, torches = [], {mode: [] for mode in modes}
    for training in modes.values():
        training.ns_per_step(min(5, ARGS.steps + 1))  # compiles, warms up
    for _ in range(ARGS.rounds):
        ferry.append(ferry_ns(case))
        for mode, training in modes.items():
            torches[mode].append(training.ns_per_step(ARGS.steps))
    batch, _, limit, goal = CASES[case]
    rows = []
    for mode, times in torches.items():
        ratios = [theirs / ours for theirs, ours in zip(times, ferry)]
        rows.append(
            {
                "case": case,
                "batch": batch,
                "mode": mode,
                "images_per_s": batch * 1e9 / statistics.median(times),
                "ferry_images_per_s": batch * 1e9 / statistics.median(ferry),
                "ratio": statistics.median(ratios),
                "worst_ratio": min(ratios),
                "best_ratio": max(ratios),
                "limit": limit,
                "goal": goal,
            }
        )
    best = min(rows, key=lambda row: row["ratio"])
    for row in rows:
        row["is_best_mode"] = row is best
    return rows


def main():
    print(
        f"ferry: {ARGS.ferry}; PyTorch {torch.__version__}, modes {'; '.join(ARGS.modes)}; {ARGS.threads} threads, {ARGS.rounds} rounds",
        file=sys.stderr,
    )
    rows = [row for case in ([ARGS.case] if ARGS.case else CASES) for row in compare(case)]
    if ARGS.json:
        json.dump(
            {
                "bench": "peers_torch",
                "clock": "wall",
                "torch": torch.__version__,
                "threads": ARGS.threads,
                "rounds": ARGS.rounds,
                "rows": rows,
            },
            sys.stdout,
            indent=2,
        )
        print()
        return
    print(
        "case                batch  mode                   torch samples/s  ferry samples/s  ratio  (worst, best round)"
    )
    for row in rows:
        print(
            f"{row['case']:<19} {row['batch']:>5}  {row['mode']:<22} {row['images_per_s']:>15.1f}  {row['ferry_images_per_s']:>15.1f}  "
            f"{row['ratio']:>5.2f}  ({row['worst_ratio']:.2f}, {row['best_ratio']:.2f})"
            + (
                f"  best mode; at least {row['limit']}, goal {row['goal']}"
                if row["is_best_mode"]
                else ""
            )
        )


main()
