"""directed_inputs: the float32 inputs at which casts go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpemu.catalog import find_format
from fpemu.format import Format

__all__ = ["directed_inputs"]

Array = np.ndarray[Any, Any]

_SPECIAL_BITS = (
    [0x00000000, 0x00000001, 0x00000002, 0x00000003]  # zero, the smallest subnormals
    + [1 << k for k in range(2, 23)]  # every leading bit of a subnormal
    + [0x00400001, 0x005FFFFF, 0x00600000, 0x007FFFFF, 0x00800000, 0x00800001]
    + [0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000]  # largest, infinity
    + [0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF]  # signalling and quiet NaNs
)


def directed_inputs(format: Format | str) -> Array:
    """Return the float32 numbers at which a cast to a format can go wrong.

    >>> from fpemu.testing import directed_inputs
    >>> x = directed_inputs("e4m3fn")
    >>> x.dtype.name, len(x) > 3000, 464.0 in x
    ('float32', True, True)

    Of both signs: values of the format, midpoints and quarter points between them (with the grid
    continued two steps above the largest value), each with its float32 neighbours; float32's
    own subnormals, powers of two, infinity, quiet and signalling NaNs. Up to 12 bits every value
    is there with neighbours two ulps away; for wider formats each exponent comes with some of
    about 60 significands, in turn, and neighbours one ulp away: below 25,000 inputs in all.
    """
    form = find_format(format)
    codes = _codes(form)
    low = np.array([float(form.exact_magnitude(int(c))) for c in codes])
    high = np.array([float(form.exact_magnitude(int(c) + 1)) for c in codes])
    narrow = form.bits <= 12
    points = np.concatenate(
        [low + (high - low) * f for f in ((0, 0.25, 0.5, 0.75) if narrow else (0, 0.5))]
    )
    if not form.zero:  # below the smallest value lies nothing
        points = np.concatenate([points, low[0] * np.array([0.25, 0.5, 0.75])])
    powers = np.ldexp(1.0, np.arange(-149, 128))
    points = np.concatenate([points, powers])
    kept = points[points <= np.finfo(np.float32).max].astype(np.float32)
    bits = np.concatenate([kept.view(np.uint32), np.array(_SPECIAL_BITS, np.uint32)]).astype(int)
    steps = (-2, -1, 0, 1, 2) if narrow else (-1, 0, 1)
    near = np.unique(np.concatenate([bits + d for d in steps]))
    near = near[(near >= 0) & (near <= 0x7FFFFFFF)]
    both: Array = np.concatenate([near, near | 0x80000000]).astype(np.uint32).view(np.float32)
    return both


def _codes(form: Format) -> Array:
    """Magnitude codes to try, two of the continued grid above the largest among them."""
    last = form.max_code + 2
    if form.bits <= 12:
        return np.arange(last + 1)
    m = form.mantissa_bits
    fractions = {f for k in range(m + 1) for f in ((1 << k) - 1, 1 << k, (1 << m) - (1 << k))}
    fractions |= {int(f) for f in np.linspace(0, (1 << m) - 1, 24)}
    inside = np.array(sorted(f for f in fractions if 0 <= f < 1 << m))
    fields = np.arange((last >> m) + 1)
    each = min(len(inside), max(3, 1400 // len(fields)))
    turn = inside[(each * fields[:, None] + np.arange(each)) % len(inside)]
    ends = np.broadcast_to([0, (1 << m) - 1], (len(fields), 2))
    every = (fields[:, None] * (1 << m) + np.concatenate([turn, ends], axis=1)).ravel()
    edges = np.concatenate([np.arange(4), np.arange(form.max_code - 3, last + 1)])
    return np.unique(np.concatenate([every[every <= last], edges]))
