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
    f = torch.nn.functional
    x = torch.full((1 << 16, 64), 0.75)
    bias = torch.full((64,), -0.5)

    def chain():
        t = x * 1.5 + 0.25
        t = f.relu(t + bias) * x * 0.5 - 1
        return t.abs() - bias + x

    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    sample, target = torch.rand(1, 64), torch.rand(1, 10)

    def loss_of():
        return f.mse_loss(model(sample), target)

    compiled_loss = torch.compile(loss_of)

    def step(loss):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    compiled = torch.compile(chain)
    rows = {}

    def note(name, ns):
        rows.setdefault(name, []).append(ns)

    for _ in range(args.rounds):
        for row in ferry(args.ferry, "chain"):
            note(f"chain, Ferry, {row['case']}", row["ns"])
            note("chain, memcpy of 16 MiB", row["peer_ns"])
        note("chain, PyTorch, eager", time_of(chain, args.repeats))
        note("chain, PyTorch, compile", time_of(compiled, args.repeats))
        for row in ferry(args.ferry, "train", "--case", "mlp 64-64-10 sgd"):
            note(f"step, Ferry, {row['mode']}", row["ns_per_step"])
        note("step, PyTorch, eager", time_of(lambda: step(loss_of), 20 * args.repeats))
        note("step, PyTorch, compile", time_of(lambda: step(compiled_loss), 20 * args.repeats))
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
