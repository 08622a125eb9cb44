"""An LSTM with a hidden state, on noise; LBFGS as the optimizer."""

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
torch.manual_seed(1)
device = torch.device(args.device)
lstm, head = nn.LSTM(4, 8, batch_first=True).to(device), nn.Linear(8, 1).to(device)
optimizer = torch.optim.LBFGS([*lstm.parameters(), *head.parameters()], lr=0.1, max_iter=3)
x, y = torch.randn(6, 5, 4).to(device), torch.randn(6, 1).to(device)


def closure():
    optimizer.zero_grad()
    loss = ((head(lstm(x)[0][:, -1]) - y) ** 2).mean()
    loss.backward()
    return loss


for step in range(2):
    loss = optimizer.step(closure)
print("%.5g" % loss.item())
