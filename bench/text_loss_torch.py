#!/usr/bin/env python3
"""Repeats the run of text_loss.c by PyTorch: the same first weights, tokens, order, optimizer and number of steps; compares the losses.

Prints one JSON document: the mean loss of the first and of the last TAIL steps of both, the ratio of the last ones, and the largest
difference of a step; for runs of 8 and more parts, the mean loss of each eighth. Exit status: 0; 1 the last losses differ by more than
1 %; 77 PyTorch or safetensors is not installed.
Usage: text_loss_torch.py PROGRAM TEXT [STEPS]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/unit/train"))
from models_reference import Gpt, functional, safe_open, torch  # ends with 77 without PyTorch

TAIL = 32
LIMIT = 0.01


def read(path):
    with safe_open(path, "pt") as content:
        return {name: content.get_tensor(name) for name in content.keys()}


def run_theirs(first, x, y):
    module = Gpt(layers=4, heads=4, width=256, context=128, vocab=256)
    module.load_state_dict(first)
    optimizer = torch.optim.AdamW(module.parameters())
    losses = []
    for tokens, targets in zip(x.long(), y.long()):
        loss = functional.cross_entropy(module(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return torch.tensor(losses)


def main():
    program, text, steps = sys.argv[1], sys.argv[2], sys.argv[3:4]
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        subprocess.run([program, text, folder, *steps], check=True)
        ours_s = time.monotonic() - begin
        run = read(folder + "/run.safetensors")
        begin = time.monotonic()
        theirs = run_theirs(read(folder + "/first.safetensors"), run["x"], run["y"])
        theirs_s = time.monotonic() - begin
    ours = run["loss"]
    tail = min(TAIL, len(ours))
    ratio = float(ours[-tail:].mean() / theirs[-tail:].mean())
    report = {
        "torch": torch.__version__,
        "steps": len(ours),
        "bytes": pathlib.Path(text).stat().st_size,
        "seconds": {"ferry": round(ours_s, 1), "torch": round(theirs_s, 1)},
        "first": {"ferry": float(ours[0]), "torch": float(theirs[0])},
        "last": {"ferry": float(ours[-tail:].mean()), "torch": float(theirs[-tail:].mean())},
        "ratio": ratio,
        "largest_difference": float((ours - theirs).abs().max()),
        "eighths": [
            [float(a.mean()), float(b.mean())] for a, b in zip(ours.chunk(8), theirs.chunk(8))
        ],
    }
    print(json.dumps(report, indent=1))
    return abs(ratio - 1) > LIMIT


if __name__ == "__main__":
    sys.exit(main())
