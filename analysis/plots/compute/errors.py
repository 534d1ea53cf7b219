"""The errors of casts on an array, as a histogram: in ulp, or relative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import fpemu
from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.plots.compute.counts import Counts, Shares, freeze
from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fpemu.format import Format

__all__ = ["MEASURES", "ErrorDistribution", "error_distribution"]

Array = np.ndarray[Any, Any]

#: Bins of 1/32 ulp around 0, the middle one around it; half-octaves of the relative error.
_ULP_EDGES = (np.arange(-33, 35) - 0.5) / 32
_RELATIVE_EDGES = np.exp2(np.arange(-60, 9) / 2)


@dataclass(frozen=True, eq=False)
class ErrorDistribution:
    """How often each error occurs, by cast; what has no bin is counted apart."""

    labels: tuple[str, ...]  #: the casts
    measure: str  #: one of MEASURES
    edges: Shares  #: of the bins: ulp, or relative error
    counts: Counts = field(repr=False)  #: [cast, bin]
    exact: Counts  #: [cast]: no error; in "ulp" they are in the middle bin too
    below: Counts  #: [cast]: under the first edge
    above: Counts  #: [cast]: over the last edge
    nonfinite: Counts  #: [cast]: finite values that became infinite or NaN
    total: int  #: finite values measured: all of them, or the non-zero ones if relative


def error_distribution(
    x: Any,
    a: Cast | Format | str,
    b: Cast | Format | str | None = None,
    *,
    measure: str = "ulp",
    format: Format | str | None = None,
    seed: int | None = None,
) -> ErrorDistribution:
    """Count the errors of one cast, or of two, on the values of an array.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.float32([1.0, 1.0625, 1.03125, 70000.0])
    >>> found = compute.error_distribution(x, "e4m3fn", "fp16")
    >>> found.exact.tolist(), found.nonfinite.tolist(), found.total
    ([1, 3], [1, 1], 4)

    x: float32 or float64. measure: "ulp" counts (q - x) / ulp, the ulp being the gap of the cast's
    own grid at |x|, or of `format`'s; "relative" counts |q - x| / |x| of the non-zero values.
    Errors are computed in float64. Infinities and NaNs of x are left out; finite values that
    become one are counted apart. seed: for stochastic casts.
    """
    if not isinstance(measure, str) or measure not in MEASURES:
        hint = did_you_mean(str(measure), MEASURES)
        raise InputError(f"unknown measure {measure!r}; {hint}measures: {', '.join(MEASURES)}")
    why = "its grid goes with each block's scale, so errors have no common unit; give formats"
    casts = [check_cast("error_distribution", to, why) for to in (a, b) if to is not None]
    edges, error_of = MEASURES[measure]
    values = np.asarray(x)
    if values.dtype.kind != "f":
        raise InputError(f"x is {values.dtype}: errors are measured on arrays of floats")
    values = values.astype(np.float64).ravel()
    values = values[np.isfinite(values) & ((values != 0) | (measure == "ulp"))]
    rows = [_count(values, cast, format, edges, error_of, seed) for cast in casts]
    counts = freeze([row[0] for row in rows], len(edges) - 1)
    exact, below, above, other = freeze([row[1] for row in rows], 4).T
    labels, total = tuple(map(str, casts)), int(values.size)
    return ErrorDistribution(labels, measure, edges, counts, exact, below, above, other, total)


def _count(
    x: Array, cast: Cast, format: Format | str | None, edges: Shares,
    error_of: Callable[..., Array], seed: int | None,
) -> tuple[Counts, list[int]]:  # fmt: skip
    q = fpemu.round(x, cast, seed=seed)
    kept = np.isfinite(q)
    errors = error_of(x[kept], q[kept], cast.format if format is None else format)
    counts, _ = np.histogram(errors, edges)
    exact = int((errors == 0).sum())
    below = int((errors < edges[0]).sum()) - (exact if edges[0] > 0 else 0)
    above = int((errors > edges[-1]).sum())
    return counts, [exact, below, above, int(x.size - kept.sum())]


def _in_ulp(x: Array, q: Array, format: Format | str) -> Array:
    return np.asarray((q - x) / fpemu.spacing(x, format), np.float64)


def _relative(x: Array, q: Array, format: Format | str) -> Array:
    return np.asarray(np.abs(q - x) / np.abs(x))


#: How an error may be measured: the bins' edges, and the error of x rounded to q.
MEASURES = {"ulp": (_ULP_EDGES, _in_ulp), "relative": (_RELATIVE_EDGES, _relative)}
