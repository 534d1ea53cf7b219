"""Device layout: an array's blocks as the rows and segments that the CUDA kernels work through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.kernels.cuda_segments import Layout, Segments
from fpemu.kernels.cuda_target import Words
from fpemu.scaling.layout import Block, axis_of

__all__ = ["Grid", "lay_out"]

_WIDE = 128  #: numbers of a segment where a block has any number of columns
_DEEP = 64  #: the same where a thread has a segment of its own
_ONE_PASS = 1024  #: numbers of a block, at most, that stay in the cache until they are rounded


@dataclass(frozen=True, slots=True)
class Grid:
    """A dense array in C order as rows along an axis, and its blocks.

    Rows that are cut into whole blocks, or into none, count as one long row where they lie in one
    piece: it has no ends to look after.
    """

    axis: int
    length: int  #: numbers along the axis
    inner: int  #: from one of them to the next
    step: int  #: from one number of a row to the next; 1 where rows lie in one piece
    rows: int
    width: int  #: numbers of a row
    columns: int  #: numbers of a segment
    tile: int  #: rows that share a scale; 0: all
    alone: bool  #: a segment is all of a block's columns
    high: int  #: rows of a matrix
    counted_width: int  #: numbers of a row as random bits count them: filled up to whole blocks
    shape: tuple[int, ...]  #: of the scales

    @property
    def blocks(self) -> int:
        """How many scales there are."""
        return math.prod(self.shape)

    @property
    def across(self) -> int:
        """Segments of a row."""
        return -(-self.width // self.columns)

    @property
    def units(self) -> int:
        """Segments in all."""
        return self.rows * self.across

    @property
    def one_pass(self) -> bool:
        """Whether a block is one segment, and no larger than a cache likes."""
        return self.alone and self.tile == 1 and self.columns <= _ONE_PASS

    @property
    def counted(self) -> int:
        """How many numbers random bits are counted for."""
        rows = self.rows
        if self.tile > 1:
            rows = self.rows // max(self.high, 1) * self._counted_high
        return rows * self.counted_width

    @property
    def _counted_high(self) -> int:
        return -(-self.high // self.tile) * self.tile if self.tile else self.high

    def layout(self, first: int) -> Any:
        """Return what kernels need at run time; first: number of the first draw."""
        down = -(-self.high // self.tile) if self.tile else 1
        facts = Layout(self.units, self.width, self.step, self.across, self.high, down,
                       self._counted_high, self.counted_width, first)  # fmt: skip
        return tuple(map(np.uint64, facts))

    def segments(self, *arrays: Words) -> Segments:
        """Return what is built into kernels over some arrays' memory."""
        whole = self.width % 4 == 0 and self.columns % 4 == 0
        wide = all(words.pointer % (4 * words.dtype.itemsize) == 0 for words in arrays)
        strided = self.step > 1
        group = 4 if whole and wide and not strided else 1
        return Segments(self.columns, group, strided, self.tile, self.alone)


def lay_out(shape: tuple[int, ...], block: Block, axis: Any, drawn: bool) -> Grid:
    """Return the grid of an array of a shape; drawn: its numbers are counted for random bits."""
    axis = axis_of(np.broadcast_to(np.float32(0), shape), axis)
    full = shape or (1,)
    length, inner = full[axis], math.prod(full[axis + 1 :])
    rows = math.prod(full[:axis]) * inner
    moved = (*full[:axis], *full[axis + 1 :], length)
    if block.rows is None:
        return _tensor(axis, length, inner, rows, drawn)
    if block.columns is None:
        size = _DEEP if inner > 1 else _WIDE
        scales = moved[:-1] if shape else ()
        return Grid(axis, length, inner, inner, rows, length, size, 1, False, 1, length, scales)
    if block.rows > 1 and len(shape) < 2:
        raise InputError(
            f"blocks of {block}: need two dimensions, and the array has {len(shape)}; take blocks "
            "of one row"
        )
    return _blocks(block.rows, block.columns, axis, inner, moved)


def _tensor(axis: int, length: int, inner: int, rows: int, drawn: bool) -> Grid:
    if inner == 1 or not drawn:  # the order of numbers does not matter
        size = rows * length
        return Grid(axis, length, inner, 1, 1, size, _WIDE, 0, False, 1, size, ())
    return Grid(axis, length, inner, inner, rows, length, _DEEP, 0, False, 1, length, ())


def _blocks(tile: int, columns: int, axis: int, inner: int, moved: tuple[int, ...]) -> Grid:
    rows, length = math.prod(moved[:-1]), moved[-1]
    across = -(-length // columns)
    if tile > 1:
        high = moved[-2]
        shape = (*moved[:-2], -(-high // tile), across)
        return Grid(axis, length, inner, inner, rows, length, columns, tile, True, high,
                    across * columns, shape)  # fmt: skip
    shape = (*moved[:-1], across)
    if inner == 1 and length % columns == 0:
        size = rows * length
        return Grid(axis, length, 1, 1, 1, size, columns, 1, True, 1, size, shape)
    counted = across * min(columns, max(length, 1))
    return Grid(axis, length, inner, inner, rows, length, columns, 1, True, 1, counted, shape)
