"""Histogram: an adaptive loss scale that follows the gradients themselves, not their overflows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from fpemu.analysis.lossscale.room import room
from fpemu.analysis.lossscale.state import Scaler, scale_text, setting, state
from fpemu.cast import make_cast
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.tallies import Tally

__all__ = ["Histogram"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Histogram(Scaler):
    """A scaler of ours: the largest power of two that keeps a margin below overflow.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis import lossscale
    >>> scaler = lossscale.scaler("histogram", margin=2)
    >>> seen = scaler.observe([fpemu.tally(np.float32([2.0**-20, 3e-9]))])
    >>> seen.adjust(False).scale == 2.0**(15 + 20 - 2)
    True

    After each step it looks at the histogram of the true gradients: by how many binades could
    they be multiplied before one of them overflows in `to`? The next scale is that of the worst
    of the last `window` steps, less `margin` binades, within min_scale and max_scale. An overflow
    halves the scale in use, and no step of the window may ask for more than that. Steps of
    nothing but zeros, NaN and infinities say nothing.
    """

    NAME = "histogram"
    FIRST = "init_scale"
    OBSERVES = True

    init_scale: float = setting(2.0**16, "power of two")
    to: str = setting("float16", "cast")
    margin: int = setting(2, "count from 0")
    window: int = setting(16, "count")
    min_scale: float = setting(2.0**-24, "power of two")
    max_scale: float = setting(2.0**40, "power of two")
    rooms: tuple[int, ...] = state(())  #: of the last steps, the largest k at which 2^k fits

    def __post_init__(self) -> None:
        if self.min_scale > self.max_scale:
            raise InputError(
                f"histogram: min_scale={scale_text(self.min_scale)} is above "
                f"max_scale={scale_text(self.max_scale)}: give a range that holds a scale"
            )
        super().__post_init__()

    def first_scale(self) -> float:
        return self._within(self.init_scale)

    def observe(self, tallies: Iterable[Tally], recorded_scale: float = 1.0) -> Self:
        cast = make_cast(self.to)
        rooms = (room(tally, cast, saturating=True) for tally in tallies)
        found = [k for k in rooms if k is not None]
        return self._with(min(found), recorded_scale) if found else self

    def observe_room(self, to: str, room: int, recorded_scale: float) -> Self | None:
        return self._with(room, recorded_scale) if to == self.to else None

    def _with(self, room: int, recorded_scale: float) -> Self:
        # The true gradients have that much more room, rounded down to a power of two.
        room += _exponent(recorded_scale)
        return replace(self, rooms=(*self.rooms, room)[-self.window :])

    def _good(self) -> Self:
        if not self.rooms:
            return self
        return replace(self, scale=self._within(math.ldexp(1.0, min(self.rooms) - self.margin)))

    def _overflowed(self) -> Self:
        half = self.scale / 2.0
        most = _exponent(half) + self.margin
        rooms = tuple(min(k, most) for k in (self.rooms or (most,)))
        return replace(self, scale=self._within(half), rooms=rooms)

    def _within(self, scale: float) -> float:
        return min(max(scale, self.min_scale), self.max_scale)


def _exponent(scale: float) -> int:
    """floor(log2(scale)), exactly."""
    return math.frexp(scale)[1] - 1
