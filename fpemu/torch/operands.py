"""Operands: one factor of a product through its recipe, along the axis that is summed over."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from fpemu.cast import Cast
from fpemu.policies import Products
from fpemu.scaling import Block, Delayed, Recipe
from fpemu.torch.accumulate import Operand, accumulated, split
from fpemu.torch.inplace import SMALL, array_of
from fpemu.torch.state import State

__all__ = ["Work", "largest", "rounded_by"]

Tensor = torch.Tensor

_FLOAT32 = Cast("float32").format

_BACKWARD = ("dy", "dgrad_w", "wgrad_dy", "wgrad_x")


class Work(NamedTuple):
    """What is to be done with the operands of one layer's products."""

    state: State
    products: Products
    layer: str
    result: Cast | None  #: the format of what a product gives
    learns: bool  #: whether delayed scaling takes note of what it meets
    again: bool  #: whether a forward pass is computed once more

    def operand(self, role: str, x: Tensor, axis: int, own: Cast | None) -> Operand:
        """Return an operand rounded along an axis, -1 or -2; as it is if nothing rounds it.

        own: the format that x carries. Scales are apart where an accumulator is to have elements.
        """
        scaler = getattr(self.products, role)
        if isinstance(scaler, Delayed):
            scaler = self._delayed(role, scaler, x)
        if scaler is None:
            return Operand(x, form=_FLOAT32 if own is None else own.format)
        if self.products.accumulate is None:
            return Operand(rounded_by(scaler, x, axis, self.state))
        filled, options = _prepared(scaler, x, axis, self.state)
        return split(scaler, filled, axis, options)

    def times(self, a: Operand, b: Operand) -> Tensor:
        """Return the product of two operands; zeros go with what a rotation filled up."""
        x, y = a.values, b.values
        missing = x.shape[-1] - y.shape[-2]
        if missing > 0:
            b = b._replace(values=torch.nn.functional.pad(y, (0, 0, 0, missing)))
        elif missing < 0:
            a = a._replace(values=torch.nn.functional.pad(x, (0, -missing)))
        by = self.products.accumulate
        return a.values @ b.values if by is None else accumulated(a, b, by)

    def shares(self, first: str, second: str) -> bool:
        """Whether two products use the very same rounded numbers, one of them transposed."""
        scaler = getattr(self.products, first)
        if scaler != getattr(self.products, second):
            return False
        if isinstance(scaler, Recipe):
            return scaler.block.rows == scaler.block.columns and scaler.rotation is None
        return True

    def _delayed(self, role: str, start: Delayed, x: Tensor) -> Recipe:
        delays = self.state.delays
        again = self.again and role not in _BACKWARD
        state = delays.state(self.layer, role, start, again)
        if self.learns and not again:
            delays.saw(self.layer, role, state, largest(x), role in _BACKWARD)
        return state.recipe()


def largest(x: Tensor) -> float:
    """Return a tensor's largest magnitude, 0 for one that is empty; NaN with NaN or infinity."""
    if not x.numel():
        return 0.0
    low, high = torch.aminmax(x.detach())
    amax = max(-low.item(), high.item())
    return amax if math.isfinite(amax) else math.nan


def rounded_by(recipe: Recipe, x: Tensor, axis: int, state: State) -> Tensor:
    """Return what a recipe leaves of a tensor, in a new one; its blocks lie along an axis.

    A rotation goes by whole groups: its last one is filled up with zeros, which are no zeros once
    they are rotated and rounded. They belong to the product, and come with the result.
    """
    filled, options = _prepared(recipe, x, axis, state)
    turned = filled if axis == -1 else filled.mT
    given: Any = turned if x.is_cuda else array_of(turned)
    threads = None if x.numel() < SMALL else torch.get_num_threads()
    made = recipe.round(given, axis=-1, threads=threads, **options)
    out = made if x.is_cuda else torch.from_numpy(made)
    return out if axis == -1 else out.mT


def _prepared(
    recipe: Recipe, x: Tensor, axis: int, state: State
) -> tuple[Tensor, dict[str, Any]]:
    """A tensor filled up for a rotation along an axis, and where random bits come from."""
    turned = x.detach() if axis == -1 else x.detach().mT
    if recipe.rotation is not None and turned.shape[-1] % recipe.rotation.size:
        turned = torch.nn.functional.pad(turned, (0, -turned.shape[-1] % recipe.rotation.size))
    options = state.draws.recipe_options(recipe.element, _count(turned.shape, recipe.block))
    return (turned if axis == -1 else turned.mT), options


def _count(shape: torch.Size, block: Block) -> int:
    """How many numbers there are once all blocks are filled up: what random bits are drawn for."""
    steps = (block.rows or 1, block.columns or 1)
    filled = [-(-n // step) * step for n, step in zip(shape[-2:], steps, strict=True)]
    return math.prod((*shape[:-2], *filled))
