"""Plain: a target that rounds each number by itself: a cast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.conversion.part import Draw, Part, Shape, one_matrix
from fpemu.cast import Cast, Rounding
from fpemu.scaling import FloatElement
from fpemu.scaling.elements import Element

__all__ = ["Plain"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Plain:
    """A cast: each number is rounded by itself."""

    cast: Cast

    wide = rotated = False  #: nothing depends on the whole tensor, or on other numbers

    @property
    def name(self) -> str:
        """Its short name, for files."""
        return str(self.cast)

    def __str__(self) -> str:
        return str(self.cast)

    @property
    def element(self) -> Element:
        """What numbers become."""
        return FloatElement(self.cast)

    @property
    def limit(self) -> float:
        """The largest magnitude that is not clipped."""
        return self.cast.format.max

    @property
    def stochastic(self) -> bool:
        """Whether it needs a seed."""
        return self.cast.rounding is Rounding.STOCHASTIC

    def view(self, shape: Shape, axis: int) -> tuple[Shape, int]:
        """Return the shape as rows, and the axis in it."""
        return (one_matrix(shape), -1) if len(shape) > 1 else (shape or (1,), -1)

    def step(self, shape: Shape, axis: int) -> int:
        """Return what a piece's rows must be a multiple of: 8 codes fill whole bytes."""
        return 1 if len(shape) > 1 else 8

    def grid(self, shape: Shape, axis: int) -> None:
        """Return the shape of the scales: there are none."""
        return

    def part(self, x: Array, axis: int, top: float | None, draw: Draw, threads: int | None) -> Part:
        """Return what the cast makes of rows of a tensor."""
        draws = draw._asdict() if self.stochastic else {}
        codes = fpemu.encode(x, self.cast, threads=threads, **draws)
        return Part(fpemu.decode(codes, self.cast.format, x.dtype, threads=threads), codes)

    def values(
        self, codes: Array, scales: list[Array], shape: Shape, axis: int, start: int
    ) -> Array:
        """Return the values of codes."""
        found: Array = fpemu.decode(codes, self.cast.format)
        return found
