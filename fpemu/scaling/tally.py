"""Tally: what a recipe makes of an array's numbers and blocks, as counts that add up."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fpemu.arrays import read_floats
from fpemu.blocks import CREST_STEPS
from fpemu.cast import Rounding
from fpemu.errors import InputError
from fpemu.kernels.cpu_recipe import COUNTS, SUMS, recipe_loop
from fpemu.limits import word_limits
from fpemu.outcomes import Outcome
from fpemu.scaling.catalog import find_recipe
from fpemu.scaling.elements import Codebook, Element, FloatElement, IntegerElement
from fpemu.scaling.layout import Lines, lay_out
from fpemu.scaling.pieces import PIECE, each_piece, pieces_of, scales_of_blocks
from fpemu.scaling.recipe import Recipe
from fpemu.scaling.rules import AmaxRule, ExponentRule, Scales, TwoLevel
from fpemu.tallies import exponent_of

__all__ = ["RecipeTally", "is_scale_free", "recipe_tally", "scale_bits"]

Array = np.ndarray[Any, Any]

_LIMIT = 2**62  # numbers counted: far from where int64 wraps
_BINADES = range(-160, 161)  # of scales: float32 and its reciprocals lie well within
_CREST_BINS = 32 * CREST_STEPS + 1


@dataclass(frozen=True, slots=True)
class RecipeTally:
    """What a recipe makes of numbers; `recipe_tally` makes one, `a + b` joins two.

    >>> import numpy as np
    >>> from fpemu.scaling.tally import recipe_tally
    >>> found = recipe_tally(np.float32([[448, 1, 0.001, 0], [0, 0, 0, 0]]), "1x4 exponent fp4")
    >>> found.total, found.zero, found.lost, found.clipped, found.blocks, found.zero_blocks
    (8, 5, 2, 1, 2, 1)
    >>> found.scale_histogram
    {6: 1}

    Each number counts in one of nan, inf, zero (as they came), overflow, lost, clipped, or in none.
    signal and noise are sums of squares, of numbers and of what they are changed by, over the
    pairs that are finite on both sides. Counts are exact and add up in any order; the two sums
    are float64, and the same in any order up to a relative 1e-12.
    With a rotation, all is counted of the rotated numbers.
    """

    topic: ClassVar[str] = "recipes"

    recipe: Recipe
    axis: int  #: along which blocks lie, from the end: -1 is the last
    tensors: int  #: arrays counted
    total: int
    nan: int
    inf: int
    zero: int  #: +0 and -0
    overflow: int  #: finite, not 0, and came out as infinity or NaN
    lost: int  #: not 0, and came out as 0
    clipped: int  #: at its scale beyond the largest element (rounded on a grid that goes on)
    subnormal: int  #: came out below the smallest normal element times the scale, not as 0
    blocks: int
    zero_blocks: int  #: of nothing but zeros
    nan_blocks: int  #: in which anything came out as NaN or infinity
    clipped_blocks: int  #: with numbers that were clipped
    low: int  #: the binade of the first of `scales`
    scales: tuple[int, ...]  #: blocks by floor(log2(scale)), see `scale_histogram`
    crest: tuple[int, ...]  #: blocks by floor(8 log2(amax / rms)), as in BlockTally
    signal: float
    noise: float

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.recipe.name

    @property
    def part(self) -> str:
        """What tells it from other recipes' tallies: the recipe's text."""
        return str(self.recipe)

    @property
    def nonfinite(self) -> int:
        """Numbers that were NaN or infinite as they came."""
        return self.nan + self.inf

    @property
    def scale_histogram(self) -> dict[int, int]:
        """How many blocks have floor(log2(scale)) = k, by k.

        The scale is what a block's elements are multiplied by, both levels of it where there are
        two. Blocks of zeros alone, and those whose scale is 0, NaN or infinite, are not in it.
        """
        return {self.low + k: count for k, count in enumerate(self.scales) if count}

    @property
    def flushed_blocks(self) -> int:
        """Blocks whose scale came out as 0 or not finite, though they are not all zeros."""
        return self.blocks - self.zero_blocks - sum(self.scales)

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise in decibels: inf without noise, NaN without signal."""
        if not self.noise:
            return math.inf if self.signal else math.nan
        return 10.0 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def bits_per_value(self) -> float:
        """Bits that a number takes, its share of the scales included."""
        bits = float(self.recipe.element.bits)
        if not self.total:
            return bits
        whole = 32 * isinstance(self.recipe.rule, TwoLevel)
        scales = scale_bits(self.recipe) * self.blocks + whole * self.tensors
        return bits + scales / self.total

    @property
    def outcome(self) -> Outcome:
        """The counts as those of a cast: clipped is saturated, lost is underflow."""
        gone = self.nan + self.inf + self.zero + self.overflow + self.lost + self.clipped
        return Outcome(
            self.total, self.nan, self.inf, self.zero, 0, self.clipped, self.overflow, self.lost,
            self.subnormal, self.total - gone - self.subnormal,
        )  # fmt: skip

    def times(self, factor: float) -> RecipeTally:
        """Return the tally of the numbers times a power of two, such as without a loss scale.

        Exact where the recipe's scales go with the numbers (`is_scale_free`), but for scales that
        would leave the range of the scale's own format. Errors: InputError for other recipes.
        """
        shift = exponent_of(factor)
        if not shift:
            return self
        if not is_scale_free(self.recipe):
            raise InputError(
                f"recipe {self.name!r}: its scales do not go with the numbers, so its counts hold "
                f"for the numbers as counted and not for {factor:g} times those: count them anew"
            )
        square = 4.0**shift
        low = self.low + shift if self.scales else 0
        return replace(self, low=low, signal=self.signal * square, noise=self.noise * square)

    def __add__(self, other: RecipeTally) -> RecipeTally:
        """Return what is counted in both."""
        if not isinstance(other, RecipeTally):
            return NotImplemented
        for what in ("part", "axis"):
            if getattr(self, what) != getattr(other, what):
                raise InputError(
                    f"tallies of recipes {self.name!r} along axis {self.axis} and {other.name!r} "
                    f"along axis {other.axis} do not add up: count both alike"
                )
        low, scales = _joined(self, other)
        counts = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        crest = _summed([(0, self.crest), (0, other.crest)], 0)
        return replace(self, low=low, scales=scales, crest=crest, **counts)

    def __radd__(self, other: object) -> RecipeTally:
        return self if other == 0 else NotImplemented  # so that sum(tallies) works

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON-ready dict; `from_json` reads it back exactly."""
        facts = {name: getattr(self, name) for name in _NAMES}
        return facts | {
            "recipe": self.recipe.to_json(), "scales": list(self.scales), "crest": list(self.crest)
        }  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> RecipeTally:
        """Read `to_json` back; anything else is an InputError."""
        try:
            if set(facts) == set(_NAMES):
                return _checked(cls(**{name: _READ[name](facts[name]) for name in _NAMES}))
        except (KeyError, TypeError, ValueError):
            pass
        raise InputError(
            f"{facts!r:.80}: is no RecipeTally; give what RecipeTally.to_json returned"
        )


def recipe_tally(
    x: Any, recipe: str | Recipe, axis: int = -1, *, threads: int | None = None
) -> RecipeTally:
    """Count what a recipe makes of an array's numbers.

    >>> import numpy as np
    >>> from fpemu.scaling.tally import recipe_tally
    >>> x = np.float32(np.random.default_rng(0).standard_normal((64, 256)))
    >>> found = recipe_tally(x, "mxfp8")
    >>> found.blocks, round(found.sqnr_db, 1), found.bits_per_value
    (512, 30.4, 8.25)

    x, axis: as `Recipe.round` takes them. recipe: a name, a text or a Recipe. threads: at most so
    many. Zeros, NaN, infinity: counted apart; what a recipe makes of a block that holds them is
    in `nan_blocks`, and `overflow` counts the finite numbers that it takes along. Beyond the
    largest element: `clipped`; of integers what rounds beyond the last one, of codebooks what is
    more than half the last gap beyond.
    Errors: InputError for stochastic elements, whose draws decide, for unsigned ones, and as
    `Recipe.round`.
    """
    found = find_recipe(recipe)
    top, bottom = _ends(found.element)
    rotation = found.rotation
    values = np.asarray(read_floats(x)[0])
    if rotation is not None:
        values = rotation.rotate(values.astype(np.float32), axis)
    plain = found if rotation is None else found.replace(rotation=None)
    kept = plain.round(values, axis=axis, threads=threads)  # refuses float64 too
    laid = lay_out(np.asarray(values, np.float32), found.block, axis)
    left = lay_out(kept, found.block, axis)
    amax, _, scales = scales_of_blocks(laid, found.rule, found.element, threads)
    counts, sums = _looked(found, laid, left, scales, (top, bottom), threads)
    numbers = dict(zip(COUNTS, counts.tolist(), strict=True))
    numbers["zero"] -= laid.lines.size - values.size  # what filled up the last blocks
    place = -1 if values.ndim == 0 else laid.axis - values.ndim
    signal, noise = float(sums[:, 0].sum()), float(sums[:, 1].sum())
    return RecipeTally(
        recipe=found, axis=place, tensors=1, total=values.size, signal=signal, noise=noise,
        **numbers, **_blocks(found, laid, amax, scales, sums),
    )  # fmt: skip


def is_scale_free(recipe: Recipe) -> bool:
    """Say whether a recipe makes the same of numbers times a power of two, times that.

    >>> from fpemu.scaling import find_recipe
    >>> from fpemu.scaling.tally import is_scale_free
    >>> is_scale_free(find_recipe("mxfp8")), is_scale_free(find_recipe("deepseek"))
    (True, False)

    Scales that are fixed, or of an amax that is at least so much or has something added, do not.
    """
    rule = recipe.rule
    if isinstance(rule, AmaxRule):
        return rule.least == 0.0 and rule.added == 0.0
    return isinstance(rule, ExponentRule | TwoLevel)


def scale_bits(recipe: Recipe) -> int:
    """Return the bits of a block's scale as it is stored: E8M0 and E4M3 codes, or float32.

    >>> from fpemu.scaling import find_recipe
    >>> from fpemu.scaling.tally import scale_bits
    >>> scale_bits(find_recipe("nvfp4")), scale_bits(find_recipe("deepseek"))
    (8, 32)
    """
    return int(8 * np.dtype(recipe.rule.stored).itemsize)


# --- counting ------------------------------------------------------------------------------------


def _looked(
    recipe: Recipe,
    laid: Lines,
    left: Lines,
    scales: Scales,
    ends: tuple[np.float32, np.float32],
    threads: int | None,
) -> tuple[Array, Array]:
    """What COUNTS names of all lines, and what SUMS names of each block."""
    rule, pieces = recipe.rule, pieces_of(laid)
    encode, decode = laid.spread(scales.encode), laid.spread(scales.decode)
    with np.errstate(all="ignore"):
        least = _smallest_normal(recipe.element)
        normals = least / decode if rule.divides else least * decode
    loop, width = recipe_loop(rule.divides_first), laid.lines.shape[1]
    counts = np.zeros((len(pieces), len(COUNTS)), np.int64)
    # long lines lie in several pieces: each has sums of its own, added up in their order
    once = width < PIECE
    sums = np.zeros((laid.lines.shape[0] if once else len(pieces), len(SUMS)))

    def look(index: int) -> None:
        place = rows, _ = pieces[index]
        own = sums[rows] if once else sums[index : index + 1]
        loop(laid.lines[place], left.lines[place], encode[rows], normals[rows], *ends,
             counts[index], own)  # fmt: skip

    each_piece(pieces, look, threads)
    if not once and sums.size:
        sums = sums.reshape(laid.lines.shape[0], -1, len(SUMS)).sum(1)
    if laid.tile > 1 and sums.size:
        sums = sums.reshape(-1, laid.tile, laid.grid[-1], len(SUMS)).sum(1)
    return counts.sum(0), sums.reshape(-1, len(SUMS))


def _blocks(
    recipe: Recipe, laid: Lines, amax: Array, scales: Scales, sums: Array
) -> dict[str, Any]:
    """What a tally says of blocks."""
    if not laid.lines.size:  # an array of nothing has no blocks, whatever its grid
        return dict.fromkeys(_OF_BLOCKS[:4], 0) | {"low": 0, "scales": (), "crest": ()}
    signal, _, clipped, broken = sums.T
    some = (amax > 0).reshape(-1)
    steps = np.asarray(scales.decode, np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        steps = 1.0 / steps if recipe.rule.divides else steps
    binades = np.frexp(steps[some & np.isfinite(steps) & (steps > 0)])[1] - 1
    low = int(binades.min()) if binades.size else 0
    return {
        "blocks": amax.size,
        "zero_blocks": int((~some).sum()),
        "nan_blocks": int((broken > 0).sum()),
        "clipped_blocks": int((clipped > 0).sum()),
        "low": low,
        "scales": tuple(np.bincount(binades - low).tolist()) if binades.size else (),
        "crest": _crest(laid, amax.view(np.float32).astype(np.float64), signal, some),
    }


def _crest(laid: Lines, amax: Array, signal: Array, some: Array) -> tuple[int, ...]:
    """The histogram of the crest factors of blocks whose numbers all came out finite."""
    good = some & np.isfinite(amax) & (signal > 0)
    if not good.any():
        return ()
    rms = np.sqrt(signal[good] / _sizes(laid)[good])
    place = np.floor(np.log2(amax[good] / rms) * CREST_STEPS).astype(np.int64)
    return tuple(np.bincount(np.maximum(place, 0)).tolist())


def _sizes(laid: Lines) -> Array:
    """How many numbers each block has: the last ones of a row may not be full."""
    if len(laid.grid) < len(laid.shape) or not laid.shape:
        return np.full(math.prod(laid.grid), laid.lines.shape[1])
    columns = _spans(laid.shape[-1], laid.lines.shape[1], laid.grid[-1])
    if laid.tile == 1:
        return np.tile(columns, math.prod(laid.grid[:-1]))
    rows = _spans(laid.shape[-2], laid.tile, laid.grid[-2])
    return np.tile((rows[:, None] * columns).reshape(-1), math.prod(laid.grid[:-2]))


def _spans(length: int, step: int, count: int) -> Array:
    return np.minimum(step, length - step * np.arange(count))


# --- where elements end --------------------------------------------------------------------------


def _ends(element: Element) -> tuple[np.float32, np.float32]:
    """From where on, up and down, a scaled number rounds to beyond the largest element."""
    if isinstance(element, FloatElement):
        return _float_ends(element)
    if isinstance(element, IntegerElement):
        half = math.ldexp(0.5, -element.fraction_bits)
        # a tie goes to the even integer: beyond 127, not beyond -128
        down = math.nextafter(element.least - half, -math.inf) if not element.symmetric else (
            element.least - half
        )
        return np.float32(element.max + half), _at_most(down)
    assert isinstance(element, Codebook)
    low, up = (a + (a - b) / 2 for a, b in (element.values[:2], element.values[:-3:-1]))
    return -_at_most(-math.nextafter(up, math.inf)), _at_most(math.nextafter(low, -math.inf))


def _float_ends(element: FloatElement) -> tuple[np.float32, np.float32]:
    cast = element.cast
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(
            f"element {cast}: a tally cannot know the draws of stochastic rounding; count the "
            "recipe with another rounding"
        )
    if not cast.format.signed:
        raise InputError(f"element {cast}: has no sign; recipes are counted with signed elements")
    table, _ = word_limits(cast, 32)
    up, down = np.asarray(table[:, 2], np.uint32).view(np.float32)
    return up, np.float32(-down)


def _at_most(value: float) -> np.float32:
    """The largest float32 that is no larger."""
    near = np.float32(value)
    return near if float(near) <= value else np.nextafter(near, np.float32(-np.inf))


def _smallest_normal(element: Element) -> np.float32:
    if isinstance(element, FloatElement):
        return np.float32(element.cast.format.smallest_normal)
    return np.float32(0)


# --- adding up and reading -----------------------------------------------------------------------

_NAMES = tuple(field.name for field in fields(RecipeTally))
_OF_BLOCKS = ("blocks", "zero_blocks", "nan_blocks", "clipped_blocks")
_OF_NUMBERS = ("total", "nan", "inf", "zero", "overflow", "lost", "clipped", "subnormal")
_ADDED = ("tensors", *_OF_NUMBERS, *_OF_BLOCKS, "signal", "noise")


def _joined(a: RecipeTally, b: RecipeTally) -> tuple[int, tuple[int, ...]]:
    parts = [(t.low, t.scales) for t in (a, b) if t.scales]
    low = min((first for first, _ in parts), default=0)
    return low, _summed(parts, low)


def _summed(parts: list[tuple[int, tuple[int, ...]]], low: int) -> tuple[int, ...]:
    size = max((first - low + len(counts) for first, counts in parts), default=0)
    total = [0] * size
    for first, counts in parts:
        for place, count in enumerate(counts, first - low):
            total[place] += count
    return tuple(total)


def _checked(found: RecipeTally) -> RecipeTally:
    """Refuse counts that no array has."""
    kinds = (found.nan, found.inf, found.zero, found.overflow, found.lost, found.clipped,
             found.subnormal)  # fmt: skip
    blocks = found.blocks - found.zero_blocks
    fits = sum(kinds) <= found.total and sum(found.scales) <= blocks >= sum(found.crest)
    inside = found.axis < 0 and len(found.crest) <= _CREST_BINS
    ends = (found.low, found.low + max(len(found.scales) - 1, 0))
    few = max(found.zero_blocks, found.nan_blocks, found.clipped_blocks) <= found.blocks
    if not (found.tensors and fits and inside and few and all(end in _BINADES for end in ends)):
        raise InputError("these counts do not fit together")
    return found


def _count(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number < _LIMIT:
        raise InputError(f"{value!r:.40}: is no count")
    return number


def _sum(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool | str) or not 0 <= number < math.inf:
        raise InputError(f"{value!r:.40}: is no sum of squares")
    return number


def _histogram(values: Any) -> tuple[int, ...]:
    return tuple(map(_count, values))


def _recipe(facts: Any) -> Recipe:
    return _read_recipe(tuple(dict(facts).items()))


@lru_cache(maxsize=256)
def _read_recipe(facts: tuple[tuple[str, Any], ...]) -> Recipe:
    """A trace holds thousands of tallies of a few recipes."""
    return Recipe.from_json(dict(facts))


def _readers() -> Iterator[tuple[str, Any]]:
    yield from ((name, _count) for name in ("tensors", *_OF_NUMBERS, *_OF_BLOCKS))
    yield from (("signal", _sum), ("noise", _sum), ("scales", _histogram), ("crest", _histogram))
    yield from (("axis", operator.index), ("low", operator.index), ("recipe", _recipe))


_READ = dict(_readers())
