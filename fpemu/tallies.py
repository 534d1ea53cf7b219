"""Tally: exact, mergeable counts of a tensor's numbers, by sign, binade and slot of the binade.

The slots' edges (`fpemu.kernels.bucket`) are the formats' own rounding thresholds at every
power-of-two scale, so one pass over the data answers for all of them, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fpemu.arrays import float32_words
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.bucket import ROWS, SLOTS
from fpemu.libraries.library import Place, library_of
from fpemu.limits import Limits, cell_limits
from fpemu.outcomes import Outcome
from fpemu.tally_bytes import LIMIT, pack, unpack

__all__ = ["SCALE_LIMIT", "Outcome", "Tally", "exponent_of", "tally"]

Array = np.ndarray[Any, Any]

#: Binary exponents of scales, either way.
SCALE_LIMIT = 300

#: The outcomes that follow from the cells, in the order of Outcome's fields.
_COUNTED = ("invalid", "saturated", "overflow", "underflow", "subnormal", "normal")


class Tally:
    """Exact integer counts of an array's numbers; `fpemu.tally` makes one.

    >>> import numpy as np, fpemu
    >>> t = fpemu.tally(np.float32([0.0, -1.5, 3e-8, np.inf]))
    >>> t.total, t.zero, t.inf, t.amax_exponent
    (4, 1, 1, 0)
    >>> t.outcome("fp16").subnormal, t.outcome("fp16", scale=2.0**12).subnormal
    (1, 0)
    >>> t + fpemu.Tally() == t
    True

    `Tally()` counts nothing. `a + b` is the tally of the joined data, to the bit and in any
    order. Tallies are immutable and hashable.
    """

    __slots__ = ("_cells", "_counted", "_low", "_specials", "_sums")

    EXPONENTS = range(-149, 128)  #: binades of float32: floor(log2|x|) of non-zero numbers
    SLOTS = SLOTS  #: slots of a binade, see `histogram`

    _cells: Array  # (2, rows, SLOTS): the rows from the lowest to the highest in use
    _low: int  # index in EXPONENTS of the first row
    _specials: tuple[int, ...]  # +0, -0, +inf, -inf, NaN
    _sums: Array | None  # counts in the cells below each one
    _counted: int | None  # how many numbers are in the cells

    def __init__(self) -> None:
        self._set(np.zeros((2, 0, SLOTS), np.int64), 0, (0, 0, 0, 0, 0))

    def _set(self, cells: Array, low: int, specials: tuple[int, ...]) -> None:
        cells.flags.writeable = False
        self._cells, self._low, self._specials = cells, low, specials
        self._sums = self._counted = None  # found when asked for

    @classmethod
    def _make(cls, cells: Array, low: int, specials: tuple[int, ...]) -> Tally:
        """cells: rows from `low`, the first and the last of them in use; not kept by others."""
        new = cls.__new__(cls)
        new._set(cells, low, specials)
        return new

    # --- counts ------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many numbers were counted."""
        return self._finite() + sum(self._specials)

    @property
    def zero_by_sign(self) -> tuple[int, int]:
        """How many +0 and -0."""
        return self._specials[0], self._specials[1]

    @property
    def inf_by_sign(self) -> tuple[int, int]:
        """How many +inf and -inf."""
        return self._specials[2], self._specials[3]

    @property
    def zero(self) -> int:
        """How many zeros of either sign."""
        return sum(self.zero_by_sign)

    @property
    def inf(self) -> int:
        """How many infinities of either sign."""
        return sum(self.inf_by_sign)

    @property
    def nan(self) -> int:
        """How many NaNs."""
        return self._specials[4]

    @property
    def histogram(self) -> Array:
        """A new int64 array (2 signs, 277 exponents from -149, SLOTS) of the finite non-zeros.

        Slot 2 * i is the significand EDGES[i] of `fpemu.kernels.bucket`, slot 2 * i + 1 the open
        interval from there to the next edge.
        """
        dense = np.zeros((2, ROWS, SLOTS), np.int64)
        dense[:, self._low : self._low + self._cells.shape[1]] = self._cells
        return dense

    def exponents(self) -> Array:
        """Return int64[277]: how many numbers have floor(log2|x|) = -149, ..., 127."""
        counts = np.zeros(ROWS, np.int64)
        counts[self._low : self._low + self._cells.shape[1]] = self._cells.sum(axis=(0, 2))
        return counts

    @property
    def amax_exponent(self) -> int | None:
        """Exponent floor(log2|x|) of the largest finite magnitude; None without a non-zero."""
        rows = self._cells.shape[1]
        return self.EXPONENTS[self._low + rows - 1] if rows else None

    @property
    def amin_exponent(self) -> int | None:
        """Exponent of the smallest non-zero magnitude; None without a finite non-zero."""
        return self.EXPONENTS[self._low] if self._cells.size else None

    # --- outcomes ----------------------------------------------------------------------------

    def outcome(self, to: Cast | Format | str, scale: float = 1.0) -> Outcome:
        """Return what a cast would do to the numbers times a power of two, exactly.

        >>> import numpy as np, fpemu
        >>> gradients = fpemu.tally(np.float32([1e-8, 2e-6, 0.5]))
        >>> [gradients.outcome("fp16", scale).lost for scale in (1, 128, 2.0**20)]
        [1, 0, 1]

        to: a format's name, a `Format` or a `Cast`. scale: 2.0**k with k from -300 to 300. The
        products are taken as real numbers: none is rounded to float32 before the cast.
        Refused with an InputError: stochastic casts and those whose limits are not edges of the
        slots (some formats of more than 10 mantissa bits); count them while rounding.
        """
        return self.outcomes(to, (scale,))[0]

    def outcomes(self, to: Cast | Format | str, scales: Iterable[float]) -> list[Outcome]:
        """Return `outcome(to, scale)` for each scale.

        >>> import numpy as np, fpemu
        >>> t = fpemu.tally(np.float32([1e-8, 2e-6, 0.5]))
        >>> [outcome.lost for outcome in t.outcomes("fp16", [1, 128, 2.0**20])]
        [1, 0, 1]
        """
        limits = cell_limits(make_cast(to))
        exponents = np.array([exponent_of(scale) for scale in scales], np.int64)
        found = dict.fromkeys(_COUNTED, np.zeros(exponents.size, np.int64))
        for sign, limit in enumerate(limits):
            for name, counts in self._counts(sign, limit, exponents):
                found[name] = found[name] + counts
        apart = self.total, self.nan, self.inf, self.zero
        rows = zip(*(found[name].tolist() for name in _COUNTED), strict=True)
        return [Outcome(*apart, *row) for row in rows]

    def _counts(
        self, sign: int, limit: Limits | None, exponents: Array
    ) -> Iterator[tuple[str, Array]]:
        """How many numbers of one sign each thing happens to, at each scale."""
        sums = self._cumulative()[sign]
        if limit is None:
            yield "invalid", np.full(exponents.size, sums[-1])
            return
        first_cells = (exponents + (self.EXPONENTS.start + self._low)) * SLOTS
        cells = np.array(limit[:3])[:, None] - first_cells
        below = sums[np.minimum(np.maximum(cells, 0), sums.size - 1)]
        yield "underflow", below[0]
        yield "subnormal", below[1] - below[0]
        yield "normal", below[2] - below[1]
        yield limit.beyond_outcome, sums[-1] - below[2]

    def _finite(self) -> int:
        if self._counted is None:
            self._counted = int(self._cells.sum())
        return self._counted

    def _cumulative(self) -> Array:
        if self._sums is None:
            sums = np.zeros((2, self._cells[0].size + 1), np.int64)
            np.cumsum(self._cells.reshape(2, -1), axis=1, out=sums[:, 1:])
            self._sums = sums
        return self._sums

    # --- merging and comparing ---------------------------------------------------------------

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of the joined data."""
        if not isinstance(other, Tally):
            return NotImplemented
        total = self.total + other.total
        if total >= LIMIT:
            raise InputError("tally + tally: the sum has 2**63 numbers or more; keep them apart")
        parts = [t for t in (self, other) if t._cells.shape[1]]
        low = min((t._low for t in parts), default=0)
        end = max((t._low + t._cells.shape[1] for t in parts), default=0)
        cells = np.zeros((2, end - low, SLOTS), np.int64)
        for t in parts:
            cells[:, t._low - low : t._low - low + t._cells.shape[1]] += t._cells
        specials = tuple(a + b for a, b in zip(self._specials, other._specials, strict=True))
        joined = Tally._make(cells, low, specials)
        joined._counted = total - sum(specials)
        return joined

    def __radd__(self, other: object) -> Tally:
        return self if other == 0 else NotImplemented  # so that sum(tallies) works

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (
            self._specials == other._specials
            and self._low == other._low
            and np.array_equal(self._cells, other._cells)
        )

    def __hash__(self) -> int:
        return hash((self._specials, self._low, self._cells.tobytes()))

    def __repr__(self) -> str:
        span = f", 2**{self.amin_exponent}..2**{self.amax_exponent}" if self._cells.size else ""
        return f"<Tally of {self.total}: {self.zero} zero, {self.inf} inf, {self.nan} nan{span}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally.from_bytes, (self.to_bytes(),)

    # --- bytes, both ways --------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the tally as bytes, about 1 to 3 KB; `from_bytes` reads them back exactly.

        >>> import numpy as np, fpemu
        >>> t = fpemu.tally(np.float32([1, 2, 3]))
        >>> fpemu.Tally.from_bytes(t.to_bytes()) == t
        True
        """
        return pack(self._cells, self._low, self._specials)

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """Read `to_bytes` back; anything else is an InputError."""
        return cls._make(*unpack(data))


def exponent_of(scale: float) -> int:
    """Return k of the scale 2.0**k, |k| <= SCALE_LIMIT; any other scale is an InputError."""
    try:
        significand, exponent = math.frexp(scale)
    except (TypeError, OverflowError):
        significand, exponent = 0.0, 0
    if significand != 0.5 or not -SCALE_LIMIT < exponent <= SCALE_LIMIT + 1:
        raise InputError(
            f"scale={scale!r}: must be a power of two from 2.0**-{SCALE_LIMIT} to "
            f"2.0**{SCALE_LIMIT}; for another, count while rounding: "
            "fpemu.round(x * scale, cast, count=True)"
        )
    return exponent - 1


def tally(x: Any, *, threads: int | None = None) -> Tally:
    """Count an array's numbers, exactly, in one pass.

    >>> import numpy as np, fpemu
    >>> t = fpemu.tally(np.float32([1, 2, 2.5, -0.0, np.nan]))
    >>> t.total, t.zero_by_sign, t.nan, t.exponents()[149:151].tolist()
    (5, (0, 1), 1, [1, 2])

    x: float32 of any shape, layout and byte order; narrower floats widen exactly. float64 is
    refused, as its numbers would have to be rounded first; so are integers, complex numbers and
    objects. threads: at most so many; the environment variable FPEMU_THREADS, or all processors.
    """
    library = None if type(x) is np.ndarray else library_of(x)
    if library is not None and library.place(x) is Place.CUDA:
        from fpemu.on_device import tally_array

        return Tally._make(*tally_array(library, x))
    words = float32_words(x)
    from fpemu.kernels.count import count

    return Tally._make(*count(words, threads))
