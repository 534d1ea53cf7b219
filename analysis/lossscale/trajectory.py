"""Trajectory: a replay's scales as one line of text, and its skipped steps as another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from fpemu.analysis.lossscale.replayed import ReplayedStep

__all__ = ["marks", "span", "spark"]

_BARS = "▁▂▃▄▅▆▇█"


def span(steps: Sequence[ReplayedStep]) -> tuple[float, float]:
    """Return log2 of the smallest and the largest scale, without those of 0 and infinity."""
    logs = [math.log2(step.scale) for step in steps if 0.0 < step.scale < math.inf]
    return (min(logs), max(logs)) if logs else (0.0, 0.0)


def spark(steps: Sequence[ReplayedStep], width: int, low: float, high: float) -> str:
    """Return the scales over time as bars from 2^low to 2^high, at most `width` of them.

    A bar that stands for several steps has the height of their smallest scale: the falls show.
    """
    return "".join(
        _bar(min(step.scale for step in part), low, high) for part in _parts(steps, width)
    )


def marks(steps: Sequence[ReplayedStep], width: int) -> str:
    """Return a line of the same width: x where a step is skipped, ! where one spoils the run."""
    return "".join(_mark(part) for part in _parts(steps, width))


def _mark(part: Sequence[ReplayedStep]) -> str:
    if any(step.overflow and not step.skipped for step in part):
        return "!"
    return "x" if any(step.skipped for step in part) else " "


def _bar(scale: float, low: float, high: float) -> str:
    if not 0.0 < scale < math.inf:
        return "∞" if scale else "0"
    place = (math.log2(scale) - low) / (high - low) if high > low else 0.0
    return _BARS[round(min(max(place, 0.0), 1.0) * (len(_BARS) - 1))]


def _parts(steps: Sequence[ReplayedStep], width: int) -> list[Sequence[ReplayedStep]]:
    """The steps in at most `width` parts of nearly one length."""
    count = min(width, len(steps))
    edges = [round(i * len(steps) / count) for i in range(count + 1)] if count else [0]
    return [steps[a:b] for a, b in pairwise(edges)]
