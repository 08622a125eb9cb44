"""Mixed precision with a loss scaler, checkpointing, and a saved and loaded state."""

import argparse
import copy
import io

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
torch.manual_seed(1)
device = torch.device(args.device)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler(args.device)
for step in range(3):
    x, y = torch.randn(8, 16).to(device), torch.randn(8, 1).to(device)
    optimizer.zero_grad()
    with torch.autocast(args.device, dtype=torch.float16):
        hidden = checkpoint(model[:2], x, use_reentrant=False)
        loss = ((model[2](hidden) - y) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
state = torch.load(file, weights_only=True)
assert state["model"]["0.weight"].device == model[0].weight.device
assert copy.deepcopy(model)[0].weight.device == model[0].weight.device
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
print("%.4g" % loss.item(), model[0].weight.device.type == args.device)
