"""A GRU on packed sequences, and a forward pass in inference mode."""

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
torch.manual_seed(1)
gru = nn.GRU(8, 4, 2, batch_first=True, bidirectional=True).to(args.device)
x = torch.randn(3, 5, 8).to(args.device).requires_grad_()
packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
out, lengths = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
out.pow(2).sum().backward()
norm = nn.BatchNorm1d(8).to(args.device).eval()
with torch.inference_mode():
    image = torch.relu(norm(nn.functional.linear(x[:, 0], torch.ones_like(x[0, 0]).expand(8, 8))))
print(lengths.tolist(), "%.6g" % x.grad.sum().item(), "%.6g" % image.sum().item())
