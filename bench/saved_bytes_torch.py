#!/usr/bin/env python3
"""The bytes that a training step of resnet18 and mobilenet_v3_large keeps for the backward, in f32: Ferry beside PyTorch.

PyTorch's are those of torch.autograd.graph.saved_tensors_hooks around forward and loss: each storage counts once, parameters, buffers
and the inputs do not count. Models: those of tests/unit/train/models_reference.py (resnet18 with its activations in place, as torchvision
has them, and not) and, if torchvision is installed, its mobilenet_v3_large, whose activations are in place. Ferry's: bench/saved_bytes.c.
Usage: saved_bytes_torch.py build/release/bin/bench/saved_bytes. Nothing is asserted.
"""

import argparse
import os
import subprocess
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "unit", "train"))
import models_reference as reference

CASES = (
    ("resnet18", "resnet18:channels=1,classes=10,size=32", (1, 32, 32), 128),
    ("mobilenet_v3_large", "mobilenet_v3_large:classes=10,size=224", (3, 224, 224), 16),
)


def in_place(model):
    """As torchvision: activations overwrite their input."""
    for module in model.modules():
        if isinstance(module, (nn.ReLU, nn.Hardswish)):
            module.inplace = True
    return model


class Block(reference.ResidualBlock):
    """The same with relu in place."""

    def forward(self, x):
        y = torch.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return torch.relu_(y)


def saved_bytes(model, shape, batch):
    constants = {t.untyped_storage().data_ptr() for t in list(model.parameters()) + list(model.buffers())}
    x, y = torch.rand(batch, *shape), torch.zeros(batch, dtype=torch.int64)
    constants |= {x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()}
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in constants:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(x), y)
    nbytes = sum(storages.values())
    loss.backward()
    return nbytes


def ferry_bytes(program, spec, batch):
    text = subprocess.run([program, spec, str(batch)], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}


def networks(name):
    """PyTorch's ways: a title and a model each."""
    if name == "resnet18":
        yield "activations not in place", reference.ResNet18()
        reference.ResidualBlock = Block
        yield "in place", reference.ResNet18()
        return
    yield "activations not in place", reference.MobileNetV3Large()
    yield "in place", in_place(reference.MobileNetV3Large())
    try:
        from torchvision.models import mobilenet_v3_large
    except ImportError:
        return
    yield "torchvision's", mobilenet_v3_large(num_classes=10)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/release/bin/bench/saved_bytes")
    args = parser.parse_args()
    print("PyTorch %s\n" % torch.__version__)
    print("| model, batch | PyTorch | its MB | Ferry, MB | ratio | cheap ops again, MB | ratio |\n|---|---|---:|---:|---:|---:|---:|")
    for name, spec, shape, batch in CASES:
        ours = ferry_bytes(args.program, spec, batch)
        for title, model in networks(name):
            theirs = saved_bytes(model, shape, batch)
            cells = ["%s, %d" % (name, batch), title, "%.1f" % (theirs / 1e6)]
            for way in ("plain", "cheap"):
                cells += ["%.1f" % (ours[way] / 1e6), "%.2f" % (ours[way] / theirs)]
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
