"""A transformer of two blocks with attention, layer norms, dropout and AdamW on noise."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=16)
args = parser.parse_args()
WORDS = 64


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.proj(y.transpose(1, 2).reshape(n, t, c)), 0.1)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


torch.manual_seed(1)
device = torch.device(args.device)
with torch.device(args.device):
    model = nn.Sequential(nn.Embedding(WORDS, args.width),
                          *[Block(args.width) for _ in range(args.layers)],
                          nn.LayerNorm(args.width), nn.Linear(args.width, WORDS))
if args.device == "cuda":  # on a CPU it would change the random numbers
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    words = torch.randint(WORDS, (args.batch, args.length + 1), device=device)
    logits = model(words[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, WORDS), words[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("%.6g" % loss.item())
