"""paired: time a call against a baseline that runs just before it, again and again.

A busy machine slows down and speeds up over seconds. Two calls side by side meet the same
machine, so the ratio inside a pair is steadier than either time, and the median over pairs
forgets the pairs that something else interrupted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["LEAST", "Load", "Timing", "batch", "paired"]

#: Pairs that are always measured, however slow.
LEAST = 3

Clock = Callable[[], int]


@dataclass(frozen=True)
class Load:
    """A call and how many elements it works through."""

    call: Callable[[], object]
    elements: int


@dataclass(frozen=True)
class Timing:
    """One load against its baseline, over several pairs."""

    ns: float  #: median nanoseconds an element
    ratio: float  #: median, over the pairs, of the load's time an element to the baseline's
    low: float  #: lower quartile of those ratios
    high: float  #: upper quartile
    pairs: int  #: how many were measured
    baseline_ns: float  #: median nanoseconds an element of the baseline

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        return dict(vars(self))


def paired(
    load: Load,
    baseline: Load,
    *,
    repeats: int = 15,
    budget_s: float = 1.0,
    clock: Clock = time.perf_counter_ns,
) -> Timing:
    """Run baseline and load in turn and return medians; each runs once before, unmeasured.

    >>> from fpemu.analysis.bench.pairs import Load, paired
    >>> work = Load(lambda: sum(range(1000)), 1000)
    >>> paired(work, work, repeats=5).pairs
    5

    repeats: pairs at most. budget_s: no new pair starts after so many seconds, but three are
    always measured. clock: returns nanoseconds.
    """
    baseline.call()
    load.call()
    loads: list[float] = []
    baselines: list[float] = []
    begin = clock()
    while len(loads) < repeats:
        start = clock()
        baseline.call()
        middle = clock()
        load.call()
        end = clock()
        baselines.append(max(middle - start, 1) / baseline.elements)
        loads.append(max(end - middle, 1) / load.elements)
        if len(loads) >= LEAST and end - begin > budget_s * 1e9:
            break
    return _timing(loads, baselines)


def _timing(loads: list[float], baselines: list[float]) -> Timing:
    ratios = [a / b for a, b in zip(loads, baselines, strict=True)]
    low, ratio, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    return Timing(
        ns=statistics.median(loads),
        ratio=ratio,
        low=low,
        high=high,
        pairs=len(ratios),
        baseline_ns=statistics.median(baselines),
    )


def batch(load: Load, *, least_ns: int = 1_000_000, clock: Clock = time.perf_counter_ns) -> Load:
    """Return a load that repeats a short one until it takes at least about `least_ns`.

    >>> from fpemu.analysis.bench.pairs import Load, batch
    >>> batch(Load(lambda: None, 1)).elements > 1000
    True
    """
    times = 1
    while True:
        many = Load(_repeated(load.call, times), load.elements * times)
        start = clock()
        many.call()
        if clock() - start >= least_ns or times >= 1 << 20:
            return many
        times *= 2


def _repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(times):
            call()

    return run
