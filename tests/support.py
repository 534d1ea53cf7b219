"""What the tests share: comparing bits, directed inputs, odd formats, every Cast of a format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import fpemu
from fpemu.cast import Negative, Overflow, Rounding, Subnormals, Zero
from fpemu.errors import FormatError

Array = np.ndarray[Any, Any]

#: The ml_dtypes formats of the table.
ML_DTYPES = [name for name in fpemu.formats if name not in ("float32", "float16", "tf32")]

#: Roundings that need no random bits.
DETERMINISTIC = [r for r in Rounding if r is not Rounding.STOCHASTIC]

#: Formats that nobody ships, at the edges of what a Format may be.
ODD = [
    fpemu.Format("deep", 4, 3, 147, "top_code", inf=False),  # down to 2**-149
    fpemu.Format("partly_deep", 4, 3, 130, "top_binade", inf=True),
    fpemu.Format("deep_coarse", 3, 0, 149, "none", inf=False),
    fpemu.Format("high", 3, 2, -120, "none", inf=False),  # up to 1.75 * 2**127
    fpemu.Format("high_inf", 3, 2, -120, "top_code", inf=True),
    fpemu.Format("one_value", 1, 0, 1, "none", inf=False),
    fpemu.Format("two_values", 1, 1, 0, "minus_zero", inf=False),
    fpemu.Format("no_fraction", 3, 0, 3, "minus_zero", inf=True),
    fpemu.Format("no_fraction_ieee_like", 2, 0, 1, "top_code", inf=True),
    fpemu.Format("unsigned", 4, 3, 7, "top_code", inf=True, signed=False),
    fpemu.Format("unsigned_no_nan", 3, 2, 3, "none", inf=False, signed=False),
    fpemu.Format("zeroless", 5, 0, 15, "top_code", inf=True, signed=False, zero=False),
    fpemu.Format("zeroless_no_nan", 4, 0, 7, "none", inf=False, signed=False, zero=False),
    fpemu.Format("bias_huge", 2, 1, 100, "minus_zero", inf=True),
    fpemu.Format("e8m3fn", 8, 3, 128, "top_code", inf=False),
    fpemu.Format("e5m8", 5, 8, 15, "minus_zero", inf=True),
]

#: Formats of so many codes that no table of them is made.
WIDE = [
    fpemu.formats["float32"],
    fpemu.Format("e8m22fn", 8, 22, 128, "top_code", inf=False),  # down to 2**-149
    fpemu.Format("e5m23", 5, 23, 15, "top_code", inf=True),
    fpemu.Format("e1m23", 1, 23, 0, "none", inf=False),
    fpemu.Format("e7m20fnuz", 7, 20, 64, "minus_zero", inf=True),
    fpemu.Format("unsigned_e6m22", 6, 22, 31, "top_binade", inf=True, signed=False),
]


def p3109_formats(widths: range) -> list[fpemu.Format]:
    """Every P3109 format of these widths that exists and stays in float32."""
    found = []
    for K, signed, extended in itertools.product(widths, (True, False), (True, False)):
        for P in range(1, K + (not signed)):
            try:
                found.append(fpemu.p3109(K, P, signed, extended))
            except FormatError:
                continue
    return found


#: A few of P3109's, of every kind.
P3109 = [
    fpemu.finfo(name)
    for name in (
        "binary8p4se", "binary8p3sf", "binary8p1se", "binary8p1ue", "binary8p5uf", "binary6p3se",
        "binary5p1sf", "binary4p2ue", "binary3p2se", "binary3p1uf", "binary12p5se",
    )
]  # fmt: skip

#: All formats that have a table of codes: up to 19 bits.
TABLED = [f for f in fpemu.formats.values() if f.bits <= 19] + P3109 + ODD


def every_cast(form: fpemu.Format, roundings: Any = DETERMINISTIC) -> list[fpemu.Cast]:
    """Every different Cast to a format; rules that cannot matter to it are not repeated."""
    casts = {}
    for rules in itertools.product(roundings, Overflow, Subnormals, Negative, Zero):
        try:
            casts[fpemu.Cast(form, *rules)] = None
        except FormatError:  # an unsigned format without NaN needs negative="abs"
            continue
    return list(casts)


def names(values: Any) -> list[str]:
    """Test ids."""
    return [str(getattr(v, "value", v)) for v in values]


# --- inputs ----------------------------------------------------------------------------------

_SPECIAL32 = [
    0, 1, 2, 3, 0x7FFFFF, 0x400000, 0x400001, 0x3FFFFF, 0x5FFFFF, 0x600000,  # subnormals
    0x800000, 0x800001, 0x3F800000, 0x7F7FFFFF, 0x7F7FFFFE, 0x7F000000,
    0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF,  # inf, NaNs
]  # fmt: skip
_SPECIAL32 += [1 << i for i in range(23)] + [(1 << i) - 1 for i in range(2, 23)]


def edges(form: fpemu.Format) -> Array:
    """Values and midpoints of the format's grid, continued above its largest, as float64.

    All of them for formats of up to 8 bits; else those near powers of two, in the lowest, the
    middle and the highest binades.
    """
    m = form.mantissa_bits
    fractions = np.arange(1 << m) if form.bits <= 8 else _corner_fractions(m)
    binades = np.arange(form.emin, form.emax + 2)
    if form.bits > 8:
        middle = len(binades) // 2
        binades = binades[sorted({0, 1, middle, len(binades) - 3, len(binades) - 2})]
    grid = np.ldexp(1.0 + fractions / (1 << m), binades[:, None])
    gaps = np.ldexp(1.0, binades - m)[:, None]
    small = (fractions + 0.5 * np.arange(2)[:, None]) * form.smallest_subnormal
    parts = [grid, grid + gaps / 2, grid - gaps / 2, small, [form.max, form.max + gaps[-2, 0] / 2]]
    every = np.unique(np.concatenate([np.ravel(p) for p in parts]))
    return every[every > 0]


def _corner_fractions(m: int) -> Array:
    near = np.concatenate([[0], 1 << np.arange(0, m, 2 if m > 12 else 1)])
    return np.unique(np.concatenate([near, (1 << m) - 1 - near]) % (1 << m))


def directed_inputs(form: fpemu.Format, dtype: Any = np.float32) -> Array:
    """Each value and midpoint with its neighbours, the specials, and for wide formats a net.

    The neighbours are one and two units in the last place of float32 (or float64) away; all
    have both signs but the net's: fewer than 20,000 inputs.
    """
    special = np.array(_SPECIAL32, np.uint32).view(np.float32)
    special = special if dtype == np.float32 else _special64(widened(special))
    words = np.unique(_bits(np.concatenate([_around(edges(form), np.dtype(dtype)), special])))
    words = np.concatenate([words, words | words.dtype.type(1 << (8 * words.itemsize - 1))])
    directed = words.view(dtype)
    return directed if form.bits <= 8 else np.concatenate([directed, _net(form).astype(dtype)])


def _around(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        bits = _bits(values.astype(dtype)).astype(np.int64)
    last = np.array(np.inf, dtype).view(f"i{dtype.itemsize}")
    near = (bits[:, None] + np.arange(-2, 3)).clip(0, int(last))
    return near.ravel().astype(f"u{dtype.itemsize}").view(dtype)


def _special64(special: Array) -> Array:
    more = [0x1, 0xFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    more += [(e << 52) | 1 for e in range(1, 0x7FF, 73)]
    return np.concatenate([special, np.array(more, np.uint64).view(np.float64)])


def _net(form: fpemu.Format) -> Array:
    """Every float32 exponent with 64 significands, half of them near the format's ties."""
    random = np.random.default_rng(form.bits)
    d = 23 - form.mantissa_bits
    half = 1 << d >> 1
    tails = np.array([0, 1, -1, half, half + 1, half - 1, 2, half >> 1])
    heads = np.array([0, 1, (1 << form.mantissa_bits) - 2, 0x2A_AAAA >> d]) << d
    near = (heads[:, None] + tails) % (1 << 23)
    fractions = np.concatenate([near.ravel(), random.integers(0, 1 << 23, 32)])
    words = (np.arange(255) << 23)[:, None] + fractions
    words |= random.integers(0, 2, words.shape) << 31
    return words.ravel().astype(np.uint32).view(np.float32)


def widened(x: Array) -> Array:
    """As float64: exact; a signalling NaN becomes quiet without numpy's warning."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def sample(x: Array, count: int, seed: int = 0) -> Array:
    """At most `count` elements, chosen by a seed."""
    if x.size <= count:
        return x
    return x[np.sort(np.random.default_rng(seed).choice(x.size, count, replace=False))]


def wide_range(count: int, seed: int = 0) -> Array:
    """float32 of every exponent, all bit patterns equally likely."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)
    return bits.view(np.float32)


# --- comparing -------------------------------------------------------------------------------


def _bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def same_bits(got: Array, want: Array) -> Array:
    """Where two arrays agree: on bits, every NaN counting as equal."""
    if got.dtype.kind in "iub":
        return got == want
    a, b = _bits(np.ascontiguousarray(got)), _bits(np.ascontiguousarray(want))
    return (a == b).reshape(got.shape) | (np.isnan(got) & np.isnan(want))


def assert_same_bits(got: Any, want: Any, inputs: Any = None, what: object = "") -> None:
    """Fail with the count, the first index, the input and both results in hex."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, want {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    wrong = ~same_bits(got, want)
    if wrong.any():
        raise AssertionError(_difference(got, want, wrong, inputs, what))


def _difference(got: Array, want: Array, wrong: Array, inputs: Any, what: object) -> str:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    shown = [("got", got), ("want", want)]
    if inputs is not None:
        shown.insert(0, ("input", np.asarray(inputs)))
    values = ", ".join(f"{name} {_show(array[index])}" for name, array in shown)
    at = index[0] if len(index) == 1 else index
    return f"{what}: {int(wrong.sum())} of {wrong.size} differ; first at index {at}: {values}"


def _show(value: Any) -> str:
    word = np.asarray(value)
    digits = 2 * word.dtype.itemsize
    return f"0x{int(word.view(f'u{word.dtype.itemsize}')):0{digits}x} ({value!r})"


def blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each block of [0, total)."""
    for start in range(0, total, size):
        yield start, min(start + size, total)
