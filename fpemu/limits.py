"""Limits: the magnitudes at which a Cast changes its mind, found in its exact definition.

Outcomes are monotone in the magnitude: underflow, subnormal, normal, then saturated or overflow.
So three limits for each sign say all, and bisection finds them.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast, Rounding
from fpemu.errors import InputError
from fpemu.kernels.bucket import EDGES, SLOTS
from fpemu.kernels.params import WORDS
from fpemu.rounding import Real, round_exact

__all__ = ["Limits", "cell_limits", "word_limits"]

Array = np.ndarray[Any, Any]

_RANK = {"underflow": 0, "subnormal": 1, "normal": 2, "saturated": 3, "overflow": 3}


class Limits(NamedTuple):
    """The first of some rising magnitudes of one sign at which each outcome begins.

    ALWAYS if it begins below all of them: rounding up never underflows.
    """

    subnormal: int
    normal: int
    beyond: int
    beyond_outcome: str  #: "saturated" or "overflow"


ALWAYS = -(1 << 40)  #: below every magnitude's number
_HUGE = 1 << 2048


def _limits(
    cast: Cast, sign: int, magnitudes: range, real_at: Callable[[int, int], Real | float]
) -> Limits | None:
    """Bisect the exact definition over real_at(sign, i); None if it takes no such sign."""
    top = round_exact(cast, Real(sign, _HUGE)).outcome
    if top == "invalid":
        return None

    def rank(i: int) -> int:
        return _RANK[round_exact(cast, real_at(sign, i)).outcome]

    steps = [bisect.bisect_left(magnitudes, r, key=rank) for r in (1, 2, 3)]
    subnormal, normal, beyond = (magnitudes.start + s if s else ALWAYS for s in steps)
    return Limits(subnormal, normal, beyond, top)


def cell_limits(cast: Cast) -> tuple[Limits | None, Limits | None]:
    """Return the limits for plus and minus as cells, numbered exponent * SLOTS + slot.

    A cast whose limits are not the bounds of cells is an InputError.
    """
    found = _cell_limits(cast)
    if isinstance(found, str):
        raise InputError(found)
    return found


@lru_cache(maxsize=4096)
def _cell_limits(cast: Cast) -> tuple[Limits | None, Limits | None] | str:
    way = "count while rounding: fpemu.round(x, cast, count=True)"
    if cast.rounding is Rounding.STOCHASTIC:
        return f"cast {cast}: a tally cannot know the draws of stochastic rounding; {way}"
    form = cast.format
    cells = range((form.emin - form.mantissa_bits - 3) * SLOTS, (form.emax + 3) * SLOTS)
    both = [_limits(cast, sign, cells, _first) for sign in (0, 1)]
    for sign, limits in enumerate(both):
        for rank, cell in enumerate(limits[:3] if limits else (), start=1):
            if cell == ALWAYS:
                continue
            below = _last(sign, cell - 1)
            if _RANK[round_exact(cast, below).outcome] >= rank:
                return (
                    f"cast {cast}: its limit near {float(below):.9g} is not an edge of the "
                    f"tally's slots; {way}"
                )
    return both[0], both[1]


_WORDS = tuple(int(edge * (1 << 23)) for edge in (*EDGES, Fraction(2)))


def _first(sign: int, cell: int) -> Real:
    """The smallest magnitude of 24 significant bits in a cell."""
    exponent, slot = divmod(cell, SLOTS)
    return _real(sign, _WORDS[slot // 2] + slot % 2, exponent)


def _last(sign: int, cell: int) -> Real:
    """The largest one."""
    exponent, slot = divmod(cell, SLOTS)
    return _real(sign, _WORDS[slot // 2 + 1] - 1 if slot % 2 else _WORDS[slot // 2], exponent)


def _real(sign: int, word: int, exponent: int) -> Real:
    shift = exponent - 23
    return Real(sign, word << max(shift, 0), 1 << max(-shift, 0))


@lru_cache(maxsize=1024)
def word_limits(cast: Cast, bits: int) -> tuple[Array, tuple[str, str]]:
    """What the loop compares with, as words, a row each sign; and what lies beyond is called."""
    word = WORDS[bits]
    form = cast.format

    def bits_of(value: float) -> int:
        return int(np.array(value, word.float).view(word.uint))

    def float_at(sign: int, index: int) -> float:
        value = float(np.array(index, word.uint).view(word.float))
        return -value if sign else value

    infinity = bits_of(np.inf)
    rows, names = [], []
    for sign in (0, 1):
        limits = _limits(cast, sign, range(1, infinity), float_at)
        # where a draw decides, only the result tells
        decided = limits and cast.rounding is not Rounding.STOCHASTIC
        rows.append((
            limits is not None,
            0 if form.zero else bits_of(form.smallest_normal),
            max(limits.beyond, 0) if limits and decided else infinity,
            bits_of(form.smallest_normal),
            bits_of(form.max),
        ))  # fmt: skip
        names.append(limits.beyond_outcome if limits else "saturated")
    table = np.array(rows, word.uint)
    table.flags.writeable = False  # it is shared
    return table, (names[0], names[1])
