"""Small modules in PyTorch."""

import torch
from torch import nn
from torch.nn import functional


class Digits(nn.Module):
    """The digits net of the samples, with modules named as its ONNX nodes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu1 = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()
        self.conv2, self.relu2 = nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()
        self.pool1 = nn.MaxPool2d(2)
        self.dwconv, self.relu3 = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU()
        self.pwconv, self.relu4 = nn.Conv2d(16, 24, 1), nn.ReLU()
        self.pool2, self.flat = nn.AdaptiveAvgPool2d(2), nn.Flatten()
        self.fc1, self.relu5, self.logits = nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10)

    def forward(self, x):
        for module in self.children():
            x = module(x)
        return x


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln2, self.up, self.act = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, places, width = x.shape
        parts = self.qkv(self.ln1(x)).view(batch, places, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(batch, places, width))
        return x + self.down(self.act(self.up(self.ln2(x))))


class Transformer(nn.Module):
    """Two layers, with an embedding of words and places."""

    def __init__(self, words=50, width=32, places=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(places, width) / 10)
        self.layers = nn.ModuleList([Block(width, 4), Block(width, 4)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids):
        x = self.words(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Overwriting(nn.Module):
    """Residual blocks whose ReLU overwrites what it reads, and a view that is written through; counts its calls."""

    def __init__(self, *, inplace=True):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(3)])
        self.relu, self.inplace = nn.ReLU(inplace=inplace), inplace
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.relu(self.relu(norm(conv(x))) + x)
        if self.inplace:
            view = x[:, 0]
            view.mul_(2)
            self.calls += 1
            return x.mean((2, 3)) + self.calls
        return torch.cat([x[:, :1] * 2, x[:, 1:]], 1).mean((2, 3))
