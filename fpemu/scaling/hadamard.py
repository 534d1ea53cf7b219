"""Hadamard: groups of numbers rotated so that an outlier is shared out among its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.kernels.cpu_hadamard import hadamard_loop
from fpemu.scaling.layout import axis_of

__all__ = ["TRANSFORMER_ENGINE", "Hadamard"]

Array = np.ndarray[Any, Any]

_SIZES = tuple(2**k for k in range(1, 11))


@dataclass(frozen=True, slots=True)
class Hadamard:
    """A random Hadamard rotation: signs flipped, then groups times H / sqrt(size).

    >>> import numpy as np
    >>> from fpemu.scaling.hadamard import Hadamard
    >>> rotation = Hadamard(4, signs=0b0010)
    >>> y = rotation.rotate(np.float32([8, 0, 0, 0]))
    >>> y, rotation.restore(y) + 0
    (array([4., 4., 4., 4.], dtype=float32), array([8., 0., 0., 0.], dtype=float32))

    size: numbers that are rotated together, a power of two from 2 to 1024. signs: a bit mask of
    the numbers of a group, the first in the lowest bit, whose sign is flipped first.
    Both factors of a product that are rotated along the axis they are multiplied along give the
    same product: the rotations cancel. All is computed in float32, in log2(size) rounds of sums
    and differences; a group with NaN or infinity becomes NaN and infinities, and so does one whose
    sums overflow (rotated numbers are at most sqrt(size) times as large as the largest).
    """

    size: int = 16
    signs: int = 0

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size not in _SIZES:
            raise InputError(
                f"hadamard size={self.size!r:.40}: must be a power of two from 2 to {_SIZES[-1]}"
            )
        whole = isinstance(self.signs, int) and not isinstance(self.signs, bool)
        if not whole or not 0 <= self.signs < 2**self.size:
            raise InputError(
                f"hadamard signs={self.signs!r:.40}: must be a mask of {self.size} bits, an int "
                f"from 0 to 2**{self.size} - 1"
            )

    @classmethod
    def random(cls, size: int = 16, seed: int = 0) -> Hadamard:
        """Return a rotation whose signs are drawn by a seed."""
        plain = cls(size)
        if type(seed) is not int or seed < 0:
            raise InputError(f"hadamard seed={seed!r:.40}: must be an int from 0 on")
        drawn = np.random.Generator(np.random.Philox(seed)).bytes(max(plain.size // 8, 1))
        return cls(size, int.from_bytes(drawn, "little") % 2**plain.size)

    def rotate(self, x: Array, axis: int = -1) -> Array:
        """Return float32 numbers rotated along an axis, whose length `size` must divide."""
        return self._turned(x, axis, self._flips(), self._equal())

    def restore(self, y: Array, axis: int = -1) -> Array:
        """Return what `rotate` rotated: the rotation's transpose, which is its inverse."""
        return self._turned(y, axis, np.ones(self.size, np.float32), self._flips() * self._equal())

    def _turned(self, x: Array, axis: int, before: Array, after: Array) -> Array:
        if getattr(x, "dtype", None) != np.float32:
            raise InputError(f"{type(x).__name__} to rotate: give a float32 NumPy array")
        moved = np.moveaxis(x, axis_of(x, axis), -1) if x.ndim else x
        length = moved.shape[-1] if moved.ndim else 1
        if length % self.size:
            raise InputError(
                f"an axis of {length} numbers: a Hadamard rotation takes multiples of {self.size}; "
                "pad with zeros"
            )
        groups = np.ascontiguousarray(moved).reshape(-1, self.size)
        out = np.empty_like(groups)
        hadamard_loop(self.size)(groups, before, after, out)
        return np.ascontiguousarray(np.moveaxis(out.reshape(moved.shape), -1, axis))

    def _flips(self) -> Array:
        flipped = [self.signs >> place & 1 for place in range(self.size)]
        return np.where(flipped, np.float32(-1), np.float32(1))

    def _equal(self) -> Array:
        return np.full(self.size, 1 / math.sqrt(self.size), np.float32)


#: TransformerEngine's rotation of the inputs of weight gradients in NVFP4.
TRANSFORMER_ENGINE = Hadamard(16, sum(1 << place for place in (3, 5, 6, 7, 8, 9, 10, 12, 14, 15)))
