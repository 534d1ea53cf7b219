"""SQNR, signal to quantization noise: against the scale, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from numbers import Real
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fpemu.analysis.asked import Asked, several
from fpemu.analysis.by_recipe import ByRecipe, Target, check_cast, target
from fpemu.analysis.parts import Parts
from fpemu.analysis.plots.compute.counts import FORMATS, Shares
from fpemu.analysis.plots.compute.noise import decibels, measured, predicted
from fpemu.analysis.plots.source import cells, row_labels
from fpemu.analysis.scales import SCALES, powers_of_two
from fpemu.analysis.totals import add_to
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe
from fpemu.tallies import Tally, tally

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source

__all__ = ["Levels", "SqnrByLayer", "SqnrByScale", "sqnr_by_layer", "sqnr_by_scale"]

_EQUAL = 0.1  #: dB between scales that are as good as each other

#: What `sqnr_by_layer` takes beside a source: decibels by name.
Levels: TypeAlias = "Mapping[str, float]"


@dataclass(frozen=True, eq=False)
class SqnrByScale:
    """The SQNR that each cast would give all values together at each power-of-two scale."""

    labels: tuple[str, ...]  #: the casts
    scales: tuple[float, ...]
    sqnr: Shares = field(repr=False)  #: [cast, scale], dB; inf without error, -inf at overflow
    exact: bool  #: measured on arrays; else predicted from counts
    tensors: int
    unscaled: bool  #: whether a loss scale was taken out of any

    @property
    def best(self) -> tuple[float, ...]:
        """By cast, of the scales within 0.1 dB of the largest SQNR: 1, else the middle one."""
        return tuple(_middle(self.scales, row) for row in self.sqnr)


@dataclass(frozen=True, eq=False)
class SqnrByLayer:
    """SQNR of each tensor, the worst first."""

    labels: tuple[str, ...]
    sqnr: Shares  #: dB; inf without error, -inf where a value overflowed
    to: str  #: "" where the decibels were given
    scale: float
    exact: bool  #: measured on arrays; else predicted from counts
    unscaled: bool = False


def sqnr_by_scale(
    source: Source,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    scales: Iterable[float] = SCALES,
    seed: int | None = None,
    **selection: Any,
) -> SqnrByScale:
    """Return the SQNR of each format at each scale, of everything selected together.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.linspace(1, 2, 1001, dtype=np.float32)
    >>> found = compute.sqnr_by_scale(x, formats=["e4m3fn"], scales=[1.0, 2.0**20])
    >>> found.sqnr.round(1).tolist(), found.exact
    ([[32.5, -inf]], True)

    Arrays are measured, in float64, with exact products. Tallies and traces hold counts: from them
    the SQNR is predicted, as if numbers were spread evenly inside the tally's slots; within about
    a decibel where nothing saturates. seed: for stochastic casts of arrays.
    scales: powers of two. selection: name=, kind=, step=, unscaled= of a Trace.
    """
    why = "it brings scales of its own: there is no curve over scales; give formats, or ask what-if"
    asked = several("formats", formats, str, Format, Cast, Recipe, ByRecipe)
    casts = [check_cast("sqnr_by_scale", to, why) for to in asked]
    factors = sorted(set(powers_of_two(scales)))
    if not factors:
        raise InputError("scales: at least one power of two is needed")
    tensors = list(_tensors(source, selection).values())
    whole = reduce(add, tensors, _Tensor((), None))
    rows = [decibels(*whole.measure(cast, factors, seed)) for cast in casts]
    return SqnrByScale(
        tuple(map(str, casts)),
        tuple(factors),
        np.array(rows, np.float64).reshape(len(casts), len(factors)),
        whole.exact,
        len(tensors),
        whole.scaled,
    )


def sqnr_by_layer(
    source: Source | Levels,
    *,
    to: Asked = "float16",
    scale: float = 1.0,
    seed: int | None = None,
    **selection: Any,
) -> SqnrByLayer:
    """Return the SQNR of each tensor through a cast, the worst first.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.linspace(1, 2, 1001, dtype=np.float32)
    >>> found = compute.sqnr_by_layer({"good": x, "tiny": x * 2.0**-12}, to="e4m3fn")
    >>> found.labels, found.sqnr.round(1).tolist()
    (('tiny', 'good'), [0.0, 32.5])

    source: as `sqnr_by_scale`, or a dict of name -> decibels, which is sorted. Tensors without a
    finite non-zero value are left out. to: a cast, or a recipe, whose noise is measured: on arrays
    here, of a Trace when it was recorded.
    """
    given: Any = source
    if isinstance(given, Mapping) and given and all(isinstance(v, Real) for v in given.values()):
        return _sorted(given.keys(), list(given.values()), "", 1.0, True)
    cast, [factor] = target(to), powers_of_two([scale])
    tensors = _tensors(given, {**selection, "tried": [cast]})
    levels = [decibels(*one.measure(cast, [factor], seed))[0] for one in tensors.values()]
    exact = all(one.exact or one.measured(cast) for one in tensors.values())
    unscaled = any(one.scaled for one in tensors.values())
    return _sorted(row_labels(tensors), levels, str(cast), factor, exact, unscaled)


def _sorted(
    names: Iterable[str], levels: Sequence[float], to: str, scale: float, exact: bool,
    unscaled: bool = False,
) -> SqnrByLayer:  # fmt: skip
    pairs = [(float(level), name) for name, level in zip(names, levels, strict=True)]
    pairs = sorted((pair for pair in pairs if not math.isnan(pair[0])), key=lambda pair: pair[0])
    values = np.array([level for level, _ in pairs], np.float64)
    return SqnrByLayer(tuple(name for _, name in pairs), values, to, scale, exact, unscaled)


def _middle(scales: Sequence[float], levels: Shares) -> float:
    most = float(np.max(levels))
    near = [scale for scale, level in zip(scales, levels, strict=True) if level >= most - _EQUAL]
    return 1.0 if 1.0 in near or not near else near[len(near) // 2]


@dataclass(frozen=True, eq=False)
class _Tensor:
    """One tensor's arrays if all of it is there as arrays, else its counts."""

    arrays: tuple[Any, ...] | None
    parts: Parts | None

    def __add__(self, other: _Tensor) -> _Tensor:
        if self.arrays is not None and other.arrays is not None:
            return _Tensor(self.arrays + other.arrays, None)
        return _Tensor(None, self.counts + other.counts)

    @property
    def counts(self) -> Parts:
        if self.parts is not None:
            return self.parts
        return Parts.of(sum(map(tally, self.arrays or ()), Tally()))

    @property
    def exact(self) -> bool:
        return self.arrays is not None

    @property
    def scaled(self) -> bool:
        return self.parts is not None and self.parts.scaled

    def measured(self, to: Target) -> bool:
        """Whether a recipe's noise was measured when the tensor was recorded."""
        return isinstance(to, ByRecipe) and self.counts.scored(to).measured

    def measure(self, cast: Target, scales: list[float], seed: int | None) -> tuple[float, Shares]:
        if self.arrays is None:
            return predicted(self.counts, cast, scales)
        signal, noise = 0.0, np.zeros(len(scales))
        for array in self.arrays:
            of_array = measured(array, cast, scales, seed)
            signal, noise = signal + of_array[0], noise + of_array[1]
        return signal, noise


def _tensors(source: Source, selection: Any) -> dict[tuple[str, str], _Tensor]:
    found: dict[tuple[str, str], _Tensor] = {}
    for cell in cells(source, **selection):
        array = cell.array
        one = _Tensor(None, cell.parts) if array is None else _Tensor((array,), None)
        add_to(found, (cell.name, cell.kind), one)
    return found
