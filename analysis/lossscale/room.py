"""Room: by which power of two a tensor may be multiplied before it overflows in a format."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fpemu.cast import Cast, make_cast
from fpemu.format import Format
from fpemu.tallies import SCALE_LIMIT, Tally, tally

__all__ = ["overflows_both_ways", "room"]


def room(counted: Tally, to: str | Format | Cast, *, saturating: bool = False) -> int | None:
    """Return the largest k at which no number times 2^k overflows; None if there is no number.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.lossscale.room import room
    >>> t = fpemu.tally(np.float32([1.0, -3.0]))
    >>> room(t, "fp16"), room(t, "e5m2:overflow=saturate")
    (14, 300)
    >>> room(t, "e5m2:overflow=saturate", saturating=True)
    14

    Overflow is that of the cast: a finite number becomes infinity or NaN. saturating: clamping
    to the largest finite value counts too. -300 and 300 are the ends of what is looked at.
    Zeros, NaN and infinities are no numbers here.
    """
    cast = make_cast(to)
    amax = counted.amax_exponent
    if amax is None:
        return None

    def fits(k: int) -> bool:
        outcome = counted.outcome(cast, math.ldexp(1.0, k))
        return not (outcome.overflow + (outcome.saturated if saturating else 0))

    beyond = _beyond(cast, saturating)
    k = cast.format.emax - amax  # brings the largest number into the format's last binade
    if len(beyond) == 2:  # both signs overflow, so that number does at k + 1, and not at k - 1
        return k if fits(k) else k - 1
    if not beyond or fits(SCALE_LIMIT):
        return SCALE_LIMIT
    while fits(k + 1):  # the sign that overflows has smaller numbers
        k += 1
    while not fits(k):
        k -= 1
    return k


def overflows_both_ways(to: str | Format | Cast) -> bool:
    """Say whether large numbers of both signs become infinity or NaN in a cast.

    >>> from fpemu.analysis.lossscale.room import overflows_both_ways
    >>> overflows_both_ways("fp16"), overflows_both_ways("fp16:overflow=saturate")
    (True, False)
    """
    return len(_beyond(make_cast(to), False)) == 2


@lru_cache(maxsize=64)
def _beyond(cast: Cast, saturating: bool) -> frozenset[float]:
    """The signs of the numbers that overflow when they are large enough."""
    found = set()
    for sign in (1.0, -1.0):
        outcome = tally(np.full(1, sign, np.float32)).outcome(cast, 2.0**SCALE_LIMIT)
        if outcome.overflow or (saturating and outcome.saturated):
            found.add(sign)
    return frozenset(found)
