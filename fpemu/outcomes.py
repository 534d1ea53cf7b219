"""Outcome: how many numbers a Cast treats in which way; counted from what a rounding did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from fpemu.arrays import float_array
from fpemu.cast import Cast, Overflow, Rounding, make_cast
from fpemu.errors import FormatError, InputError
from fpemu.format import Format
from fpemu.kernels.outcome import OUTCOMES
from fpemu.kernels.params import WORDS
from fpemu.limits import word_limits

__all__ = ["Outcome", "outcome_from", "outcome_of", "visible"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many numbers a cast would treat in which way.

    >>> import numpy as np, fpemu
    >>> outcome = fpemu.tally(np.float32([0, 1e-9, 1, 7e4])).outcome("fp16")
    >>> outcome.zero, outcome.underflow, outcome.normal, outcome.overflow
    (1, 1, 1, 1)
    >>> outcome.lost_fraction
    0.6666666666666666

    Every number counts in one field, the first that applies; they sum to `total`
        nan, inf: NaN and infinite input.
        zero: input +0 or -0, whatever it becomes.
        invalid: non-zero of a sign that the format lacks.
        saturated, overflow: rounded on the format's grid, continued above its largest value, it
            lies beyond; saturated if the result is finite, overflow if it is infinity or NaN.
        underflow: became 0 or, in a format without zero, was raised to its smallest value.
        subnormal: below the format's smallest normal.
        normal: everything else.
    """

    total: int = 0
    nan: int = 0
    inf: int = 0
    zero: int = 0
    invalid: int = 0
    saturated: int = 0
    overflow: int = 0
    underflow: int = 0
    subnormal: int = 0
    normal: int = 0

    @property
    def nonzero(self) -> int:
        """Finite input other than zero."""
        return self.total - self.zero - self.nan - self.inf

    @property
    def lost(self) -> int:
        """Finite non-zero input that the format could not keep."""
        return self.underflow + self.saturated + self.overflow + self.invalid

    @property
    def lost_fraction(self) -> float:
        """Lost part of the finite non-zero input; 0.0 if there is none."""
        return self.lost / self.nonzero if self.nonzero else 0.0

    @property
    def underflow_fraction(self) -> float:
        """Underflowed part of the finite non-zero input; 0.0 if there is none."""
        return self.underflow / self.nonzero if self.nonzero else 0.0

    def __add__(self, other: Outcome) -> Outcome:
        """Return the outcome of the joined data."""
        if not isinstance(other, Outcome):
            return NotImplemented
        return Outcome(*(getattr(self, f) + getattr(other, f) for f in _FIELDS))

    def __radd__(self, other: object) -> Outcome:
        return self if other == 0 else NotImplemented  # for sum()

    def to_json(self) -> dict[str, int]:
        """Return the counts as a JSON-ready dict."""
        return asdict(self)


_FIELDS = tuple(f.name for f in fields(Outcome))


# --- counting what a rounding did --------------------------------------------------------------


def visible(cast: Cast) -> Cast:
    """Return the cast to round by so that `outcome_of` sees each overflow.

    It is the cast itself, but for stochastic ones that saturate: there the draw decides whether
    a number beyond the largest value comes back to it, and a saturated result does not show it.
    """
    if cast.rounding is not Rounding.STOCHASTIC or cast.overflow is Overflow.IEEE:
        return cast
    if cast.format.has_nan:
        return cast.replace(overflow=Overflow.IEEE)
    form = cast.format
    try:  # the same grid, continued above the largest value
        return cast.replace(format=_continued(form))
    except FormatError:
        raise InputError(
            f"cast {cast}: overflow cannot be counted where the grid continues beyond float32; "
            "count another rounding"
        ) from None


def _continued(form: Format) -> Format:
    """The same grid with a binade more exponents: above the largest value it goes on."""
    return replace(form, name=f"{form.name}+", exponent_bits=form.exponent_bits + 1)


def outcome_of(x: Any, rounded: Any, to: Cast | Format | str) -> Outcome:
    """Count what any cast did to an array, given the array and the rounded one.

    >>> import numpy as np, fpemu
    >>> from fpemu.outcomes import outcome_of
    >>> x = np.float32([0.0, 1e-9, 1.0, 7e4])
    >>> outcome_of(x, fpemu.round(x, "fp16"), "fp16").overflow
    1

    x, rounded: arrays of one shape, both float32 (narrower floats widen) or both float64;
    `rounded` is x rounded by `visible(cast)`: the cast itself, unless it is stochastic and
    saturates.
    """
    cast = make_cast(to)
    before, after = float_array(x), float_array(rounded)
    if before.shape != after.shape or before.dtype != after.dtype:
        raise InputError(
            f"x is {before.dtype.name}{list(before.shape)}, rounded is {after.dtype.name}"
            f"{list(after.shape)}: they must be alike; give an array and its rounded one"
        )
    from fpemu.kernels.cpu_tally import outcome_loop

    bits = 8 * before.itemsize
    word = WORDS[bits].uint
    counts = np.zeros((2, len(OUTCOMES)), np.int64)
    bounds, beyond = word_limits(cast, bits)
    outcome_loop(bits)(np.ravel(before).view(word), np.ravel(after).view(word), bounds, counts)
    return outcome_from(counts, beyond)


def outcome_from(counts: Any, beyond: tuple[str, str]) -> Outcome:
    """Return the Outcome of counts, a row for each sign and a column for each of OUTCOMES.

    beyond: what a number of each sign beyond the largest value counts as.
    """
    found = dict(zip(OUTCOMES, counts.sum(axis=0).tolist(), strict=True))
    del found["beyond"]
    for sign, name in enumerate(beyond):
        found[name] = found.get(name, 0) + int(counts[sign, OUTCOMES.index("beyond")])
    return Outcome(total=int(counts.sum()), **found)
