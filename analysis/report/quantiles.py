"""Quantiles: the bins of a histogram in which they lie."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence

__all__ = ["quantiles"]


def quantiles(histogram: Mapping[int, int], wanted: Sequence[float]) -> list[int]:
    """Return the bin in which each quantile lies; none of an empty histogram.

    >>> from fpemu.analysis.report.quantiles import quantiles
    >>> quantiles({-3: 1, 0: 98, 5: 1}, (0.0, 0.5, 1.0)), quantiles({}, (0.5,))
    ([-3, 0, 5], [])

    histogram: counts by bin. wanted: fractions from 0, the smallest number, to 1, the largest.
    """
    places = sorted(histogram)
    sums = list(itertools.accumulate(histogram[place] for place in places))
    if not sums or not sums[-1]:
        return []
    ranks = [min(sums[-1] - 1, math.floor(q * sums[-1])) for q in wanted]
    return [places[bisect.bisect_right(sums, rank)] for rank in ranks]
