#!/usr/bin/env python3
"""Compares ResNet-18, MobileNetV3-Large, a vision transformer and a GPT of Ferry with PyTorch's: the same weights, inputs and targets, one step in training.
PROGRAM (test_unit_train) writes weights, logits, loss and gradients of each model; the weights become the state dict of
a PyTorch module with the same names. Logits agree to 1e-4, gradients and running statistics to 1e-3 of their norm.
Exit status: 0 they agree, 1 they do not, 77 PyTorch, NumPy or safetensors is not installed.
Usage: models_reference.py PROGRAM [--record FILE]      --record writes what the test reads where PyTorch is not installed"""

import math
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from safetensors import safe_open
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print("not compared: %s" % error)
    sys.exit(77)


def sequence(*layers):
    return nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()
        )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(64)
        for i, (inputs, outputs) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)]):
            stride = 1 if inputs == outputs else 2
            stage = sequence(
                ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)
            )
            setattr(self, "layer%d" % (i + 1), stage)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def conv_norm(inputs, outputs, kernel, stride, groups, activation):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    return sequence(conv, norm, activation() if activation else nn.Identity())


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        scale = self.fc2(torch.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * functional.hardsigmoid(scale)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, expanded, outputs, kernel, stride, squeezed, activation):
        super().__init__()
        layers = []
        if expanded != inputs:
            layers.append(conv_norm(inputs, expanded, 1, 1, 1, activation))
        layers.append(conv_norm(expanded, expanded, kernel, stride, expanded, activation))
        if squeezed:
            layers.append(SqueezeExcite(expanded, squeezed))
        layers.append(conv_norm(expanded, outputs, 1, 1, 1, None))
        self.block = sequence(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return self.block(x) + x if self.adds else self.block(x)


class MobileNetV3Large(nn.Module):
    ROWS = (
        "16 16 16 3 1 0 R,16 64 24 3 2 0 R,24 72 24 3 1 0 R,24 72 40 5 2 24 R,40 120 40 5 1 32 R,40 120 40 5 1 32 R,"
        "40 240 80 3 2 0 H,80 200 80 3 1 0 H,80 184 80 3 1 0 H,80 184 80 3 1 0 H,80 480 112 3 1 120 H,"
        "112 672 112 3 1 168 H,112 672 160 5 2 168 H,160 960 160 5 1 240 H,160 960 160 5 1 240 H"
    )

    def __init__(self):
        super().__init__()
        layers = [conv_norm(3, 16, 3, 2, 1, nn.Hardswish)]
        for row in self.ROWS.split(","):
            numbers, activation = row.rsplit(" ", 1)
            kind = nn.ReLU if activation == "R" else nn.Hardswish
            layers.append(InvertedResidual(*map(int, numbers.split()), kind))
        layers.append(conv_norm(160, 960, 1, 1, 1, nn.Hardswish))
        self.features = sequence(*layers)
        self.classifier = sequence(
            nn.Linear(960, 1280), nn.Hardswish(), nn.Identity(), nn.Linear(1280, 10)
        )

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class VitBlock(nn.Module):
    """As timm's: the parameters have its names."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}
        )
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)}
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.attn["qkv"](self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.attn["proj"](y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, classes=10, size=32, patch=8, layers=2, width=192, heads=3):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.blocks = nn.ModuleList([VitBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)}
        )
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.attn["c_attn"](self.ln_1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(batch, length, width))
        y = functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Gpt(nn.Module):
    def __init__(self, layers=2, heads=2, width=32, context=16, vocab=50):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList([GptBlock(width, heads) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width),
            }
        )

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight[: tokens.shape[1]]
        for block in parts["h"]:
            x = block(x)
        return functional.linear(parts["ln_f"](x), parts["wte"].weight)


MODELS = {
    "resnet18:size=16": ResNet18,
    "mobilenet_v3_large:classes=10,size=64,dropout=0": MobileNetV3Large,
    "vit_tiny:classes=10,size=32,patch=8,layers=2": Vit,
    "gpt:layers=2,heads=2,width=32,context=16,vocab=50": Gpt,
}


def as_torch(array):
    """Weights of convolutions are OHWI there, OIHW here."""
    tensor = torch.from_numpy(numpy.ascontiguousarray(array))
    return tensor.permute(0, 3, 1, 2).contiguous() if tensor.dim() == 4 else tensor


def read(program, model):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        subprocess.run([program, "models_reference", model, file.name], check=True)
        with safe_open(file.name, "numpy") as content:
            return {name: content.get_tensor(name) for name in content.keys()}


def load(module, ours):
    """Running statistics start at 0 and 1: the file has those after the step."""
    state = {name: as_torch(ours[name]) for name in ours if name in module.state_dict()}
    for name in state:
        if name.endswith("running_mean"):
            state[name] = torch.zeros_like(state[name])
        if name.endswith("running_var"):
            state[name] = torch.ones_like(state[name])
    missing = module.load_state_dict(state, strict=False).missing_keys
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    unknown = [name for name in ours if "grad." + name in ours and name not in state]
    if missing or unknown:
        sys.exit("names differ: PyTorch alone %s, Ferry alone %s" % (missing, unknown))


def run(model, ours):
    """Logits, loss, gradients and buffers by PyTorch, in float64."""
    module = MODELS[model]()
    load(module, ours)
    module.double().train()
    x = torch.from_numpy(ours["x"])
    if x.dim() == 4:
        x = x.permute(0, 3, 1, 2).double()
    logits = module(x)
    targets = torch.from_numpy(ours["y"]).long().flatten()
    loss = functional.cross_entropy(logits.flatten(0, -2), targets)
    loss.backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    buffers = {n: b for n, b in module.named_buffers() if not n.endswith("num_batches_tracked")}
    return logits.detach(), loss.detach(), grads, buffers


def compare(model, ours, theirs):
    logits, loss, grads, buffers = theirs
    worst = {}

    def check(what, got, want, bound, scale=0):
        scale = max(float(want.norm()), scale, 1e-12)
        difference = got.double() - want
        error = float(difference.abs().max() if what == "logits" else difference.norm() / scale)
        key = what.split(" ")[0]
        worst[key] = max(worst.get(key, 0), error)
        if not error <= bound:
            print("%s: %s differs by %.3g, bound %g" % (model, what, error, bound))
            return 1
        return 0

    bad = check("logits", torch.from_numpy(ours["logits"]), logits, 1e-4)
    bad += check("loss", torch.from_numpy(ours["loss"]), loss, 1e-4)
    small = 1e-4 * max(float(g.norm()) for g in grads.values())
    for name, grad in grads.items():
        # a bias before a batch norm has no gradient but rounding errors
        if float(grad.norm()) > small:
            bad += check("gradient of " + name, as_torch(ours["grad." + name]), grad, 1e-3)
    for name, buffer in buffers.items():
        # a running mean may be 0 but for rounding errors: relative to the spread
        spread = buffers[name.replace("running_mean", "running_var")].sqrt().norm()
        bad += check("buffer " + name, as_torch(ours[name]), buffer, 1e-3, float(spread))
    print(model, " ".join("%s %.2g" % item for item in worst.items()))
    return bad


def weighted(values):
    return sum((1 + place / 16) * value for place, value in enumerate(values))


def block_of(name):
    """A parameter's name up to its first number, or without its last part."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1] if numbers else parts[:-1] or parts)


def lines(model, theirs):
    """Sums, so that there are few lines; test_models_reference.c computes them, too."""
    logits, loss, grads, buffers = theirs
    values = logits.flatten()[:60].tolist()
    for i in range(0, len(values), 10):
        yield "%s logits %d %.9g" % (model, i, weighted(values[i : i + 10]))
    yield "%s loss - %.9g" % (model, float(loss))
    small = 1e-4 * max(float(g.norm()) for g in grads.values())
    for kind, tensors, least in ("norms", grads, small), ("buffers", buffers, -1):
        blocks = {}
        for name, tensor in tensors.items():
            norm = float(tensor.norm())
            log = math.log(0.001 + norm) if norm > least else 0
            blocks.setdefault(block_of(name), []).append(log)
        for block, logs in blocks.items():
            yield "%s %s %s %.9g" % (model, kind, block, weighted(logs))


def main():
    program = sys.argv[1]
    bad, text = 0, []
    for model in MODELS:
        ours = read(program, model)
        theirs = run(model, ours)
        if not math.isfinite(float(theirs[1])):
            sys.exit("%s: the loss is not finite" % model)
        bad += compare(model, ours, theirs)
        text += lines(model, theirs)
    if sys.argv[2:3] == ["--record"]:
        with open(sys.argv[3], "w", encoding="ascii") as file:
            file.write("\n".join(text) + "\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
