"""Layout: which numbers of an array share a scale, and the array laid out as lines of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.errors import InputError

__all__ = ["Block", "Lines", "axis_of", "lay_out"]

Array = np.ndarray[Any, Any]

_MOST = 1 << 24  #: numbers of a tile
_TEXT = re.compile(r"([1-9]\d{0,8})x([1-9]\d{0,8})")
_NAMED: dict[str, tuple[int | None, int | None]] = {"tensor": (None, None), "row": (1, None)}


@dataclass(frozen=True, slots=True)
class Block:
    """The shape of what shares a scale: so many rows, and columns along the axis; None: all.

    >>> from fpemu.scaling.layout import Block
    >>> Block.of("1x32"), str(Block(128, 128)), str(Block.of("row"))
    (Block(rows=1, columns=32), '128x128', 'row')
    """

    rows: int | None
    columns: int | None

    def __post_init__(self) -> None:
        shape = (self.rows, self.columns)
        tile = all(type(n) is int and n > 0 for n in shape)
        if not tile and shape not in _NAMED.values():
            raise InputError(
                f"block of {self.rows!r:.20} x {self.columns!r:.20}: must be two ints from 1 on, "
                "1 and None (a row), or None and None (the tensor)"
            )
        if tile and self.rows != 1 and math.prod(map(int, filter(None, shape))) > _MOST:
            raise InputError(
                f"block {self!s:.40}: a tile, which an array is filled up to, holds at most "
                f"{_MOST:,} numbers; give a smaller one, or 'tensor'"
            )

    @classmethod
    def of(cls, text: str) -> Block:
        """Read 'tensor', 'row', '1x32', '128x128'."""
        if text in _NAMED:
            return cls(*_NAMED[text])
        if found := _TEXT.fullmatch(text):
            return cls(int(found[1]), int(found[2]))
        raise InputError(f"block {text!r}: give 'tensor', 'row', or rows x columns such as '1x32'")

    def __str__(self) -> str:
        names = {shape: name for name, shape in _NAMED.items()}
        return names.get((self.rows, self.columns)) or f"{self.rows}x{self.columns}"


@dataclass(frozen=True, slots=True)
class Lines:
    """An array as lines, each with one scale; several lines may have the same one."""

    lines: Array  #: float32 (lines, width), in one piece; zeros fill up what was not full
    shape: tuple[int, ...]  #: of the array with the axis moved to the end
    padded: tuple[int, ...]  #: the same, filled up
    axis: int
    grid: tuple[int, ...]  #: of the scales
    tile: int  #: lines below each other that share a scale

    def shared(self, amax: Array) -> Array:
        """Return the largest magnitude of each block, of those of its lines (as bits)."""
        if self.tile == 1 or not amax.size:
            return amax
        below: Array = amax.reshape(-1, self.tile, self.grid[-1]).max(axis=1)
        return below.reshape(-1)

    def spread(self, factors: Array) -> Array:
        """Return each line's factor, of those of the blocks."""
        if self.tile == 1 or not factors.size:
            return factors
        across = self.grid[-1]
        return np.repeat(factors.reshape(-1, across), self.tile, axis=0).reshape(-1)

    def restored(self, lines: Array) -> Array:
        """Return lines as an array of the first shape."""
        if not self.shape:
            return lines.reshape(())
        cut = lines.reshape(self.padded)[tuple(map(slice, self.shape))]
        return np.ascontiguousarray(np.moveaxis(cut, -1, self.axis))

    def pieces(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield the rows and columns of pieces of about `size` numbers, in order."""
        count, width = self.lines.shape
        if width >= size:
            for row in range(count):
                for start in range(0, width, size):
                    yield slice(row, row + 1), slice(start, min(start + size, width))
            return
        step = max(1, size // max(width, 1))
        for row in range(0, count, step):
            yield slice(row, min(row + step, count)), slice(0, width)


def lay_out(x: Array, block: Block, axis: int) -> Lines:
    """Return a float32 array as the lines of its blocks."""
    axis = axis_of(x, axis)
    moved = np.moveaxis(x, axis, -1) if x.ndim else x
    if block.columns is None:
        return _whole(moved, block, axis)
    rows, columns = block.rows or 1, block.columns
    if rows > 1 and x.ndim < 2:
        raise InputError(
            f"blocks of {block}: need two dimensions, and the array has {x.ndim}; take blocks of "
            "one row"
        )
    matrix = moved if moved.ndim else moved.reshape(1)
    columns = min(columns, max(matrix.shape[-1], 1)) if rows == 1 else columns
    steps = (*(1,) * (matrix.ndim - 2), rows, columns)[-matrix.ndim :]
    counts = [-(-n // step) for n, step in zip(matrix.shape, steps, strict=True)]
    padded = tuple(n * step for n, step in zip(counts, steps, strict=True))
    filled = np.ascontiguousarray(matrix)
    if padded != matrix.shape:
        filled = np.zeros(padded, np.float32)
        filled[tuple(map(slice, matrix.shape))] = matrix
    lines = filled.reshape(filled.size // columns, columns)
    return Lines(lines, moved.shape, padded if moved.ndim else (), axis, tuple(counts), rows)


def _whole(moved: Array, block: Block, axis: int) -> Lines:
    width = moved.size if block.rows is None else (moved.shape[-1] if moved.ndim else 1)
    grid = () if block.rows is None else moved.shape[:-1]
    lines = np.ascontiguousarray(moved).reshape(math.prod(grid), width)
    return Lines(lines, moved.shape, moved.shape, axis, grid, 1)


def axis_of(x: Array, axis: Any) -> int:
    """Return an axis of an array, counted from the front; one that it lacks is an InputError."""
    dimensions = max(x.ndim, 1)  # a scalar is a row of one
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not (
        -dimensions <= axis < dimensions
    ):
        raise InputError(
            f"axis={axis!r:.40}: the array has {x.ndim} dimensions; give an integer from "
            f"-{dimensions} to {dimensions - 1}"
        )
    return int(axis) % dimensions
