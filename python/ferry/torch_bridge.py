"""PyTorch beside Ferry: tensors without a copy, state dicts of models. Reached as ferry.torch.

    x = ferry.torch.to_ferry(torch.ones(2, 3))
    y = ferry.torch.to_torch(ferry.relu(x))
    ferry.torch.load_state_dict(ferry.train.Model.open("sim:0", "resnet18"), net.state_dict())

The file is not torch.py: with this folder on sys.path it would be imported in place of PyTorch.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Union

import torch

from ferry import ops
from ferry._errors import InvalidArgument, Status
from ferry._stream import download_many
from ferry._tensor import Tensor, from_dlpack, upload_many
from ferry.train import Model

Names = Union[Mapping[str, str], Callable[[str], str], None]

_UNUSED = "num_batches_tracked"


def to_ferry(tensor: torch.Tensor) -> Tensor:
    """A Ferry tensor on the bytes of a PyTorch tensor, without a copy and without its gradient.

    On the host, or on cuda:N. The bytes live as long as one of both. Ferry does not see what PyTorch
    writes to them later. Fails: as ferry.from_dlpack.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"to_ferry takes a torch.Tensor, not {type(tensor).__name__}")
    return from_dlpack(tensor.detach())


def to_torch(tensor: Tensor) -> torch.Tensor:
    """A PyTorch tensor on the bytes of a Ferry tensor, without a copy. PyTorch may write to them.

    Fails: Unsupported (a simulated device: download the tensor first), InvalidArgument (a read-only
    tensor, as a view that repeats elements is; PyTorch has none: copy it first), Busy (an upload
    borrows the bytes).
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_torch takes a ferry.Tensor, not {type(tensor).__name__}")
    if tensor._is_read_only:
        raise InvalidArgument(
            Status.INVALID_ARGUMENT, "to_torch: the tensor is read-only, or a view that repeats "
            "elements, and PyTorch has no such tensors\n  Copy it first: ferry.tensor(t)",
        )  # fmt: skip
    return torch.from_dlpack(tensor)


def _tensors(model: Model) -> Dict[str, Tensor]:
    return {**model.parameters(), **model.buffers()}


def _renamed(name: str, names: Names) -> str:
    if callable(names):
        return names(name)
    return (names or {}).get(name, name)


def load_state_dict(model: Model, state: Mapping[str, torch.Tensor], names: Names = None) -> None:
    """Sets a model's parameters and buffers from a state dict of PyTorch; checks all of it first.

    Weights of convolutions become O, H, W, I. names: the name in `state` of a name of Ferry, a dict
    or a function; others are the same in both. On a device: one upload of all, heavy.
    A linear layer behind flatten() of several pixels has its inputs in another order: not covered.
    Fails: ValueError (a name is missing or left over, a shape or a dtype differs, a value is no
    tensor, or not on the host), Unsupported (a dtype that Ferry lacks).
    """
    targets, sources, errors = _tensors(model), [], []
    wanted = {name: _renamed(name, names) for name in targets}
    left_over = [n for n in state if n not in set(wanted.values()) and not n.endswith(_UNUSED)]
    if left_over:
        errors.append(f"the model has no {', '.join(left_over)}")
    for name, target in targets.items():
        if wanted[name] not in state:
            errors.append(f"the state dict has no {wanted[name]}")
            continue
        value = state[wanted[name]]
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            errors.append(f"{wanted[name]} is {kind}, not a torch.Tensor: torch.as_tensor(a)")
            continue
        value = value.detach()
        if value.device.type != "cpu":
            errors.append(f"{wanted[name]} is on {value.device}: copy it to the host, .cpu()")
            continue
        value = (value.permute(0, 2, 3, 1) if value.ndim == 4 else value).contiguous()
        given = tuple(value.shape), str(value.dtype)
        source = to_ferry(value)
        if (source.shape, source.dtype) != (target.shape, target.dtype):
            errors.append(f"{name} is {target.dtype} {target.shape}, {wanted[name]} {given}")
        sources.append(source)
    if errors:
        raise ValueError("; ".join(errors))
    first = next(iter(targets.values()), None)
    if first is not None and not first.is_host:
        sources = upload_many(sources, first.device)
    for target, source in zip(targets.values(), sources, strict=True):
        ops.copy(target, source)


def state_dict(model: Model, names: Names = None) -> Dict[str, torch.Tensor]:
    """Copies of a model's parameters and buffers as a state dict of PyTorch, on the host.

    Weights of convolutions become O, I, H, W. names: as in load_state_dict. On a device: downloads,
    heavy. num_batches_tracked is missing: net.load_state_dict(state, strict=False).
    """
    found = _tensors(model)
    values = list(found.values())
    if values and not values[0].is_host:
        values = [download.wait() for download in download_many(values)]
    state: Dict[str, torch.Tensor] = {}
    for name, value in zip(found, values, strict=True):
        tensor = to_torch(value)
        tensor = tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor
        state[_renamed(name, names)] = tensor.clone(memory_format=torch.contiguous_format)
    return state
