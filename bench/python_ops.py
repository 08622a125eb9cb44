"""Time of small ops on f32[4] from Python, beside PyTorch in the same run, interleaved:
`python3 bench/python_ops.py` where both packages can be imported. Prints medians and quartiles."""

import statistics
import time

import torch

import ferry

ROUNDS, CALLS = 31, 20000
torch.set_num_threads(1)
a, b = ferry.full(4, 1.0), ferry.full(4, 2.0)
x, y = torch.full((4,), 1.0), torch.full((4,), 2.0)
CASES = {
    "a + b": (lambda: a + b, lambda: x + y),
    "relu(a)": (lambda: ferry.relu(a), lambda: torch.relu(x)),
    "softmax(a)": (lambda: ferry.softmax(a, -1), lambda: torch.softmax(x, -1)),
}


def nanoseconds(op):
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        op()
    return (time.perf_counter_ns() - begin) / CALLS


times = {name: ([], []) for name in CASES}
for _ in range(ROUNDS):
    for name, ops in CASES.items():
        for op, found in zip(ops, times[name]):
            found.append(nanoseconds(op))
for name, (ours, theirs) in times.items():
    low, median, high = statistics.quantiles(ours, n=4)
    print("%-10s ferry %5.0f ns [%.0f, %.0f], torch %s %5.0f ns, ratio %.2f" % (
        name, median, low, high, torch.__version__, statistics.median(theirs),
        median / statistics.median(theirs)))
