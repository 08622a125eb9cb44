"""Trains a small convolutional network on MNIST (without the files: on noise) as most scripts do."""

import argparse
import gzip
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--data", default="")
parser.add_argument("--samples", type=int, default=96)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()


def read(name, skip, nbytes, top):
    path = os.path.join(args.data, name)
    if not args.data or not os.path.exists(path):
        return np.random.default_rng(1).integers(0, top, nbytes, np.uint8)
    with gzip.open(path) as file:
        return np.frombuffer(file.read(skip + nbytes), np.uint8)[skip:].copy()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(8 * 12 * 12, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.out(self.drop(torch.flatten(x, 1))), 1)


images = read("train-images-idx3-ubyte.gz", 16, args.samples * 784, 255)
labels = read("train-labels-idx1-ubyte.gz", 8, args.samples, 10)
data = TensorDataset(torch.from_numpy(images).view(-1, 1, 28, 28).float().div_(255),
                     torch.from_numpy(labels).long())
torch.manual_seed(1)
device = torch.device(args.device)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=2,
                    pin_memory=args.device == "cuda")
for epoch in range(args.epochs):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print("%.9g" % loss.item())
