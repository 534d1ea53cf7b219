"""Simulate: the scales that a scaler goes through for a given sequence of overflows."""

from __future__ import annotations

from collections.abc import Iterable

from fpemu.analysis.asked import several
from fpemu.analysis.lossscale.named import scaler as named
from fpemu.analysis.lossscale.state import Scaler

__all__ = ["simulate"]


def simulate(scaler: str | Scaler, overflows: Iterable[bool]) -> list[float]:
    """Return the scale in use at each step, given which steps overflow.

    >>> from fpemu.analysis import lossscale
    >>> lossscale.simulate("torch:init_scale=8,growth_interval=2", [True, False, False, False])
    [8.0, 4.0, 4.0, 8.0]

    scaler: a `Scaler` in any state, or its text form. overflows: True, False, 1 or 0 for each
    step. Scales can become 0 or infinite where the framework's do.
    Errors: InputError as of `scaler` and `Scaler.adjust`.
    """
    state = scaler if isinstance(scaler, Scaler) else named(scaler)
    scales = []
    for overflow in several("overflows", overflows):
        scales.append(state.scale)
        state = state.adjust(overflow)
    return scales
