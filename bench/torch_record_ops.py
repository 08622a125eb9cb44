"""CPU time of small PyTorch ops: `python3 bench/torch_record_ops.py cpu` without a recorder,
`python3 -m ferry.torch_record OUT.jsonl bench/torch_record_ops.py cuda` with it."""

import sys
import time

import torch

device = sys.argv[1]
x, y, host = torch.ones(64, 64, device=device), torch.ones(64, 64, device=device), torch.ones(4)
for name, op in (("x + y", lambda: x + y), ("x.add_(y)", lambda: x.add_(y)),
                 ("x.view(-1)", lambda: x.view(-1)), ("on the host", lambda: host + host)):
    for _ in range(300):
        op()
    best = float("inf")
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(3000):
            op()
        best = min(best, (time.thread_time() - begin) / 3000)
    print("%-12s %.1f us" % (name, best * 1e6))
