"""Moments: mean, spread and extremes of an array's finite numbers, mergeable.

Kept apart from the exact `Tally`: these are float64 (m2 and m4 good to about 1e-12), and their
last bits may depend on the processor and on the order of merging.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fpemu.arrays import float32_words
from fpemu.errors import InputError
from fpemu.kernels.pool import run_chunks

__all__ = ["Moments", "magnitude_of", "moments", "squared_error"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of finite numbers; `moments` makes one of an array, `a + b` that of joined data.

    >>> import numpy as np
    >>> from fpemu.moments import moments
    >>> m = moments(np.float32([1, 2, 3, 4, np.inf]))
    >>> m.count, m.mean, m.rms, m.amax, m.smallest_nonzero
    (4, 2.5, 2.7386127875258306, 4.0, 1.0)
    >>> (moments(np.float32([1, 2])) + moments(np.float32([3, 4]))).std == m.std
    True

    Fields
        count: how many finite numbers; NaN and infinity are left out (a `Tally` counts them).
        mean: NaN if count is 0.
        m2, m3, m4: sums of (x - mean)**2, **3 and **4.
        amax: the largest magnitude, exactly; 0.0 if there is none.
        smallest_nonzero: the smallest non-zero magnitude, exactly; 0.0 if there is none.

    `std`, `rms` and `kurtosis` are NaN if count is 0. Merging is by Chan's formula: equal to the
    moments of the joined data up to rounding.
    """

    count: int = 0
    mean: float = math.nan
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0
    amax: float = 0.0
    smallest_nonzero: float = 0.0

    @property
    def std(self) -> float:
        """Standard deviation of the population: divided by count, not count - 1."""
        return math.sqrt(self.m2 / self.count) if self.count else math.nan

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return math.hypot(self.mean, self.std)

    @property
    def kurtosis(self) -> float:
        """Fourth standardised moment, 3 for normal data; NaN if all numbers are equal."""
        return self.m4 / self.m2 * (self.count / self.m2) if self.m2 else math.nan

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the joined data."""
        if not isinstance(other, Moments):
            return NotImplemented
        from fpemu.kernels.cpu_moments import combine

        a, b = self, other
        count, mean, m2, m3, m4 = combine(
            a.count, a.mean, a.m2, a.m3, a.m4, b.count, b.mean, b.m2, b.m3, b.m4
        )
        smallest = min(filter(None, (a.smallest_nonzero, b.smallest_nonzero)), default=0.0)
        return Moments(int(count), mean, m2, m3, m4, max(a.amax, b.amax), smallest)

    def __radd__(self, other: object) -> Moments:
        return self if other == 0 else NotImplemented  # so that sum(list of moments) works

    def to_json(self) -> dict[str, float | int | None]:
        """Return the fields as a JSON-ready dict, None for NaN; `from_json` reads it back.

        >>> from fpemu.moments import Moments
        >>> Moments().to_json()["mean"] is None
        True
        """
        facts = {field: getattr(self, field) for field in self.__dataclass_fields__}
        return facts | {"mean": None if math.isnan(self.mean) else self.mean}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Moments:
        """Make Moments from `to_json`'s dict.

        Errors: InputError for a number that no array's moments have: a count outside 0..2^63 - 1,
        an infinity, a negative `m2`, `m4`, `amax` or `smallest_nonzero`, a mean of None or NaN
        where count is not 0.
        """
        names = [f.name for f in fields(cls)]
        if not isinstance(facts, Mapping) or sorted(facts) != sorted(names):
            raise InputError(f"moments {facts!r}: must be a dict with the keys {names}")
        count, mean = facts["count"], facts["mean"]
        if type(count) is not int or not 0 <= count < 2**63:
            shown = "an int out of range" if isinstance(count, int) else repr(count)[:40]
            raise InputError(f"moments: count={shown} must be an int from 0 to 2^63 - 1")
        none = count == 0 and (mean is None or (isinstance(mean, float) and math.isnan(mean)))
        numbers = {n: _finite(n, facts[n]) for n in names[1:] if not (none and n == "mean")}
        return cls(count, **{"mean": math.nan} | numbers)


def moments(x: Any, *, threads: int | None = None) -> Moments:
    """Return the moments of an array's finite numbers.

    >>> import numpy as np
    >>> from fpemu.moments import moments
    >>> moments(np.zeros((2, 3), np.float32)).rms
    0.0

    x: float32 of any shape and layout; narrower floats widen, others are an InputError (as in
    `fpemu.tally`). NaN and infinity are left out. Sums are taken over fixed blocks about each
    block's own mean and merged as a balanced tree, so the thread count does not change them.
    threads: as in `fpemu.tally`.
    """
    words = float32_words(x)
    from fpemu.kernels.cpu_moments import BLOCK, COLUMNS, block_loop, merge_loop

    blocks = max(-(-words.size // BLOCK), 1)
    rows = np.zeros((blocks, len(COLUMNS)), np.float64)
    extremes = np.zeros((blocks, 2), np.int32)
    numbers, signed = words.view(np.float32), words.view(np.int32)

    def chunk(first: int, start: int, stop: int) -> None:
        block_loop()(numbers[start:stop], signed[start:stop], first, rows, extremes)

    _run_blocks(chunk, words.size, threads)
    merge_loop()(rows)
    count, mean, m2, m3, m4 = rows[0].tolist()
    largest, smallest = extremes[:, 0], extremes[:, 1]
    smallest = smallest[smallest > 0]
    amax = magnitude_of(int(largest.max()))
    smallest_nonzero = magnitude_of(int(smallest.min())) if smallest.size else 0.0
    return Moments(int(count), mean if count else math.nan, m2, m3, m4, amax, smallest_nonzero)


def _finite(name: str, value: object) -> float:
    """Return one of the moments as a float that `moments` can have counted."""
    try:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if real else math.nan  # type: ignore[arg-type]
    except OverflowError:  # an int beyond float64
        number = math.inf
    least = -math.inf if name in ("mean", "m3") else 0.0
    if not (math.isfinite(number) and number >= least):
        shown = "inf" if number == math.inf else repr(value)[:40]
        rule = "a finite number" + (" from 0 on" if least == 0.0 else "")
        raise InputError(f"moments: {name}={shown} must be {rule}; give what to_json() returned")
    return number


def magnitude_of(bits: int) -> float:
    """Return a float32 from its bits, whatever the FPU is set to make of subnormals."""
    field, fraction = divmod(bits, 1 << 23)
    return math.ldexp(fraction + (1 << 23 if field else 0), max(field, 1) - 150)


def squared_error(x: Any, q: Any, *, threads: int | None = None) -> float:
    """Return the sum of (x - q)**2 over the numbers where both are finite.

    >>> import numpy as np
    >>> from fpemu.moments import squared_error
    >>> squared_error(np.float32([1, 2, np.inf]), np.float32([1, 2.5, np.inf]))
    0.25

    x, q: float32 arrays of one shape, or narrower floats. Differences are float64; their squares
    are summed in fixed blocks, and the blocks without rounding (math.fsum).
    """
    before, after = np.asarray(x), np.asarray(q)
    if before.shape != after.shape:
        raise InputError(
            f"x has shape {before.shape}, q has {after.shape}: they must be alike; give an array "
            "and its rounded one"
        )
    numbers = [float32_words(array).view(np.float32) for array in (x, q)]
    from fpemu.kernels.cpu_moments import BLOCK, error_loop

    sums = np.zeros(-(-before.size // BLOCK), np.float64)

    def chunk(first: int, start: int, stop: int) -> None:
        error_loop()(numbers[0][start:stop], numbers[1][start:stop], first, sums)

    _run_blocks(chunk, before.size, threads)
    return math.fsum(sums)


def _run_blocks(chunk: Any, size: int, threads: int | None) -> None:
    """Call chunk(first block, start, stop) over whole blocks, whatever chunks the pool makes."""
    from fpemu.kernels.cpu_moments import BLOCK

    def snapped(start: int, stop: int) -> None:
        first, end = -(-start // BLOCK), -(-stop // BLOCK)  # the blocks that begin in the chunk
        if first < end:
            chunk(first, first * BLOCK, min(end * BLOCK, size))

    run_chunks(snapped, size, threads)
