"""Ten lines that move bytes or wait needlessly in each step. The comment behind each is the reason
that the recording gives."""

import torch
import torch.nn as nn

torch.manual_seed(1)
device = torch.device("cuda")
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
mean = torch.ones(64)
scratch = torch.zeros(64, 64).pin_memory()
losses = []
for step in range(6):
    batch, target = torch.randn(64, 64), torch.randn(64, 1)
    x = batch.to(device)  # mistake: to(cuda)
    y = target.to(device, non_blocking=True)  # mistake: to(cuda): non_blocking from pageable memory
    x = x - mean.to(device)  # mistake: to(cuda)
    x = x + torch.empty_like(x).copy_(scratch)  # mistake: copy_
    x = x * torch.tensor(0.5, device=device)  # mistake: to(cuda)
    x = x[x.sum(1) > -1e9]  # mistake: index
    hidden = model[0](x).cpu()  # mistake: cpu()
    out = model[2](model[1](hidden.to(device)))
    loss = ((out - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss > 1e9:  # mistake: __bool__
        break
    torch.cuda.synchronize()  # mistake: torch.cuda.synchronize
    losses.append(loss.item())  # mistake: item
print(len(losses))
