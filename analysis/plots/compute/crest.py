"""QSNR of an array's blocks against their crest factor, under several recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.asked import several
from fpemu.analysis.plots.compute.counts import Counts, Shares, check_count, freeze
from fpemu.analysis.plots.compute.noise import check_squares, decibels
from fpemu.blocks import CREST_STEPS
from fpemu.cast import Cast, Overflow, make_cast
from fpemu.errors import InputError
from fpemu.scaling import AmaxRule, Block, Exponent, ExponentRule, FloatElement, Recipe, find_recipe

if TYPE_CHECKING:
    from fpemu.format import Format
    from fpemu.scaling.rules import ScaleRule

__all__ = ["QsnrByCrest", "qsnr_by_crest"]

Array = np.ndarray[Any, Any]

_PARTS = (0.1, 0.5, 0.9)  #: of the blocks in a bin: low, median, high

_BLOCK = 32  #: numbers, as OCP's MX formats have it

#: The rules that a format by itself is shown with: nothing clipped, OCP's, a scale of any size.
_RULES: dict[str, ScaleRule] = {
    "fit": ExponentRule(Exponent.FIT),
    "floor": ExponentRule(),
    "amax": AmaxRule(inverse=True, zero=None),
}


@dataclass(frozen=True, eq=False)
class QsnrByCrest:
    """QSNR of blocks by crest factor (amax / rms), in bins of an eighth of an octave."""

    labels: tuple[str, ...]  #: the recipes
    edges: Shares  #: log2 of the crest factor
    blocks: Counts = field(repr=False)  #: [bin]
    low: Shares = field(repr=False)  #: [recipe, bin], dB: a tenth of the blocks is below; NaN: none
    median: Shares = field(repr=False)
    high: Shares = field(repr=False)  #: a tenth of the blocks is above
    overall: tuple[float, ...]  #: by recipe: all blocks together, dB
    zero: int  #: blocks of zeros alone, which have no crest factor
    nonfinite: int  #: blocks with an infinity or a NaN
    to: str  #: the element that all recipes have; "": they differ
    block: int


def qsnr_by_crest(
    x: Any,
    recipes: str | Recipe | Iterable[str | Recipe] | None = None,
    *,
    to: Cast | Format | str | None = None,
    block: int | None = None,
) -> QsnrByCrest:
    """Measure how well blocks survive recipes, by their crest factor.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> found = compute.qsnr_by_crest(x, ["mxfp8.fit", "mxfp8"])
    >>> [f"{level:.1f} dB" for level in found.overall]
    ['31.5 dB', '30.7 dB']

    x: an array of floats, or a dict of them, each rounded by itself along its last axis; float64
    is made float32 first, as recipes start from that. recipes: names or texts, as
    `fpemu.scaling.find_recipe` takes them. Without: three of the format `to`, a scale for each
    `block` numbers (32): "fit", a power of two that clips nothing, "floor", OCP's, and "amax",
    amax / max in float32; finite overflow saturates.
    block: the runs of numbers whose crest factor and QSNR are taken, of all recipes the same, so
    that they can be compared; unless given, as many as share a scale in the first recipe, or 32.
    The last of a row is shorter if that is needed.
    Runs of zeros and runs with an infinity or a NaN are counted apart. One that a recipe makes
    NaN or infinite has a QSNR of minus infinity.
    """
    chosen, size = _recipes(recipes, to, block)
    arrays = list(_arrays(x))
    every, sizes = _blocks(arrays, size)
    amax = np.abs(every).max(1, initial=0.0)
    finite, nonzero = np.isfinite(amax), amax != 0
    check_squares(amax[finite])
    kept = finite & nonzero
    squares = np.square(every[kept]).sum(1)
    # a block of equal magnitudes has crest factor 1: its root may be a little above
    crest = np.maximum(np.log2(amax[kept] / np.sqrt(squares / sizes[kept])), 0.0)
    noise = [_noise(arrays, every, recipe, size)[kept] for recipe in chosen]
    edges, blocks, (low, median, high) = _binned(crest, [decibels(squares, one) for one in noise])
    elements = {str(recipe.element).partition(":")[0] for recipe in chosen}
    return QsnrByCrest(
        tuple(recipe.name for recipe in chosen),
        edges,
        blocks,
        low,
        median,
        high,
        tuple(float(decibels(squares.sum(), one.sum())) for one in noise),
        int((finite & ~nonzero).sum()),
        int((~finite).sum()),
        elements.pop() if len(elements) == 1 else "",
        int(size),
    )


def _recipes(recipes: Any, to: Any, block: int | None) -> tuple[list[Recipe], int]:
    """The recipes that were asked for, and how many numbers are looked at together."""
    if block is not None:
        check_count(block, "block")
    if recipes is None:
        size = block or _BLOCK
        cast = make_cast("float8_e4m3fn" if to is None else to)
        element = FloatElement(cast.replace(overflow=Overflow.SATURATE))
        shape = Block(1, int(size))
        return [Recipe(name, shape, rule, element) for name, rule in _RULES.items()], size
    if to is not None:
        raise InputError(f"to={to!s:.40} with recipes: they say their elements; give one of both")
    chosen = [find_recipe(one) for one in several("recipes", recipes, str, Recipe)]
    own = [recipe.block.columns for recipe in chosen if recipe.block.rows == 1]
    return chosen, block or next((columns for columns in own if columns), _BLOCK)


def _arrays(x: Any) -> Iterable[Array]:
    for array in map(np.asarray, x.values() if isinstance(x, Mapping) else [x]):
        if array.dtype.kind != "f" or array.ndim == 0:
            raise InputError(
                f"{array.dtype}{list(array.shape)}: blocks are taken along the last axis of arrays "
                "of floats"
            )
        if array.size:
            yield array


def _blocks(arrays: list[Array], block: int) -> tuple[Array, Array]:
    """All blocks as rows, a short one filled up with zeros, and how many numbers each has."""
    longest = max((array.shape[-1] for array in arrays), default=1)
    block = min(block, longest)  # a longer one would be nothing but filled up
    rows, sizes = [np.zeros((0, block))], [np.zeros(0, np.int64)]
    for array in arrays:
        lines = array.reshape(-1, array.shape[-1]).astype(np.float64)
        fill = -lines.shape[1] % block
        rows.append(np.pad(lines, ((0, 0), (0, fill))).reshape(-1, block))
        each = np.full(-(-lines.shape[1] // block), block)
        each[-1:] -= fill
        sizes.append(np.tile(each, len(lines)))
    return np.concatenate(rows), np.concatenate(sizes)


def _noise(arrays: list[Array], every: Array, recipe: Recipe, block: int) -> Shares:
    """The sum of the squared errors of each block."""
    with np.errstate(over="ignore"):  # float64 beyond float32
        left = [recipe.round(array.astype(np.float32, copy=False)) for array in arrays]
    after, _ = _blocks(left, block)
    with np.errstate(invalid="ignore"):  # blocks with infinities, which are counted apart
        noise = np.square(after - every).sum(1)
    return np.where(np.isnan(noise), np.inf, noise)


def _binned(crest: Shares, levels: list[Shares]) -> tuple[Shares, Counts, Shares]:
    """The bins in use, how many blocks each has, and [three levels, rule, bin] of QSNR."""
    bins = np.floor(CREST_STEPS * crest).astype(np.int64)
    used = range(int(bins.min(initial=1 << 30)), int(bins.max(initial=-1)) + 1)
    first = used.start if used else 0
    found = np.full((3, len(levels), len(used)), np.nan)
    for row, level in enumerate(levels):
        for column, k in enumerate(used):
            inside = level[bins == k]
            if inside.size:  # no interpolation: some may be infinite
                found[:, row, column] = np.quantile(inside, _PARTS, method="inverted_cdf")
    found.setflags(write=False)
    counts = np.bincount(bins - first, minlength=len(used))
    return np.arange(first, first + len(used) + 1) / CREST_STEPS, freeze(counts), found
