"""Models that are awkward to watch, and what trains them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["MODELS", "Gate", "Net", "batch", "train"]


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        y = self.fc(x)
        y += x
        return y


class Shared(nn.Module):
    """One layer used twice, and a weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.fc.weight

    def forward(self, x):
        return self.last(self.fc(self.fc(x)))


class Nested(nn.Module):
    """Outputs in a dict, a tuple and a list."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            y = self.fc(x)
            with torch._C.DisableTorchFunction():  # as operations of extensions are
                unseen = y * 3
            return {"a": y.tanh(), "rest": (unseen, [Double.apply(y), 3])}

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x):
        out = self.inner(x)
        return out["a"] + out["rest"][0] - out["rest"][1][0]


class Double(torch.autograd.Function):
    """A custom function, whose forward pass runs without gradients."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        if self.reentrant is None:
            return self.block(x) * 2
        return checkpoint(self.block, x, use_reentrant=self.reentrant) * 2


class Gate(nn.Module):
    """Attention with a mask, a loop, two additions in one line, a helper called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        h = self.fc(x)
        scores = h @ h.t()
        above = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
        h = F.softmax(scores, dim=-1) @ h
        for _ in range(3):
            h = torch.sin(h)
        h = (h + x) + self.fc.bias
        return half(half(h))


def half(x):
    return x * 0.5


class Mapped(nn.Module):
    """A transformation of torch.func, inside which tensors have no numbers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.vmap(lambda row: torch.sin(self.fc(row)))(x)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "inplace": lambda: nn.Sequential(
        nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 8)
    ),
    "residual": lambda: nn.Sequential(Residual(8), nn.Tanh(), Residual(8)),
    "shared": Shared,
    "nested": Nested,
    "plain": lambda: Checkpointed(None),
    "checkpoint": lambda: Checkpointed(False),
    "reentrant": lambda: Checkpointed(True),
    "gate": Gate,
    "norms": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.LayerNorm(8)),
    "recurrent": lambda: nn.Sequential(nn.LSTM(8, 8), First()),
    "mapped": Mapped,
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1),
}


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


class Net(nn.Module):
    """Two layers with a functional operation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


def batch(step: int) -> torch.Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(step))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    watched: Any = None,
    micro: int = 1,
) -> None:
    """Train, watched or not; micro: backward passes in a step."""
    with watched if watched is not None else contextlib.nullcontext():
        for step in range(steps):
            for part in range(micro):
                model(batch(step * micro + part)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
