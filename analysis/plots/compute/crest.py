"""QSNR of an array's blocks against their crest factor, for several rules of the block scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import fpemu
from fpemu.analysis.asked import several
from fpemu.analysis.plots.compute.counts import Counts, Shares, check_count, freeze
from fpemu.analysis.plots.compute.noise import check_squares, decibels
from fpemu.blocks import CREST_STEPS
from fpemu.cast import Cast, Overflow, make_cast
from fpemu.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fpemu.format import Format

__all__ = ["RULES", "QsnrByCrest", "qsnr_by_crest"]

Array = np.ndarray[Any, Any]

_PARTS = (0.1, 0.5, 0.9)  #: of the blocks in a bin: low, median, high
_E8M0 = (-127, 127)  #: exponents of a block scale stored as E8M0 (OCP MX v1.0, 5.3.3)


def _ceil(amax: Array, form: Format) -> Array:
    """2^ceil(log2(amax / max)): nothing saturates (arXiv 2510.25602)."""
    (significand, exponent), (most, top) = np.frexp(amax), math.frexp(form.max)
    return _power(exponent - top + (significand > most))


def _floor(amax: Array, form: Format) -> Array:
    """2^(floor(log2 amax) - emax): OCP MX v1.0, section 6.3; values above max saturate."""
    return _power(np.frexp(amax)[1] - 1 - form.emax)


def _exact(amax: Array, form: Format) -> Array:
    """amax / max, a scale of any precision."""
    return np.asarray(amax / form.max)


def _e4m3(amax: Array, form: Format) -> Array:
    """amax / max in E4M3, times one scale of the whole array that makes the largest 448: NVFP4."""
    exact = amax / form.max
    whole = float(exact.max(initial=0.0)) / 448.0 or 1.0
    stored = fpemu.round(exact / whole, "float8_e4m3fn", overflow="saturate")
    return np.asarray(np.maximum(stored, 2.0**-9) * whole)


def _power(exponents: Array) -> Array:
    return np.exp2(np.clip(exponents, *_E8M0).astype(np.float64))


#: The rules of the block scale, by which a block is divided before the cast: (amax, format).
RULES: dict[str, Callable[[Array, Any], Array]] = {
    "ceil": _ceil,
    "floor": _floor,
    "exact": _exact,
    "e4m3": _e4m3,
}


@dataclass(frozen=True, eq=False)
class QsnrByCrest:
    """QSNR of blocks by crest factor (amax / rms), in bins of an eighth of an octave."""

    labels: tuple[str, ...]  #: the rules
    edges: Shares  #: log2 of the crest factor
    blocks: Counts = field(repr=False)  #: [bin]
    low: Shares = field(repr=False)  #: [rule, bin], dB: a tenth of the blocks is below; NaN: none
    median: Shares = field(repr=False)
    high: Shares = field(repr=False)  #: a tenth of the blocks is above
    overall: tuple[float, ...]  #: by rule: all blocks together, dB
    zero: int  #: blocks of zeros alone, which have no crest factor
    nonfinite: int  #: blocks with an infinity or a NaN
    to: str
    block: int


def qsnr_by_crest(
    x: Any,
    *,
    to: Cast | Format | str = "float8_e4m3fn",
    block: int = 32,
    rules: str | Iterable[str] = ("ceil", "floor", "exact"),
) -> QsnrByCrest:
    """Measure how well blocks survive a format with a scale each, by their crest factor.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> found = compute.qsnr_by_crest(x, rules=["ceil", "floor"])
    >>> [f"{level:.1f} dB" for level in found.overall]
    ['31.5 dB', '30.7 dB']

    x: an array of floats, or a dict of them; blocks are `block` numbers that lie together on the
    last axis, the last of a row being shorter if that is needed. A block is divided by its scale
    s, cast (finite overflow saturates) and multiplied by s. rules: "ceil", s = 2^ceil(log2(amax /
    max)); "floor", s = 2^(floor(log2 amax) - emax), OCP's; "exact", s = amax / max; "e4m3", that
    in E4M3 times one scale for the whole array, NVFP4's. The first two are kept to E8M0's range.
    Blocks of zeros and blocks with an infinity or a NaN are counted apart.
    """
    cast = make_cast(to).replace(overflow=Overflow.SATURATE)
    chosen = several("rules", rules, str)
    for rule in chosen:
        if rule not in RULES:
            hint = did_you_mean(str(rule), RULES)
            raise InputError(f"unknown rule {rule!r}; {hint}rules: {', '.join(RULES)}")
    every, sizes = _blocks(x, check_count(block, "block"))
    amax = np.abs(every).max(1, initial=0.0)
    finite, nonzero = np.isfinite(amax), amax != 0
    check_squares(amax[finite])
    good, amax, sizes = (a[finite & nonzero] for a in (every, amax, sizes))
    squares = np.square(good).sum(1)
    # a block of equal magnitudes has crest factor 1: its root may be a little above
    crest = np.maximum(np.log2(amax / np.sqrt(squares / sizes)), 0.0)
    noise = [_noise(good, RULES[rule](amax, cast.format), cast) for rule in chosen]
    edges, blocks, (low, median, high) = _binned(crest, [decibels(squares, one) for one in noise])
    return QsnrByCrest(
        tuple(chosen),
        edges,
        blocks,
        low,
        median,
        high,
        tuple(float(decibels(squares.sum(), one.sum())) for one in noise),
        int((finite & ~nonzero).sum()),
        int((~finite).sum()),
        str(cast),
        int(block),
    )


def _blocks(x: Any, block: int) -> tuple[Array, Array]:
    """All blocks as rows, a short one filled up with zeros, and how many numbers each has."""
    arrays = list(map(np.asarray, x.values() if isinstance(x, Mapping) else [x]))
    longest = max((array.shape[-1] for array in arrays if array.ndim), default=1)
    block = min(block, max(longest, 1))  # a longer one would be nothing but filled up
    rows, sizes = [np.zeros((0, block))], [np.zeros(0, np.int64)]
    for array in arrays:
        if array.dtype.kind != "f" or array.ndim == 0:
            raise InputError(
                f"{array.dtype}{list(array.shape)}: blocks are taken along the last axis of arrays "
                "of floats"
            )
        if not array.size:
            continue
        lines = array.reshape(-1, array.shape[-1]).astype(np.float64)
        fill = -lines.shape[1] % block
        rows.append(np.pad(lines, ((0, 0), (0, fill))).reshape(-1, block))
        each = np.full(-(-lines.shape[1] // block), block)
        each[-1:] -= fill
        sizes.append(np.tile(each, len(lines)))
    return np.concatenate(rows), np.concatenate(sizes)


def _noise(blocks: Array, scales: Array, cast: Cast) -> Shares:
    """The sum of the squared errors of each block."""
    scaled = blocks / scales[:, None]
    return np.asarray(np.square((fpemu.round(scaled, cast) - scaled) * scales[:, None]).sum(1))


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
