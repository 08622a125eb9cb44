"""Records a PyTorch script as if it ran on a CUDA device, without one: an event file that `ferry
ledger`, `advise`, `report`, `replay` and `predict` read.

    python -m ferry.torch_record OUT.jsonl script.py ARGS

docs/pytorch.md has an example and lists what is approximate. Next: run.py.
"""
