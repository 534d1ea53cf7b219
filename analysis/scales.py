"""The power-of-two scales at which tensors keep their values in a format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from fpemu.analysis.asked import several
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.tallies import Outcome, Tally, exponent_of

__all__ = [
    "SCALES",
    "TOLERANCE",
    "SafeScales",
    "best_scale",
    "check_tolerance",
    "is_safe",
    "powers_of_two",
    "runs_of_true",
    "safe_of",
    "safe_scales",
]

#: Scales tried unless others are asked for: 2^-24 to 2^39, the range of every framework's
#: loss scaler (2^32 at most) and of FP8's per-tensor scales.
SCALES = tuple(2.0**k for k in range(-24, 40))

#: Largest share of its non-zero values that a tensor may lose and still be called safe: what
#: Micikevicius et al. (arXiv 1710.03740) leave unrepresented at their loss scale of 32K.
TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class SafeScales:
    """The power-of-two scales at which tensors keep (nearly) all of their values."""

    to: str  #: the Cast, as `str(cast)`
    low: float | None  #: smallest safe scale of one unbroken run of them; None: none is safe
    high: float | None  #: largest safe scale of that run
    best: float  #: 1 if it is safe, else the middle of the run; without one, see `safe_scales`
    lost_percent: float  #: at `best`, of the tensor that loses most
    low_open: bool  #: `low` is the smallest scale tried: the run may go on below it
    high_open: bool  #: `high` is the largest scale tried

    @property
    def safe(self) -> bool:
        """Whether any scale is safe."""
        return self.low is not None

    @property
    def unscaled(self) -> bool:
        """Whether scale 1, that is no scaling, is safe."""
        return self.low is not None and self.high is not None and self.low <= 1.0 <= self.high

    def times(self, factor: float) -> SafeScales:
        """Return the scales of the values before they were multiplied by `factor`."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, low=low, high=high, best=self.best * factor)

    def to_json(self) -> dict[str, Any]:
        """Return the interval as a JSON-ready dict."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def safe_scales(
    tallies: Tally | Iterable[Tally],
    to: str | Format | Cast,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] = SCALES,
) -> SafeScales:
    """Return the power-of-two scales at which every tally keeps its values.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.scales import safe_scales
    >>> tally = fpemu.tally(np.float32([2**-30, 2**-10, 1.0]))
    >>> found = safe_scales(tally, "fp16")
    >>> found.low, found.high, found.best
    (64.0, 32768.0, 1024.0)

    A scale is safe if no value of any tally overflows to infinity or NaN at it (one is enough to
    spoil a gradient step) and no tally loses more than `tolerance` of its non-zero values
    to underflow or saturation. low and high bound the run of safe scales among `scales` that
    holds 1, else the widest; best is 1 if it is safe (no scaling needed), else the run's middle,
    as far from underflow as from overflow. If no scale is safe, best overflows nowhere if that can
    be had, and loses the fewest. NaN, infinite and zero values are affected by no scale.
    """
    cast = make_cast(to)
    check_tolerance(tolerance)
    factors = sorted(set(powers_of_two(scales)))
    if not factors:
        raise InputError("scales: at least one power of two is needed")
    several = [tallies] if isinstance(tallies, Tally) else tallies
    outcomes = [tally.outcomes(cast, factors) for tally in several]
    return safe_of(outcomes, str(cast), factors, tolerance)


def is_safe(outcome: Outcome, tolerance: float) -> bool:
    """Say whether an outcome is safe: nothing overflows, and no more than `tolerance` is lost."""
    return not outcome.overflow and outcome.lost_fraction <= tolerance


def safe_of(
    outcomes: Sequence[Sequence[Outcome]], to: str, factors: Sequence[float], tolerance: float
) -> SafeScales:
    """Return `safe_scales` of outcomes already counted: for each tensor, one at each scale."""
    each = range(len(factors))
    lost = [max((row[k].lost_fraction for row in outcomes), default=0.0) for k in each]
    overflows = [any(row[k].overflow for row in outcomes) for k in each]
    safe = [share <= tolerance and not over for share, over in zip(lost, overflows, strict=True)]
    runs = list(runs_of_true(safe))
    if not runs:
        distance = [abs(math.log2(scale)) for scale in factors]
        best = min(range(len(factors)), key=lambda k: (overflows[k], lost[k], distance[k]))
        return SafeScales(to, None, None, factors[best], 100 * lost[best], False, False)
    one = factors.index(1.0) if 1.0 in factors else -1
    low, high = max(runs, key=lambda run: (run[0] <= one <= run[1], run[1] - run[0]))
    best = one if low <= one <= high else (low + high) // 2
    return SafeScales(
        to,
        factors[low],
        factors[high],
        factors[best],
        100 * lost[best],
        low_open=low == 0,
        high_open=high == len(factors) - 1,
    )


def best_scale(
    tallies: Tally | Iterable[Tally],
    to: str | Format | Cast,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] = SCALES,
) -> float:
    """Return the scale to use: `safe_scales(...).best`.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.scales import best_scale
    >>> best_scale(fpemu.tally(np.float32([2**-30, 1.0])), "fp16")
    1024.0
    """
    return safe_scales(tallies, to, tolerance=tolerance, scales=scales).best


def runs_of_true(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each run of True.

    >>> from fpemu.analysis.scales import runs_of_true
    >>> list(runs_of_true([True, False, True, True]))
    [(0, 0), (2, 3)]
    """
    start = None
    for k, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = k
        elif not flag and start is not None:
            yield start, k - 1
            start = None


def powers_of_two(scales: float | Iterable[float]) -> list[float]:
    """Check that every scale is a power of two, so that scaling is exact; one is a list of one."""
    return [math.ldexp(1.0, exponent_of(scale)) for scale in several("scales", scales, Real, str)]


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that is no fraction."""
    try:
        fraction = bool(0.0 <= tolerance <= 1.0)
    except (TypeError, ValueError):  # text; an array
        fraction = False
    if not fraction:
        raise InputError(f"tolerance {tolerance!r}: must be a fraction, from 0 to 1")
