#!/usr/bin/env python3
"""Eight pointwise ops on 16 MiB, and a training step of an mlp (64-64-10, batch 1), on the host: Ferry's replays beside PyTorch, eager
and by torch.compile, in interleaved rounds.

Ferry runs `ferry bench chain` and `ferry bench train --case "mlp 64-64-10 sgd"` once a round, in a process of its own; PyTorch runs in
this one. The ops are those of tools/bench/bench_chain.c, the step that of tools/train/small_train.c. Medians over the rounds are
printed, and the ratio of Ferry's time and that of PyTorch's best mode (smaller is better for Ferry).
Not here: equal values. Nothing is asserted.
"""

import argparse
import json
import os
import statistics
import subprocess
import time


def time_of(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times)


def ferry(program, *words):
    text = subprocess.run(
        [program, "bench", *words, "--device", "host", "--rounds", "1", "--json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return json.loads(text)["rows"]


class Cases:
    """PyTorch's chain and step, eager and compiled."""

    def __init__(self, torch):
        f = torch.nn.functional
        x = torch.full((1 << 16, 64), 0.75)
        bias = torch.full((64,), -0.5)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        sample, target = torch.rand(1, 64), torch.rand(1, 10)

        def chain():
            t = x * 1.5 + 0.25
            t = f.relu(t + bias) * x * 0.5 - 1
            return t.abs() - bias + x

        def loss_of():
            return f.mse_loss(model(sample), target)

        def step_of(loss):
            def step():
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()

            return step

        self.chain = {"eager": chain, "compile": torch.compile(chain)}
        self.step = {"eager": step_of(loss_of), "compile": step_of(torch.compile(loss_of))}


def run_round(program, cases, repeats, note):
    """Each case once; `note` gets its name and its time in ns."""
    for row in ferry(program, "chain"):
        note(f"chain, Ferry, {row['case']}", row["ns"])
        note("chain, memcpy of 16 MiB", row["peer_ns"])
    for mode, call in cases.chain.items():
        note(f"chain, PyTorch, {mode}", time_of(call, repeats))
    for row in ferry(program, "train", "--case", "mlp 64-64-10 sgd"):
        note(f"step, Ferry, {row['mode']}", row["ns_per_step"])
    for mode, call in cases.step.items():
        note(f"step, PyTorch, {mode}", time_of(call, 20 * repeats))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ferry", help="the ferry program, of a release build")
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=25, help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="(default: %(default)s)")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when libgomp loads
    import torch

    torch.set_num_threads(args.threads)
    cases = Cases(torch)
    rows = {}

    def note(name, ns):
        rows.setdefault(name, []).append(ns)

    for _ in range(args.rounds):
        run_round(args.ferry, cases, args.repeats, note)
    medians = {name: statistics.median(times) for name, times in rows.items()}
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.rounds} rounds; us")
    for name, ns in medians.items():
        print(f"| {name} | {ns / 1000:.2f} |")
    for what, own in (("chain", "chain, Ferry, replayed"), ("step", "step, Ferry, graph")):
        best = min(medians[f"{what}, PyTorch, {mode}"] for mode in ("eager", "compile"))
        print(f"{what}: {medians[own] / best:.3f} of PyTorch's best mode")
    ratio = medians["chain, Ferry, replayed"] / medians["chain, memcpy of 16 MiB"]
    print(f"chain: {ratio:.2f} of memcpy")


if __name__ == "__main__":
    main()
