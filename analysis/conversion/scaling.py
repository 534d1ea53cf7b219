"""Scaling: a target whose numbers share scales: a recipe, and how a tensor is cut for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.analysis.conversion.part import Draw, Part, Shape, one_matrix
from fpemu.cast import Rounding
from fpemu.errors import InputError
from fpemu.scaling import FloatElement, Recipe, Scaled, TwoLevel
from fpemu.scaling.elements import Element

__all__ = ["Scaling"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scaling:
    """A recipe: numbers share scales."""

    recipe: Recipe

    limit = math.inf  #: what is clipped depends on the block

    @property
    def name(self) -> str:
        """Its short name, for files."""
        return self.recipe.name

    def __str__(self) -> str:
        return str(self.recipe)

    @property
    def element(self) -> Element:
        """What scaled numbers become."""
        return self.recipe.element

    @property
    def rotated(self) -> bool:
        """Whether numbers are mixed before they are scaled."""
        return self.recipe.rotation is not None

    @property
    def wide(self) -> bool:
        """Whether the scales depend on the largest magnitude of the whole tensor."""
        return self.recipe.block.rows is None or isinstance(self.recipe.rule, TwoLevel)

    @property
    def stochastic(self) -> bool:
        """Whether it needs a seed."""
        element = self.recipe.element
        return isinstance(element, FloatElement) and (
            element.cast.rounding is Rounding.STOCHASTIC
        )

    def view(self, shape: Shape, axis: int) -> tuple[Shape, int]:
        """Return a shape whose blocks are the same and whose first dimension is long.

        Outer dimensions are one where no block crosses them.
        """
        shape = shape or (1,)
        axis = _axis(shape, axis)
        rows = self.recipe.block.rows or 1
        if axis != len(shape) - 1 or len(shape) < 2 or (rows > 1 and shape[-2] % rows):
            return shape, axis
        return one_matrix(shape), 1

    def step(self, shape: Shape, axis: int) -> int | None:
        """Return what a piece's rows must be a multiple of; None: it must be the whole."""
        unit, rotation = self.unit(shape, axis), self.recipe.rotation
        if self.stochastic and not self._draws_in_order(shape, axis):
            return None
        if self.wide and self.rotated:
            return None  # the largest magnitude is that of the mixed numbers
        if unit is None:
            return None
        if rotation is not None and axis == 0:
            unit = math.lcm(unit, rotation.size)
        return math.lcm(unit, 8) if len(shape) == 1 else unit  # so that codes fill whole bytes

    def _draws_in_order(self, shape: Shape, axis: int) -> bool:
        """Whether the numbers of rows are counted one after the other: they are with the axis last.

        And with no block to be filled up between them.
        """
        if len(shape) == 1:
            return True
        rows, columns = self.recipe.block.rows or 1, self.recipe.block.columns or 1
        width = min(columns, shape[-1]) if rows == 1 else columns
        full = shape[-1] % width == 0 and (len(shape) == 2 or shape[-2] % rows == 0)
        return axis == len(shape) - 1 and full

    def unit(self, shape: Shape, axis: int) -> int | None:
        """Return how many rows of the first dimension share scales; None: all."""
        block = self.recipe.block
        if block.rows is None:
            return 1  # all numbers do, in any case
        if axis == 0:
            return block.columns
        before = len(shape) - 2 if axis == len(shape) - 1 else len(shape) - 1
        return block.rows if before == 0 else 1

    def grid(self, shape: Shape, axis: int) -> Shape:
        """Return the shape of the scales: the tensor's, with blocks for numbers."""
        block, axis = self.recipe.block, _axis(shape or (1,), axis)
        if block.rows is None:
            return ()
        if block.columns is None:
            return shape[:axis] + shape[axis + 1 :]
        counts = list(shape or (1,))
        others = [place for place in range(len(counts)) if place != axis]
        counts[axis] = -(-counts[axis] // block.columns)
        if others:
            counts[others[-1]] = -(-counts[others[-1]] // block.rows)
        return tuple(counts)

    def part(self, x: Array, axis: int, top: float | None, draw: Draw, threads: int | None) -> Part:
        """Return what the recipe makes of rows of a tensor; top: its largest magnitude, if wide."""
        with np.errstate(over="ignore"):  # float64 beyond float32
            x = x.astype(np.float32, copy=False)
        step = self.step(x.shape, axis) or 1
        given = x if top is None else _with_top(x, top, step)
        draws = draw._asdict() if self.stochastic else {}
        scaled = self.recipe.quantize(given, axis=axis, threads=threads, **draws)
        values, scales = scaled.dequantize(), scaled.scales
        if self.recipe.block.columns is not None:
            scales = np.moveaxis(scales, -1, axis)
        if len(given) != len(x):
            scales = scales[: -(-len(x) * len(scales) // len(given))] if scales.ndim else scales
        two = isinstance(self.recipe.rule, TwoLevel)
        return Part(values[: len(x)], scaled.codes[: len(x)], scales,
                    scaled.tensor_scale if two else None)  # fmt: skip

    def values(
        self, codes: Array, scales: list[Array], shape: Shape, axis: int, start: int
    ) -> Array:
        """Return the values of some rows' codes, from row `start` on.

        scales: the bytes of those of the whole tensor, and of the tensor's own.
        """
        rule, unit = self.recipe.rule, self.unit(shape, axis) or len(codes)
        kept = scales[0].view(np.dtype(rule.stored).newbyteorder("<"))
        kept = kept.reshape(self.grid(shape, axis))
        if self.recipe.block.rows is not None and len(codes) < shape[0]:
            kept = kept[start // unit : -(-(start + len(codes)) // unit)]
        if self.recipe.block.columns is not None:
            kept = np.moveaxis(kept, axis, -1)
        whole = scales[1].view("<f4")[0] if isinstance(rule, TwoLevel) else np.float32(1)
        kept = np.asarray(kept, order="C")  # a scale of all has no dimension, and keeps none
        found: Array = Scaled(self.recipe, codes, kept, np.float32(whole), axis).dequantize()
        return found


def _axis(shape: Shape, axis: int) -> int:
    if not -len(shape) <= axis < len(shape):
        raise InputError(
            f"axis={axis}: it has {len(shape)} dimensions; leave it out with skip, or take an axis "
            f"from -{len(shape)} to {len(shape) - 1}"
        )
    return axis % len(shape)


def _with_top(x: Array, top: float, step: int) -> Array:
    """Return rows, and after them a block with a magnitude in it that decides the tensor's scale.

    So pieces have the scales of the whole without any rule being written twice.
    """
    full = -(-len(x) // step) * step
    longer = np.zeros((full + step, *x.shape[1:]), np.float32)
    longer[: len(x)] = x
    longer[-1:].flat[0] = top
    return longer
