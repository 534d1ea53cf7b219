"""Hypothesis strategies for formats, casts, codes and the numbers at which casts go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero
from fpemu.catalog import FORMATS, find_format
from fpemu.errors import FpemuError, InputError, MissingExtraError
from fpemu.format import Format, NaN
from fpemu.rounding import value_of

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError:
    raise MissingExtraError(
        "fpemu.testing.strategies needs Hypothesis: pip install 'fpemu[test]'"
    ) from None

__all__ = ["any_floats", "arrays", "casts", "codes", "formats", "near_overflow", "ties", "values"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def formats(*, named: bool = False) -> st.SearchStrategy[Format]:
    """Return formats: those of the table and, unless named=True, any that a user could make."""
    table = st.sampled_from(list(FORMATS.values()))
    return table if named else st.one_of(table, _own_formats())


@st.composite
def _own_formats(draw: Any) -> Format:
    while True:
        e, m = draw(st.integers(1, 8)), draw(st.integers(0, 23))
        signed = draw(st.booleans())
        nan = draw(st.sampled_from(list(NaN)))
        inf = nan is NaN.TOP_BINADE or (nan is not NaN.NONE and draw(st.booleans()))
        bias = (1 << (e - 1)) - 1 + draw(st.integers(-8, 8))
        try:
            return Format("drawn", e, m, bias, nan, inf, signed)
        except FpemuError:  # no finite value left, or outside float32: draw again
            continue


@st.composite
def casts(
    draw: Any, format: Format | str | None = None, *, stochastic: bool = False
) -> Cast:
    """Draw casts to a format (or to any), with every rule; stochastic ones only on request."""
    form = draw(formats()) if format is None else find_format(format)
    modes = [r for r in Rounding if stochastic or r is not Rounding.STOCHASTIC]
    negative = draw(st.sampled_from(Negative))
    if not form.signed and not form.has_nan:
        negative = Negative.ABS
    return Cast(
        form,
        draw(st.sampled_from(modes)),
        draw(st.sampled_from(Overflow)),
        draw(st.sampled_from(Subnormals)),
        negative,
        draw(st.sampled_from(Zero)),
    )


def codes(format: Format | str) -> st.SearchStrategy[int]:
    """Return codes of a format, NaN's and infinity's among them."""
    return st.integers(0, (1 << find_format(format).bits) - 1)


def values(format: Format | str, *, finite: bool = False) -> st.SearchStrategy[float]:
    """Return values of a format, drawn by code; with finite=True neither NaN nor infinity."""
    form = find_format(format)
    drawn = codes(form).map(lambda code: float(value_of(form, code)))
    return drawn.filter(np.isfinite) if finite else drawn


def ties(format: Format | str) -> st.SearchStrategy[float]:
    """Return numbers exactly halfway between two values, up to the largest value's own gap.

    The last one lies between the largest value and the next point of the continued grid.
    """
    form = find_format(format)
    if form.mantissa_bits == 23:
        raise InputError(f"{form.name}: a float32 cannot lie halfway between two of its values")

    def halfway(code: int, sign: float) -> float:
        low, high = form.exact_magnitude(code), form.exact_magnitude(code + 1)
        return sign * float((low + high) / 2)

    last = form.max_code if float(form.exact_magnitude(form.max_code + 1)) < 2.0**128 else (
        form.max_code - 1
    )
    signs = st.sampled_from([1.0, -1.0] if form.signed else [1.0])
    return st.builds(halfway, st.integers(form.min_code, last), signs)


def near_overflow(format: Format | str) -> st.SearchStrategy[float]:
    """Return float32 numbers within two gaps of the largest value, of every sign it has."""
    form = find_format(format)
    gap = 2.0 ** (form.emax - form.mantissa_bits)
    top = min(form.max + 2 * gap, _FLOAT32_MAX)
    low = max(form.max - 2 * gap, form.max / 4)
    near = st.floats(float(np.float32(low)), float(np.float32(top)), width=32)
    return st.one_of(near, near.map(lambda x: -x)) if form.signed else near


def any_floats(format: Format | str) -> st.SearchStrategy[float]:
    """Return float32 numbers of every kind: values, ties, near overflow, tiny, NaN, infinity."""
    form = find_format(format)
    kinds = [st.floats(width=32), values(form), near_overflow(form)]
    small = 4 * form.smallest_subnormal
    kinds.append(st.floats(-small, small, width=32))
    if form.mantissa_bits < 23:
        kinds.append(ties(form))
    return st.one_of(*kinds)


def arrays(
    format: Format | str, shape: Any = None, *, elements: Any = None
) -> st.SearchStrategy[Any]:
    """Return float32 arrays of `any_floats` (or of `elements`), of any small shape unless given."""
    chosen = hnp.array_shapes(min_dims=0, min_side=0) if shape is None else shape
    return hnp.arrays(np.float32, chosen, elements=elements or any_floats(format))
