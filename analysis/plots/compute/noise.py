"""Noise: the squared error of rounding, measured on arrays or predicted from counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.noise import NEAREST
from fpemu.analysis.noise import predicted as of_counts
from fpemu.analysis.parts import Parts
from fpemu.analysis.plots.compute.counts import Shares
from fpemu.arrays import float_array
from fpemu.errors import InputError
from fpemu.scaling.tally import recipe_tally
from fpemu.tallies import exponent_of

__all__ = ["check_squares", "decibels", "measured", "predicted"]

Array = np.ndarray[Any, Any]

_SQUARED = 480  #: exponents up to which squares, and sums of 2^60 of them, are float64 numbers
_FINEST = 16  #: mantissa bits: the slots say nothing of where float32's last bits are


def decibels(signal: Any, noise: Any) -> Shares:
    """Return 10 log10(signal / noise): inf without noise, NaN without signal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide(signal, noise)
        found = 10.0 * np.log10(ratio)
    return np.where(np.asarray(signal) > 0, found, np.nan)


def measured(
    x: Array, cast: Target, scales: Sequence[float], seed: int | None = None
) -> tuple[float, Shares]:
    """Return the sum of an array's squares, and that of its errors at each scale, in float64.

    Products with a scale are exact. Infinities and NaNs of x are left out; where a finite value
    became one, the noise is infinite. A recipe has scales of its own, and takes all alike.
    """
    if isinstance(cast, ByRecipe):
        found = recipe_tally(x, cast.recipe)
        return found.signal, np.full(len(scales), math.inf if found.overflow else found.noise)
    every = np.asarray(float_array(x), np.float64).ravel()
    finite = every[np.isfinite(every)]
    check_squares(finite)
    noise = np.zeros(len(scales))
    for row, scale in enumerate(scales):
        scaled = np.ldexp(finite, exponent_of(scale))
        rounded = fpemu.round(scaled, cast, seed=seed)
        error = np.ldexp(rounded - scaled, -exponent_of(scale))
        noise[row] = np.dot(error, error) if np.isfinite(error).all() else math.inf
    return float(np.dot(finite, finite)), noise


def check_squares(finite: Array) -> None:
    """Refuse float64 numbers whose squares are beyond float64."""
    amax = float(np.abs(finite).max(initial=0.0))
    if amax and not 2.0**-_SQUARED <= amax < 2.0**_SQUARED:
        raise InputError(
            f"largest magnitude {amax:g}: its square is beyond float64; multiply x by a power of "
            "two, which changes no signal to noise that is measured at the inverse scale"
        )


def predicted(parts: Parts, cast: Target, scales: Sequence[float]) -> tuple[float, Shares]:
    """Return what `fpemu.analysis.noise.predicted` does, of casts that it tells nearly exactly.

    Errors: InputError for a cast that does not round to nearest, or so finely that counts say
    nothing of its error.
    """
    _check(cast)
    return of_counts(parts, cast, scales)


def _check(cast: Target) -> None:
    if isinstance(cast, ByRecipe):
        return
    form = cast.format
    if cast.rounding in NEAREST and form.zero and form.mantissa_bits <= _FINEST:
        return
    raise InputError(
        f"cast {cast}: its SQNR is predicted from counts only if it rounds to nearest, has a zero "
        f"and at most {_FINEST} mantissa bits; give arrays, where it is measured"
    )
