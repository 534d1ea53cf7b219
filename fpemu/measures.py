"""Distances on a format's grid (spacing, nextafter) and errors between arrays (error)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpemu.arrays import float_array, like_input
from fpemu.cast import Cast
from fpemu.catalog import find_format
from fpemu.codes import decode, encode
from fpemu.emulate import round
from fpemu.errors import InputError
from fpemu.format import Format

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
    array([1.125     ,        nan, 0.00195312], dtype=float32)

    x: values of the format (others are an InputError; round them first). As numpy.nextafter:
    x == direction gives direction; NaN gives NaN; beyond the largest value lies infinity, or NaN
    in a format without one, or nothing (x itself) in a format without either. From zero it goes to
    the smallest value of the direction's sign. An unsigned format stops at its lowest value.
    """
    form = find_format(format)
    array = _on_grid(float_array(x), form)
    try:
        goal = np.broadcast_to(np.asarray(direction, np.float64), array.shape)
    except (TypeError, ValueError, OverflowError):
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
    same = np.where(goal == array, goal, array)
    result = np.where(step == 0, same if form.minus_zero else same + 0.0, result)
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
    >>> f"{e.max_ulp:.2f} ulp at most, {e.sqnr:.1f} dB"
    '0.50 ulp at most, 32.5 dB'

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
    half = 0.5 * b - 0.5 * a  # a difference of float64 extremes would overflow
    signal, noise, power = _squares(a), _squares(half), _squares(b)
    with np.errstate(over="ignore", under="ignore"):
        ulps = None if format is None else 2 * (np.abs(half) / spacing(a, format))
        nonzero = a != 0
        relative = 2 * (np.abs(half[nonzero]) / np.abs(a[nonzero]))
    return Error(
        count=a.size,
        nonfinite=reference.size - a.size,
        sqnr=_decibels(signal, noise._replace(exponent=noise.exponent + 2)),
        rms=_root_mean(noise, a.size),
        max_ulp=None if ulps is None else _reduce(np.max, ulps),
        mean_ulp=None if ulps is None else _reduce(np.mean, ulps),
        max_relative=_reduce(np.max, relative),
        mean_relative=_reduce(np.mean, relative),
        cosine=_cosine(signal, power),
    )


class _Squares(NamedTuple):
    """A vector scaled to its largest element, and its sum of squares: total * 2**exponent."""

    scaled: Array
    total: float
    exponent: int


def _squares(v: Array) -> _Squares:
    largest = float(np.max(np.abs(v), initial=0.0))
    shift = -math.frexp(largest)[1]
    with np.errstate(under="ignore"):
        scaled = np.ldexp(v, shift)
        return _Squares(scaled, float(np.dot(scaled, scaled)), -2 * shift)


def _decibels(signal: _Squares, noise: _Squares) -> float:
    if signal.total == 0:
        return math.nan
    if noise.total == 0:
        return math.inf
    binary = math.log10(2) * (signal.exponent - noise.exponent)
    return 10 * (math.log10(signal.total) - math.log10(noise.total) + binary)


def _root_mean(noise: _Squares, count: int) -> float:
    """The root of the mean squared difference, of which `noise` has the half."""
    if not count:
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.ldexp(math.sqrt(noise.total / count), noise.exponent // 2 + 1))


def _cosine(a: _Squares, b: _Squares) -> float:
    if not a.total or not b.total:
        return math.nan
    with np.errstate(under="ignore"):
        return float(np.dot(a.scaled, b.scaled)) / (math.sqrt(a.total) * math.sqrt(b.total))


def _reduce(function: Any, values: Array) -> float:
    return float(function(values)) if values.size else math.nan
