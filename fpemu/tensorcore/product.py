"""Product: two stacks of matrices laid out for the loops, and their products added to sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fpemu.emulate import round as round_to
from fpemu.format import Format
from fpemu.kernels.cpu_aligned import WIDTH
from fpemu.kernels.pool import SMALL, run_chunks
from fpemu.tensorcore.operands import Plane, Shape, plane
from fpemu.tensorcore.sums import Sum

__all__ = ["Product"]

Array = np.ndarray[Any, Any]

#: Rows of a tile, for which a block of b's columns is read once.
_ROWS = 64

#: Fewer columns than this are too few for vectors; rows take their place if there are more.
_FEW = 16


class Product(NamedTuple):
    """Stacks of matrices, the way in which their products are added, and the threads for it."""

    a: Plane  #: (matrix, row, product of a sum)
    b: Plane  #: (matrix, product of a sum, column)
    rule: Sum
    wide: bool  #: in float64
    flipped: bool  #: a and b, and rows and columns, have changed places
    threads: int | None

    @classmethod
    def of(
        cls, codes: tuple[Array, Array], forms: tuple[Format, Format], shape: Shape, rule: Sum,
        threads: int | None,
    ) -> Product:  # fmt: skip
        """Lay out two operands, given as codes of their formats."""
        x, y = shape.stacked(*codes)
        flipped = y.codes.shape[2] < min(_FEW, x.codes.shape[1])
        if flipped:
            x, y, forms = y.turned, x.turned, forms[::-1]
        wide = rule.wide(*forms)
        a, b = plane(x, forms[0], wide, threads), plane(y, forms[1], wide, threads)
        if not (wide or (a.finite and b.finite)):
            wide = True
            a, b = plane(x, forms[0], wide, threads), plane(y, forms[1], wide, threads)
        return cls(a, b, rule, wide, flipped, threads)

    def added_to(self, sums: Array, span: int | None) -> Array:
        """Return float64 sums with the products added, `span` of them in each partial sum."""
        _, rows, depth = self.a.values.shape
        matrices, columns = len(self.a.which), self.b.values.shape[2]
        sizes = (matrices, columns, rows) if self.flipped else (matrices, rows, columns)
        held = sums.reshape(sizes)
        if self.flipped:
            held = np.ascontiguousarray(held.transpose(0, 2, 1))
        spans = [span] if span else []
        spans += [self.rule.group] if self.rule.separate else []
        self._add(held, 0, depth, spans)
        return (held.transpose(0, 2, 1) if self.flipped else held).reshape(sums.shape)

    def _add(self, sums: Array, start: int, stop: int, spans: list[int]) -> None:
        """Add the products of a span, in partial sums where there are spans within it."""
        if not spans:
            self._run(sums, start, stop)
            return
        partial = np.empty_like(sums)
        for first in range(start, stop, spans[0]):
            partial.fill(0.0)
            self._add(partial, first, min(first + spans[0], stop), spans[1:])
            with np.errstate(invalid="ignore"):
                sums += partial  # of two float32: rounded to float64 first, they stay the same
            round_to(sums, "float32", out=sums, threads=self.threads)

    def _run(self, sums: Array, start: int, stop: int) -> None:
        """Run the loop over all tiles, on threads where there are many."""
        loop, facts = self.rule.loop(self.wide)
        tiles = list(_tiles(*sums.shape))
        work = min(SMALL, _ROWS * WIDTH * (stop - start))

        def chunk(begin: int, end: int) -> None:
            for matrix, *corners in tiles[-(-begin // work) : -(-end // work)]:
                tile = (*corners, start, stop)
                loop(*self.a[matrix], *self.b[matrix], sums[matrix], tile, facts)

        run_chunks(chunk, len(tiles) * work, self.threads)


def _tiles(matrices: int, rows: int, columns: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(matrix, row, row after, column, column after) of each tile of a result."""
    for matrix in range(matrices):
        for left in range(0, columns, WIDTH):
            for top in range(0, rows, _ROWS):
                yield matrix, top, min(top + _ROWS, rows), left, min(left + WIDTH, columns)
