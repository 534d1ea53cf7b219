"""Accumulate: products of operands whose scales are apart, as a chip's units or a format adds them.

Hardware multiplies elements and scales the sum: once where a scale is of a whole line, or each
slice's sum where blocks along the sum have scales of their own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from fpemu import arithmetic, tensorcore
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.policies import Products
from fpemu.policies.accumulators import Accumulator, OnChip, accumulator_text
from fpemu.scaling import FloatElement, Recipe
from fpemu.scaling.hadamard import Hadamard
from fpemu.torch.inplace import SMALL, array_of

__all__ = ["Operand", "accumulated", "doubts", "split"]

Tensor = torch.Tensor
Array = np.ndarray[Any, Any]

_ONE = np.ones((1, 1), np.float32)


class Operand(NamedTuple):
    """One factor of a product: its numbers, or elements and the factors that belong to them."""

    values: Tensor
    factors: Tensor | None = None  #: float32, one for each block; None: the numbers are values
    block: tuple[int, int] = (0, 0)  #: rows and columns of one; 0: all there are
    form: Format | None = None  #: of the elements, if it is a float format
    rotation: Hadamard | None = None

    @property
    def mT(self) -> Operand:
        """The operand with rows and columns changed."""
        turned = None if self.factors is None else self.factors.mT
        return self._replace(values=self.values.mT, factors=turned, block=self.block[::-1])


def split(recipe: Recipe, x: Tensor, axis: int, options: dict[str, Any]) -> Operand:
    """Return the elements of a tensor by a recipe, and their factors; blocks lie along an axis."""
    turned = np.ascontiguousarray(array_of(x if axis == -1 else x.mT))
    threads = None if x.numel() < SMALL else torch.get_num_threads()
    scaled = recipe.quantize(turned, axis=-1, threads=threads, **options)
    elements = np.asarray(recipe.element.decode(scaled.codes.reshape(-1)), np.float32)
    with np.errstate(all="ignore"):
        kept = np.asarray(recipe.rule.kept(np.asarray(scaled.scales), scaled.tensor_scale))
        factors = 1 / kept if recipe.rule.divides else kept
    shape, block = turned.shape, (recipe.block.rows or 0, recipe.block.columns or 0)
    if not block[1]:  # one for each row, or for all
        grid = (*shape[:-1], 1) if block[0] else (1, 1)
    else:
        grid = (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))
    found = Operand(
        torch.from_numpy(elements.reshape(shape)),
        torch.from_numpy(np.array(factors, np.float32).reshape(grid)),
        block,
        recipe.element.cast.format if isinstance(recipe.element, FloatElement) else None,
        recipe.rotation,
    )
    return found if axis == -1 else found.mT


def accumulated(a: Operand, b: Operand, by: Accumulator) -> Tensor:
    """Return a b, elements multiplied and added up by an accumulator, sums scaled in float32.

    Where factors differ along the sum, each slice between them is a sum of its own, scaled and
    added to the others in float32 by one fused multiply-add, as DeepGEMM's kernels do on Hopper.
    """
    if a.rotation != b.rotation:
        raise InputError(
            f"accumulate={accumulator_text(by)}: one operand is rotated, and the other is not; "
            "elements can be multiplied only where both are"
        )
    x, y = array_of(a.values), array_of(b.values)
    depth = x.shape[-1]
    if not depth:
        return a.values @ b.values
    spans = [n for n in (a.block[1], b.block[0]) if 0 < n < depth]
    if not spans:
        sums, factors = _sums(x, y, a, b, by), _factors(a, b, 0)
        with np.errstate(all="ignore"):  # infinity and NaN are what the chip gives, too
            return torch.from_numpy(sums * factors)
    step = math.gcd(*spans)
    out = np.zeros((*x.shape[:-1], y.shape[-1]), np.float32)
    for start in range(0, depth, step):
        cut = slice(start, start + step)
        partial = _sums(x[..., cut], y[..., cut, :], a, b, by)
        factors = np.broadcast_to(_factors(a, b, start), out.shape)
        out = arithmetic.fma(factors, partial, out, "float32")
    return torch.from_numpy(out)


def doubts(products: Products) -> str | None:
    """Return what is not known of how a chip adds products up under these recipes, if anything."""
    by = products.accumulate
    if not isinstance(by, OnChip):
        return None
    spans = {
        scaler.block.columns
        for scaler in (products.x, products.dy, products.wgrad_x)
        if isinstance(scaler, Recipe) and scaler.block.columns
    }
    if not spans or (by.chip.name == "hopper" and spans == {128}):  # as DeepGEMM does there
        return None
    sizes = ", ".join(map(str, sorted(spans)))
    return (
        f"block scales on {by.chip.name}: how it adds blocks of {sizes} is "
        "not recorded; each block is summed by itself, scaled, and added in float32"
    )


def _sums(x: Array, y: Array, a: Operand, b: Operand, by: Accumulator) -> Array:
    """The sums of products of elements."""
    threads = None if x.size * y.shape[-1] < SMALL else torch.get_num_threads()
    if not isinstance(by, OnChip):
        found = arithmetic.matmul(x, y, by, threads=threads)
    else:
        if a.form is None or b.form is None:
            raise InputError(
                f"accumulate={by}: an operand's elements are of no float format; give it another "
                "recipe"
            )
        forms = (a.form, b.form)
        found = tensorcore.mma(
            x, y, chip=by.chip, to=forms, out=by.out, promote=by.promote, threads=threads
        )
    return np.asarray(found, np.float32)


def _factors(a: Operand, b: Operand, place: int) -> Array:
    """What the sums from a place on are multiplied by: (rows or 1, columns or 1)."""
    rows, columns = a.values.shape[-2], b.values.shape[-1]
    left = _ONE if a.factors is None else a.factors.numpy()
    right = _ONE if b.factors is None else b.factors.numpy()
    i = place // a.block[1] if a.block[1] else 0
    j = place // b.block[0] if b.block[0] else 0
    left = _spread(left[..., i : i + 1], a.block[0], -2, rows)
    right = _spread(right[..., j : j + 1, :], b.block[1], -1, columns)
    with np.errstate(all="ignore"):
        found: Array = left * right
    return found


def _spread(factors: Array, tile: int, axis: int, count: int) -> Array:
    """Factors of blocks as one for each line."""
    if tile < 2 or factors.shape[axis] == count:
        return factors
    many: Array = np.repeat(factors, tile, axis=axis)
    return many[..., :count, :] if axis == -2 else many[..., :count]
