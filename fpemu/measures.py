"""Distances on a format's grid (spacing, nextafter) and errors between arrays (error)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arrays import float_array, like_input
from fpemu.cast import Cast
from fpemu.codes import decode, encode
from fpemu.emulate import round
from fpemu.errors import InputError
from fpemu.format import Format, find_format

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Error", "error", "nextafter", "spacing"]

Array = np.ndarray[Any, Any]


def _plain(form: Format) -> Cast:
    return Cast(form, negative="nan" if form.signed or form.has_nan else "abs", zero="nan")


def _on_grid(x: Array, form: Format) -> Array:
    """Refuse numbers that are not values of the format."""
    rounded = round(x, _plain(form))
    wrong = ~((rounded == x) | np.isnan(x))
    if wrong.any():
        bad = float(x[wrong].flat[0])
        raise InputError(f"{bad!r} is not a value of {form.name}: round it first")
    return x


def spacing(x: ArrayLike, format: Format | str) -> Any:
    """Return the distance from |x| to the next larger value on a format's grid.

    >>> import numpy as np, fpemu
    >>> fpemu.spacing(np.float32([1.0, 448.0, 0.0]), "e4m3fn")
    array([1.250000e-01, 3.200000e+01, 1.953125e-03], dtype=float32)

    x need not be a value of the format: the result is the gap of the binade that |x| lies in,
    which is the ulp by which errors are counted. Above the largest value the last gap holds;
    NaN and infinity give NaN (as numpy.spacing does). The result is always positive.
    """
    form = find_format(format)
    array = float_array(x)
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(np.abs(array).astype(np.float64))
    exponent = np.clip(exponent - 1, form.emin, form.emax)
    exponent = np.where(array == 0, form.emin, exponent)
    gap = np.ldexp(1.0, exponent - form.mantissa_bits)
    result = np.where(np.isfinite(array), gap, np.nan).astype(array.dtype)
    return like_input(x, result)


def nextafter(x: ArrayLike, direction: ArrayLike, format: Format | str) -> Any:
    """Return the next value of a format after x in the direction of another number.

    >>> import numpy as np, fpemu
    >>> fpemu.nextafter(np.float32([1.0, 448.0, 0.0]), np.inf, "e4m3fn")
    array([1.125000e+00,          nan, 1.953125e-03], dtype=float32)

    x: values of the format (others are an InputError; round them first). As numpy.nextafter:
    x == direction gives direction; NaN gives NaN; beyond the largest value lies infinity, or NaN
    in a format without one, or nothing (x itself) in a format without either. From zero it goes to
    the smallest value of the direction's sign. An unsigned format stops at its lowest value.
    """
    form = find_format(format)
    array = _on_grid(float_array(x), form)
    try:
        goal = np.broadcast_to(np.asarray(direction, np.float64), array.shape)
    except (TypeError, ValueError):
        raise InputError(
            f"direction {direction!r}: must be a number, or numbers that broadcast to x's shape "
            f"{array.shape}"
        ) from None
    codes = np.asarray(encode(array, _plain(form))).astype(np.int64)
    magnitude = codes & ((1 << form.magnitude_bits) - 1)
    rank = np.where(np.signbit(array), -magnitude, magnitude)
    beyond = form.max_code + int(form.has_nan)  # one step past the largest value: inf or NaN
    lowest = -beyond if form.signed else 0  # code 0 is zero, or E8M0's smallest
    step = (goal > array).astype(np.int64) - (goal < array)
    rank = np.clip(rank + step, lowest, beyond)
    negative = (rank < 0) | (rank == 0) & np.signbit(array)
    past = np.abs(rank) > form.max_code
    moved = np.where(past, form.max_code, np.abs(rank)).astype(np.uint32)
    result = np.where(past, np.inf if form.inf else np.nan, decode(moved, form))
    result = np.where(negative & ((rank != 0) | form.minus_zero), -result, result)
    result = np.where(step == 0, np.where(goal == array, goal, array), result)
    result = np.where(np.isnan(array) | np.isnan(goal), np.nan, result)
    return like_input(x, result.astype(array.dtype))


@dataclass(frozen=True)
class Error:
    """How far an array is from another; see `fpemu.error`."""

    count: int  #: pairs measured
    nonfinite: int  #: pairs left out: NaN or infinite on either side
    sqnr: float  #: signal to quantization noise, decibels
    rms: float  #: root of the mean squared difference
    max_ulp: float | None  #: in units in the last place of the format at |x|
    mean_ulp: float | None
    max_relative: float  #: of non-zero x
    mean_relative: float
    cosine: float  #: cosine of the angle between the two as vectors

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a dict; infinite and undefined ones as strings."""
        return {k: _json_number(v) for k, v in asdict(self).items()}


def _json_number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def error(x: ArrayLike, q: ArrayLike, format: Format | str | None = None) -> Error:
    """Return how far q is from x: SQNR, ulp, relative error, cosine.

    >>> import numpy as np, fpemu
    >>> x = np.linspace(1, 2, 1001, dtype=np.float32)
    >>> e = fpemu.error(x, fpemu.round(x, "e4m3fn"), "e4m3fn")
    >>> e.max_ulp, f"{e.sqnr:.1f} dB"
    (0.5, '32.6 dB')

    x, q: float arrays of one shape. format: the grid whose ulp counts (that of the rounding);
    without it the ulp fields are None. All figures are computed in float64.
    Pairs with NaN or infinity on either side are left out and counted as nonfinite, so an
    overflow does not hide the rest; look at that count first. Without any error the SQNR is
    inf; without any signal, or without pairs, the figures are NaN.
    """
    reference, other = float_array(x), float_array(q)
    if reference.shape != other.shape:
        raise InputError(f"x has shape {reference.shape} and q {other.shape}: give equal shapes")
    finite = np.isfinite(reference) & np.isfinite(other)
    a, b = reference[finite].astype(np.float64), other[finite].astype(np.float64)
    # one power of two off both keeps squares of float64 extremes in range
    shift = 0 if a.size == 0 else -int(np.frexp(max(np.abs(a).max(), np.abs(b).max()))[1])
    d, sa, sb = np.ldexp(b - a, shift), np.ldexp(a, shift), np.ldexp(b, shift)
    signal, noise, power = (float(np.dot(v, v)) for v in (sa, d, sb))
    ulps = None if format is None else np.abs(b - a) / spacing(a, format)
    nonzero = a != 0
    relative = np.abs(b - a)[nonzero] / np.abs(a[nonzero])
    return Error(
        count=a.size,
        nonfinite=reference.size - a.size,
        sqnr=_decibels(signal, noise),
        rms=math.ldexp(math.sqrt(noise / a.size), -shift) if a.size else math.nan,
        max_ulp=None if ulps is None else _reduce(np.max, ulps),
        mean_ulp=None if ulps is None else _reduce(np.mean, ulps),
        max_relative=_reduce(np.max, relative),
        mean_relative=_reduce(np.mean, relative),
        cosine=float(np.dot(sa, sb)) / math.sqrt(signal * power) if signal * power else math.nan,
    )


def _reduce(function: Any, values: Array) -> float:
    return float(function(values)) if values.size else math.nan


def _decibels(signal: float, noise: float) -> float:
    if signal == 0:
        return math.nan
    return math.inf if noise == 0 else 10 * math.log10(signal / noise)
