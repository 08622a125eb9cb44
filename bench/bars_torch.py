#!/usr/bin/env python3
"""The figures of docs/results that compare Ferry's host with PyTorch, all in one run, as one table: a chain of eight pointwise ops on
16 MiB beside one memcpy, a step of Adam with 11,000,000 parameters beside a copy, the replayed step of an mlp (64-64-10, batch 1)
beside PyTorch's better mode, and the bytes that resnet18 and mobilenet_v3_large keep for the backward.

Times are medians of interleaved rounds: in each round every case runs once, Ferry's and PyTorch's. A line has the figure, its goal,
and whether it holds; the exit status is 1 if one does not. On a busy machine ratios of times mean little. Usage: PYTHON bench/bars_torch.py build/release.
Not here: the cases themselves (ferry bench chain, step, train; chain_torch.py; saved_bytes_torch.py).
"""

import argparse
import os
import statistics
import sys

import chain_torch

ADAM = 11_000_000
SAVED_GOALS = {"resnet18": 0.60, "mobilenet_v3_large": 0.55}


def adam_cases(torch):
    """PyTorch's fused step and its copy, of as many f32 as `ferry bench step` has."""
    parameter = torch.zeros(ADAM, requires_grad=True)
    parameter.grad = torch.full((ADAM,), 1e-3)
    optimizer = torch.optim.Adam([parameter], fused=True)
    target = torch.zeros(ADAM)
    source = torch.zeros(ADAM)
    return optimizer.step, lambda: target.copy_(source)


def measure_times(ferry, args, torch):
    rows = {}

    def note(name, ns):
        rows.setdefault(name, []).append(ns)

    cases = chain_torch.Cases(torch)
    adam, copy = adam_cases(torch)
    for _ in range(args.rounds):
        chain_torch.run_round(ferry, cases, args.repeats, note)
        for row in chain_torch.ferry(ferry, "step", "--round-ms", "100"):
            if row["optimizer"] == "adam":
                note("adam, Ferry", row["ns"])
                note("adam, ratio", row["bandwidth_ratio"])
        note("adam, PyTorch, fused", chain_torch.time_of(adam, args.repeats))
        note("copy, PyTorch", chain_torch.time_of(copy, args.repeats))
    return {name: statistics.median(values) for name, values in rows.items()}


def saved_rows(build):
    """Ferry's bytes by PyTorch's best way, as a share of it: a title and a number each."""
    import saved_bytes_torch as saved

    program = os.path.join(build, "bin", "bench", "saved_bytes")
    for name, spec, shape, batch in saved.CASES:
        ours = saved.ferry_bytes(program, spec, batch)
        theirs = min(saved.saved_bytes(model, shape, batch) for _, model in saved.networks(name))
        yield name, ours["cheap"] / theirs, ours["plain"] / theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="a build folder with bin/ferry and bin/bench, such as build/release")
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="calls of PyTorch's cases in a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="(default: %(default)s)")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when libgomp loads
    import torch

    torch.set_num_threads(args.threads)
    ns = measure_times(os.path.join(args.build, "bin", "ferry"), args, torch)
    lines = []

    def line(figure, measured, goal, most=True):
        holds = measured <= goal if most else measured >= goal
        lines.append(holds)
        print(f"| {figure} | {measured:.3f} | {'<=' if most else '>='} {goal:.2f} | {'yes' if holds else 'NO'} |", flush=True)

    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    print("| figure | measured | goal | holds |\n|---|---:|---:|---|")
    step = ns["step, Ferry, graph"] / min(ns[f"step, PyTorch, {mode}"] for mode in ("eager", "compile"))
    line("chain of 8 on 16 MiB, of the time of one memcpy", ns["chain, Ferry, replayed"] / ns["chain, memcpy of 16 MiB"], 1.15)
    line("Adam, 11 M parameters, of a copy's bytes a second", ns["adam, ratio"], 0.85, most=False)
    line("mlp 64-64-10, batch 1, replayed, of PyTorch's better mode", step, 0.02)
    plain = []
    for name, cheap, kept in saved_rows(args.build):
        line(f"bytes kept by {name}, --recompute cheap, of PyTorch's", cheap, SAVED_GOALS[name])
        plain.append(f"{name} {kept:.2f}")
    best = min(ns[f"chain, PyTorch, {mode}"] for mode in ("eager", "compile"))
    print(f"\nbeside: the chain takes {ns['chain, Ferry, replayed'] / best:.2f} of PyTorch's better mode, Adam "
          f"{ns['adam, Ferry'] / ns['adam, PyTorch, fused']:.2f} of its fused step; without --recompute: {', '.join(plain)}")
    print("\n| case | us |\n|---|---:|")
    for name, value in ns.items():
        if not name.endswith("ratio"):
            print(f"| {name} | {value / 1000:.2f} |")
    sys.exit(0 if all(lines) else 1)


if __name__ == "__main__":
    main()
