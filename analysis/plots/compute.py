"""Compute: the numbers of each plot, as frozen records of arrays; nothing here draws.

A binade is one power of two: column `k` counts the values with 2^k <= |x| < 2^(k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fpemu.analysis.plots.source import cells, row_labels, tensors
from fpemu.analysis.whatif import SCALES, TOLERANCE, SafeScales, powers_of_two, safe_of
from fpemu.cast import Cast, Subnormals, make_cast
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source
    from fpemu.format import Format
    from fpemu.tallies import Tally

__all__ = [
    "BINADES",
    "FORMATS",
    "Band",
    "ExponentHeatmap",
    "ExponentHistogram",
    "LostByScale",
    "UnderflowHeatmap",
    "exponent_heatmap",
    "exponent_histogram",
    "log2_scale",
    "lost_by_scale",
    "underflow_heatmap",
]

Counts: TypeAlias = npt.NDArray[np.int64]
Shares: TypeAlias = npt.NDArray[np.float64]

#: The binades of float32, subnormals included.
BINADES = range(-149, 128)

#: Formats that span more binades (bfloat16, float32) do not set a plot's width.
WIDE = 64

#: What a plot compares unless told otherwise.
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Band:
    """The range of a format as log2: its smallest value, its smallest normal, its largest."""

    name: str
    low: float
    normal: float
    high: float

    @classmethod
    def of(cls, to: Cast | Format | str) -> Band:
        """Return the range that a cast can give; flushed subnormals are no part of it."""
        cast = make_cast(to)
        form = cast.format
        flushed = cast.subnormals is Subnormals.FLUSH
        low = form.smallest_normal if flushed else form.smallest_subnormal
        return cls(str(cast), math.log2(low), math.log2(form.smallest_normal), math.log2(form.max))


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """Counts of one or several tensors by binade; zeros, infinities and NaNs apart."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    zero: Counts  #: [tensor]
    inf: Counts
    nan: Counts
    bands: tuple[Band, ...]

    @property
    def total(self) -> Counts:
        """All values of each tensor."""
        return self.counts.sum(1) + self.zero + self.inf + self.nan


def exponent_histogram(
    source: Source, *, formats: Iterable[Cast | Format | str] = FORMATS, **selection: Any
) -> ExponentHistogram:
    """Count a source by binade: a tensor a row of a mapping, a kind a row of a Trace.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> h = compute.exponent_histogram(np.float32([0, 1, 1.5, 8, np.inf]), formats=["fp16"])
    >>> h.counts[0][149 + 0], h.counts[0][149 + 3], h.zero[0], h.inf[0]
    (np.int64(2), np.int64(1), np.int64(1), np.int64(1))

    Signs are ignored, -0 is a zero. selection: name=, kind=, step= of a Trace.
    """
    bands = tuple(Band.of(to) for to in formats)
    rows: dict[str, list[Tally]] = {}
    for cell in cells(source, **selection):
        rows.setdefault(cell.kind or cell.name, []).append(cell.tally)
    return ExponentHistogram(
        tuple(rows),
        _freeze([sum(t.exponents() for t in tallies) for tallies in rows.values()], len(BINADES)),
        *(
            _freeze([sum(getattr(t, slot) for t in tallies) for tallies in rows.values()])
            for slot in ("zero", "inf", "nan")
        ),
        bands,
    )


@dataclass(frozen=True, eq=False)
class ExponentHeatmap:
    """Counts by tensor and binade."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    band: Band | None
    scale: float

    @property
    def share(self) -> Shares:
        """Fraction of a tensor's finite non-zero values; NaN where it has none."""
        return _divide(self.counts, self.counts.sum(1, keepdims=True))


def exponent_heatmap(
    source: Source,
    *,
    to: Cast | Format | str | None = None,
    scale: float = 1.0,
    **selection: Any,
) -> ExponentHeatmap:
    """Count each tensor by binade, over all steps selected.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> m = compute.exponent_heatmap({"a": np.float32([1, 1, 4]), "b": np.float32([2])})
    >>> m.labels, m.share[:, 149:152].round(2).tolist()
    (('a', 'b'), [[0.67, 0.0, 0.33], [0.0, 1.0, 0.0]])

    to: the format whose range is drawn; scale: the power of two that the values would be
    multiplied by before the cast. selection: name=, kind=, step= of a Trace.
    """
    log2_scale(scale)
    band = None if to is None else Band.of(to)
    rows: dict[tuple[str, str], Any] = {}
    for cell in cells(source, **selection):
        key = (cell.name, cell.kind)
        rows[key] = rows.get(key, 0) + cell.tally.exponents()
    return ExponentHeatmap(
        row_labels(rows), _freeze(list(rows.values()), len(BINADES)), band, float(scale)
    )


@dataclass(frozen=True, eq=False)
class UnderflowHeatmap:
    """Non-zero values that a cast would turn to zero, by tensor and step."""

    labels: tuple[str, ...]
    steps: tuple[int, ...]
    underflow: Counts = field(repr=False)  #: [tensor, step]
    nonzero: Counts = field(repr=False)  #: [tensor, step]; -1 where nothing was recorded
    to: str
    scale: float

    @property
    def share(self) -> Shares:
        """Fraction of the finite non-zero values; NaN where there is none or no record."""
        return _divide(self.underflow, self.nonzero)


def underflow_heatmap(
    source: Source, *, to: Cast | Format | str, scale: float = 1.0, **selection: Any
) -> UnderflowHeatmap:
    """Count what would underflow in each tensor at each step.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> steps = {0: np.float32([1, 1e-8]), 10: np.float32([1e-9, 1e-8])}
    >>> compute.underflow_heatmap({"layer": steps}, to="fp16").share.tolist()
    [[0.5, 1.0]]

    scale: the power of two that the values are multiplied by before the cast. A mapping without
    steps is one column. selection: name=, kind=, step= of a Trace.
    """
    cast = make_cast(to)
    log2_scale(scale)
    found: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for cell in cells(source, **selection):
        outcome = cell.tally.outcome(cast, scale)
        steps = found.setdefault((cell.name, cell.kind), {})
        underflow, nonzero = steps.get(cell.step, (0, 0))
        steps[cell.step] = (underflow + outcome.underflow, nonzero + outcome.nonzero)
    columns = sorted({step for steps in found.values() for step in steps})
    table = [[steps.get(column, (0, -1)) for column in columns] for steps in found.values()]
    both = np.array(table, np.int64).reshape(len(found), len(columns), 2)
    underflow_counts, nonzero_counts = _freeze(both[..., 0]), _freeze(both[..., 1])
    return UnderflowHeatmap(
        row_labels(found), tuple(columns), underflow_counts, nonzero_counts, str(cast), float(scale)
    )


@dataclass(frozen=True, eq=False)
class LostByScale:
    """What each cast would lose of all tensors together at each power-of-two scale."""

    labels: tuple[str, ...]  #: the casts
    scales: tuple[float, ...]
    lost: Counts = field(repr=False)  #: [cast, scale]
    nonzero: int
    safe: tuple[SafeScales, ...]  #: by cast, no tensor losing more than the tolerance
    tensors: int
    tolerance: float

    @property
    def share(self) -> Shares:
        """Lost fraction of the finite non-zero values; 0 if there is none."""
        return self.lost / max(self.nonzero, 1)


def lost_by_scale(
    source: Source,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    scales: Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    **selection: Any,
) -> LostByScale:
    """Count what each format would lose of everything selected, at each scale.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.float32([2.0**-30, 1.0])
    >>> lost = compute.lost_by_scale(x, formats=["fp16"], scales=[1.0, 2.0**10, 2.0**20])
    >>> lost.share.tolist(), lost.safe[0].best
    ([[0.5, 0.0, 0.5]], 1024.0)

    Lost: became zero, was clamped, became infinite or NaN, or has a sign that the format lacks.
    scales: powers of two. tolerance: the lost fraction up to which a scale is safe; what else
    "safe" asks, and which scale is best, is `fpemu.analysis.whatif.safe_scales`' to say.
    selection: name=, kind=, step= of a Trace.
    """
    casts = [make_cast(to) for to in formats]
    factors = sorted(set(powers_of_two(scales)))
    if not factors:
        raise InputError("scales: at least one power of two is needed")
    tallies = tensors(source, **selection)
    outcomes = [[tally.outcomes(cast, factors) for tally in tallies.values()] for cast in casts]
    lost = [
        [sum(outcome.lost for outcome in at_scale) for at_scale in zip(*rows, strict=True)]
        or [0] * len(factors)
        for rows in outcomes
    ]
    return LostByScale(
        tuple(map(str, casts)),
        tuple(factors),
        _freeze(lost, len(factors)),
        sum(int(tally.exponents().sum()) for tally in tallies.values()),
        tuple(safe_of(outcomes[row], cast, factors, tolerance) for row, cast in enumerate(casts)),
        len(tallies),
        tolerance,
    )


def log2_scale(scale: float) -> int:
    """Return log2 of a power of two; anything else is an InputError.

    >>> from fpemu.analysis.plots import compute
    >>> compute.log2_scale(1024)
    10
    """
    return math.frexp(powers_of_two([scale])[0])[1] - 1


def _divide(part: Counts, whole: Counts) -> Shares:
    share = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    np.divide(part, whole, out=share, where=whole > 0)
    return share


def _freeze(rows: Any, width: int | None = None) -> Counts:
    """Return read-only int64 counts, of `width` columns even if there is no row."""
    array = np.array(rows, np.int64)
    array = array if width is None else array.reshape(-1, width)
    array.setflags(write=False)
    return array
