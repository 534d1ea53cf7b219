"""Blocks: the largest magnitudes and crest factors of blocks that share a scale, mergeable."""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpemu.arrays import float32_words, read_array
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.tallies import Tally, tally

__all__ = ["CREST_STEPS", "BlockTally", "block_tally"]

Array = np.ndarray[Any, Any]

#: Bins of the crest histogram to a factor of two.
CREST_STEPS = 8

_CREST_BINS = 32 * CREST_STEPS + 1  # a crest factor is at most sqrt(block), block below 2^63
_PIECE = 1 << 20  # numbers looked at in one go: the temporaries stay in the cache


@dataclass(frozen=True, slots=True)
class BlockTally:
    """What scales see of an array's blocks; `block_tally` makes one, `a + b` joins two.

    >>> import numpy as np
    >>> from fpemu.blocks import block_tally
    >>> counted = block_tally(np.float32([[1, 1, 1, 1, 0, 0, 0, 0, 4, 0, 0, 0]]), block=4)
    >>> counted.blocks, counted.zero, counted.amax.amax_exponent
    (3, 1, 2)
    >>> counted.scale_quantiles("fp4"), counted.clipped("fp4")
    ((0.25, 0.25, 1.0, 1.0, 1.0), 0)

    block: numbers that share a scale. amax: a Tally of each block's largest magnitude: 0 for a
    block of zeros, infinite or NaN for one that holds such a number. crest: how many of the
    finite blocks have amax / rms from 2^(i / 8) to 2^((i + 1) / 8), i = 0, 1, ...
    """

    topic: ClassVar[str] = "blocks"

    block: int
    amax: Tally
    crest: tuple[int, ...]

    @property
    def blocks(self) -> int:
        """How many blocks were counted; a last one that is not full counts."""
        return self.amax.total

    @property
    def zero(self) -> int:
        """Blocks of nothing but zeros: they have no scale of their own."""
        return self.amax.zero

    @property
    def nonfinite(self) -> int:
        """Blocks that hold an infinity or a NaN."""
        return self.amax.inf + self.amax.nan

    def scale_quantiles(
        self, to: str | Format | Cast, quantiles: Iterable[float] = (0.0, 0.01, 0.5, 0.99, 1.0)
    ) -> tuple[float, ...]:
        """Return quantiles of the blocks' scales, by default min, p1, median, p99 and max.

        The scale of a block is the power of two by which its values are divided before the cast,
        2^(floor(log2(amax)) - emax), emax the exponent of the format's largest value (OCP MX 1.0,
        6.3). Blocks without a finite non-zero number have none; without any other block the
        quantiles are NaN. Errors: InputError for a quantile that is not from 0 to 1.
        """
        fractions = _checked_quantiles(quantiles)
        exponents = self.amax.exponents()
        ends, count = np.cumsum(exponents), int(exponents.sum())
        if not count:
            return tuple(math.nan for _ in fractions)
        ranks = [min(count - 1, math.floor(q * count)) for q in fractions]
        places = np.searchsorted(ends, ranks, side="right")
        top = make_cast(to).format.emax
        return tuple(math.ldexp(1.0, int(place) + Tally.EXPONENTS.start - top) for place in places)

    def clipped(self, to: str | Format | Cast) -> int:
        """Return how many blocks have values beyond the largest one at that scale, exactly.

        The rule looks at the exponent alone, so an amax of a large significand does not fit:
        from 1.8125 on in E4M3, from 1.75 on in FP4 (nearest rounding).
        """
        cast = make_cast(to)
        outcome = _folded(self.amax).outcome(cast, math.ldexp(1.0, cast.format.emax))
        return outcome.saturated + outcome.overflow

    def __add__(self, other: BlockTally) -> BlockTally:
        """Return what is counted in both."""
        if not isinstance(other, BlockTally):
            return NotImplemented
        if other.block != self.block:
            raise InputError(
                f"blocks of {self.block} and of {other.block} do not add up: count both with one "
                "block size"
            )
        size = max(len(self.crest), len(other.crest))
        padded = (crest + (0,) * (size - len(crest)) for crest in (self.crest, other.crest))
        return BlockTally(
            self.block, self.amax + other.amax, tuple(map(operator.add, *padded))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON-ready dict; `from_json` reads it back exactly."""
        amax = base64.b64encode(self.amax.to_bytes()).decode()
        return {"block": self.block, "amax": amax, "crest": list(self.crest)}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> BlockTally:
        """Read `to_json` back; anything else is an InputError."""
        try:
            amax = Tally.from_bytes(base64.b64decode(facts["amax"], validate=True))
            crest = tuple(operator.index(count) for count in facts["crest"])
            counted = sum(crest) == amax.total - amax.zero - amax.inf - amax.nan
            if min(crest, default=0) >= 0 and len(crest) <= _CREST_BINS and counted:
                return cls(_checked_block(facts["block"]), amax, crest)
        except (KeyError, TypeError, ValueError):
            pass
        raise InputError(f"{facts!r:.80}: is no BlockTally; give what BlockTally.to_json returned")


def block_tally(x: Any, *, block: int = 32, axis: int = -1) -> BlockTally:
    """Count an array's blocks of numbers that would share a scale.

    >>> import numpy as np
    >>> from fpemu.blocks import block_tally
    >>> x = np.float32(np.random.default_rng(0).standard_normal((64, 100)))
    >>> counted = block_tally(x, block=32)
    >>> counted.blocks, counted.zero, sum(counted.crest)
    (256, 0, 256)

    x: float32 or a narrower float, any number of dimensions. block: how many numbers along `axis`
    share a scale (32 in MX, 16 in NVFP4); the last block of each row holds what is left.
    Zeros: a block of nothing else counts in `.zero`. Infinity, NaN: such a block counts in
    `.nonfinite` and has no crest factor. Errors: InputError for float64, which would have to be
    rounded first, for integers, and for a block or an axis that is none.
    """
    size = _checked_block(block)
    rows = _rows(read_array(x), axis)
    length = min(size, max(rows.shape[1], 1))
    full = rows.shape[1] // length * length
    parts = [rows[:, :full].reshape(-1, length), rows[:, full:]]
    amax, crest = Tally(), np.zeros(_CREST_BINS, np.int64)
    for part in parts:
        step = max(1, _PIECE // max(part.shape[1], 1))
        for start in range(0, len(part) if part.shape[1] else 0, step):
            largest, bins = _look(part[start : start + step])
            amax += tally(largest)
            crest += bins
    return BlockTally(size, amax, tuple(np.trim_zeros(crest, "b").tolist()))


def _look(blocks: Array) -> tuple[Array, Array]:
    """Each block's largest magnitude, and the histogram of the crest factors."""
    magnitudes = np.abs(blocks)
    largest = magnitudes.max(axis=1)
    some = np.isfinite(largest) & (largest > 0)
    wide = magnitudes[some].astype(np.float64)
    # the division by amax keeps the squares of float32 subnormals in range
    rms = np.sqrt(np.square(wide / largest[some, None]).mean(axis=1))
    place = np.floor(-np.log2(rms) * CREST_STEPS).astype(np.int64)
    return largest, np.bincount(np.maximum(place, 0), minlength=_CREST_BINS)


def _rows(x: Array, axis: int) -> Array:
    """The array's numbers as float32, one row along the axis after the other."""
    try:
        moved = np.moveaxis(x, axis, -1) if x.ndim else x.reshape(1)
    except (TypeError, ValueError, OverflowError):  # numpy's AxisError is a ValueError
        raise InputError(
            f"axis={axis!r:.40}: the array has {x.ndim} dimensions; give an integer from "
            f"-{x.ndim} to {x.ndim - 1}"
        ) from None
    values = float32_words(moved).view(np.float32)
    return values.reshape(-1, moved.shape[-1]) if moved.size else np.zeros((0, 1), np.float32)


def _checked_block(block: Any) -> int:
    try:
        size = 0 if isinstance(block, bool | np.bool) else operator.index(block)
    except TypeError:
        size = 0
    if not 0 < size < 2**63:
        raise InputError(
            f"block={block!r:.40}: must be a number of elements from 1 on, such as 32 (MX)"
        )
    return size


def _checked_quantiles(quantiles: Any) -> list[float]:
    try:
        fractions = [float(quantile) for quantile in quantiles]
    except (TypeError, ValueError, OverflowError):
        fractions = [math.nan]
    if not all(0.0 <= fraction <= 1.0 for fraction in fractions):
        given = " ".join(repr(quantiles).split())
        raise InputError(f"quantiles {given:.60}: must be numbers from 0 to 1, such as (0.5, 0.99)")
    return fractions


def _folded(amax: Tally) -> Tally:
    """The tally of the significands: all binades laid on that of 1."""
    histogram = amax.histogram
    if not histogram.any():
        return Tally()
    return Tally._make(histogram.sum(axis=1, keepdims=True), -Tally.EXPONENTS.start, (0,) * 5)
