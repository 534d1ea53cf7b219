"""GPT: the small transformer whose training steps the PyTorch benchmarks time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["GPT", "Shape", "batch", "make"]


@dataclass(frozen=True)
class Shape:
    """The sizes of the network and of a batch: 0.9 M parameters, 16 x 128 tokens."""

    vocabulary: int = 256
    context: int = 128
    width: int = 128
    heads: int = 4
    layers: int = 4
    batch: int = 16


class Attention(nn.Module):
    """Causal self-attention in plain operations: two matrix products and a softmax."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        above = torch.ones(shape.context, shape.context, dtype=torch.bool).triu(1)
        self.register_buffer("above", above, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(split).permute(2, 0, 3, 1, 4).unbind()
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(self.above[:length, :length], float("-inf"))
        mixed = scores.softmax(-1) @ v
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.fc1 = nn.Linear(shape.width, 4 * shape.width)
        self.fc2 = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embeddings, blocks, a norm and a head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make(shape: Shape, seed: int = 0) -> tuple[GPT, torch.optim.Optimizer]:
    """Return a fresh network and its AdamW optimizer; a seed gives the same weights each time."""
    torch.manual_seed(seed)
    model = GPT(shape)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def batch(shape: Shape, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and the tokens that follow them, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(
        shape.vocabulary, (shape.batch, shape.context + 1), generator=generator
    )
    return drawn[:, :-1], drawn[:, 1:]
