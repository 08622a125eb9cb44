"""Ferry: a tensor runtime for programs that must control host-device traffic.

Tensors stay on their device. An op is a light request; upload() and download() are the only heavy
ones. ferry.ledger counts every byte that crosses, ferry.guard() forbids transfers in a scope.

    device = ferry.Device("sim:0")
    x = ferry.tensor([[1.0, 2.0], [3.0, 4.0]]).upload(device)
    with ferry.guard("step"):
        y = ferry.relu(x @ x - 8)
    print(y.download().wait().tolist())

help(ferry.Tensor), help(ferry.ops), help(ferry.Tape) and help(ferry.train) continue. ferry._c has
the C API as it is.
"""

from ferry import _errors, ops
from ferry._device import Device, devices, dtypes, host, plugins
from ferry._errors import *  # noqa: F403
from ferry._files import (
    read_events, read_npy, read_npz, read_safetensors, snapshot, write_npy, write_npz,
    write_safetensors,
)  # fmt: skip
from ferry._ledger import Ledger, Totals, ledger, record
from ferry._ops import call, op_info, op_names
from ferry._record import Graph, Tape, fit, gradcheck, no_tape, plan, recompute
from ferry._scope import budget, guard, scope, set_budget, set_log
from ferry._stream import Download, Stream, Ticket, download_many
from ferry._tensor import (
    Tensor, arange, empty, from_buffer, from_dlpack, from_numpy, full, ones, pinned, tensor,
    upload_many, zeros,
)  # fmt: skip
from ferry.ops import *  # noqa: F403
from ferry import _c, train

__version__ = _c.fy_version()
__all__ = [
    "Device", "Download", "Graph", "Ledger", "Stream", "Tape", "Tensor", "Ticket", "Totals",
    "arange", "budget", "call", "devices", "download_many", "dtypes", "empty", "fit", "from_buffer",
    "from_dlpack", "from_numpy", "full", "gradcheck", "guard", "host", "ledger", "no_tape", "ones",
    "op_info", "op_names", "ops", "pinned", "plan", "plugins", "read_events", "read_npy",
    "read_npz", "read_safetensors", "record", "recompute", "scope", "set_budget", "set_log", "snapshot",
    "tensor", "train", "upload_many", "write_npy", "write_npz", "write_safetensors", "zeros",
    *_errors.__all__, *ops.__all__,
]  # fmt: skip


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name != "torch":  # ferry.torch needs PyTorch, so it is imported when it is used
        raise AttributeError(f"module 'ferry' has no attribute {name!r}")
    from ferry import torch_bridge

    return torch_bridge
