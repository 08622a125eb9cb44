"""Devices that tensors report, where PyTorch chooses them: the same as on a machine with a card."""

import torch


def device(tensor):
    assert tensor.device.type == ("cuda" if tensor.is_cuda else "cpu")
    return str(tensor.device)


def made():
    cuda, host = torch.ones(2, device="cuda"), torch.ones(2, device="cpu")
    return [device(t) for x in (cuda, host) for t in (
        x.new_zeros(2), x.new_tensor([1.0]), x.new_empty(2), torch.zeros_like(x), x + 1)] + [
        device(torch.tensor(1.0)), device(torch.asarray([1.0])), device(torch.zeros(2)),
        str(torch.get_default_device())]


def refused(call):
    try:
        call()
    except RuntimeError as error:
        return "invalid device ordinal" in str(error)
    return False


print("no default", made())
for name in ("cuda", "cuda:0", "cpu"):
    torch.set_default_device(name)
    print(name, made())
    with torch.device("cuda"):
        print("inside", made())
torch.set_default_device("cuda")
net = torch.nn.Linear(4, 2)
print("linear", device(net(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))), device(net.weight))
torch.set_default_device(None)

for place, other in (("cuda", "cpu"), ("cpu", "cuda")):
    w = torch.ones(3, device=place, requires_grad=True)
    (w * 2).to(other).sum().backward()
    print("gradient", device(w.grad), w.grad.tolist())

print("cuda:1", [refused(call) for call in (
    lambda: torch.ones(2, device="cuda:1"), lambda: torch.ones(2).to("cuda:1"),
    lambda: torch.ones(2).cuda(1), lambda: torch.tensor([1.0], device="cuda:1"),
    lambda: torch.ones(2).new_zeros(2, device="cuda:1"), lambda: torch.cuda.set_device(1),
    lambda: torch.ones_like(torch.ones(2), device="cuda:1"), lambda: torch.cuda.device(1))])
