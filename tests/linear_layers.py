"""A linear layer and numbers for it, as the tests of recipes and of accumulators use them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["drawn", "layer"]


def drawn(*shape: int, seed: int = 0) -> Any:
    """Numbers of many magnitudes."""
    random = torch.Generator().manual_seed(seed)
    size = torch.randn(*shape, generator=random).exp()
    return torch.randn(*shape, generator=random) * size


def layer(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A layer that is the same each time."""
    torch.manual_seed(7)
    return nn.Linear(inputs, outputs, bias=bias)
