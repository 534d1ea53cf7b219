"""What matrix units compute, number by number, in Python's own integers and fractions.

Written from the papers' words and not from the library: nothing of `fpemu.tensorcore` or of the
kernels is used here, and the constants stand here a second time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

__all__ = ["NVIDIA", "Unit", "amx", "cdna3", "dot", "nearest"]

#: Smallest normal exponent and explicit fraction bits of the formats that matrix units take.
FORMATS = {
    "float16": (-14, 10), "bfloat16": (-126, 7), "tf32": (-126, 10), "float8_e4m3fn": (-6, 3),
    "float8_e5m2": (-14, 2), "float8_e4m3fnuz": (-7, 3), "float8_e5m2fnuz": (-15, 2),
    "float32": (-126, 23),
}  # fmt: skip


class Unit(NamedTuple):
    """One line of the table of NVIDIA's units, for sums in float32 and for those in float16."""

    group: int
    bits: int  #: of fraction that each term keeps below the largest exponent
    least: int  #: the largest exponent is at least this
    kept: int = 23  #: fraction bits of the sum
    half: bool = False  #: the sum is a float16, to nearest even, and otherwise cut
    after: bool = False  #: the accumulator is added afterwards, in float32


def _table() -> dict[tuple[str, str, str], Unit]:
    found = {}
    for chip, bits, least, least_half, groups in (
        ("volta", 23, -132, -19, {"float16": 4}),
        ("ampere", 24, -132, -20, {"float16": 8, "bfloat16": 8, "tf32": 4}),
        ("ada", 24, -132, -20, {"float16": 8, "bfloat16": 8, "tf32": 4}),
        ("hopper", 25, -133, -21, {"float16": 16, "bfloat16": 16, "tf32": 8}),
        ("blackwell", 25, -133, -21, {"float16": 16, "bfloat16": 16, "tf32": 8}),
    ):
        for form, group in groups.items():
            found[chip, form, "float32"] = Unit(group, bits, least)
        found[chip, "float16", "float16"] = Unit(
            groups["float16"], bits, least_half, kept=10, half=True
        )
    for form in ("float8_e4m3fn", "float8_e5m2"):
        found["ada", form, "float32"] = Unit(16, 13, -132, kept=13)
        found["hopper", form, "float32"] = Unit(32, 13, -133, kept=13)
        found["blackwell", form, "float32"] = Unit(32, 25, -133, after=True)
    return found


#: (chip, format of the inputs, format of the sum) -> how it adds.
NVIDIA = _table()


def split(x: float, form: str) -> tuple[int, int, int]:
    """Significand, exponent, fraction bits: x is significand * 2**(exponent - bits)."""
    low, bits = FORMATS[form]
    exponent = max(math.frexp(x)[1] - 1, low)
    significand = Fraction(x) / Fraction(2) ** (exponent - bits)
    assert significand.denominator == 1, f"{x!r} is not a {form}"
    return significand.numerator, exponent, bits


def special(a: Sequence[float], b: Sequence[float], c: float) -> float | None:
    """The sum where a NaN or an infinity takes part, else None."""
    terms = [c]
    for x, y in zip(a, b, strict=True):
        if math.isnan(x) or math.isnan(y) or (math.isinf(x) and y == 0) or (
            math.isinf(y) and x == 0
        ):
            return math.nan
        if math.isinf(x) or math.isinf(y):
            terms.append(math.inf * math.copysign(1, x) * math.copysign(1, y))
    infinite = {t for t in terms if math.isinf(t)}
    if any(math.isnan(t) for t in terms) or len(infinite) == 2:
        return math.nan
    return infinite.pop() if infinite else None


def cut(significand: int, shift: int) -> int:
    """significand * 2**shift without its fraction: toward zero."""
    if shift >= 0:
        return significand << shift
    size = abs(significand) >> -shift
    return -size if significand < 0 else size


def nearest(exact: Fraction, bits: int = 23, low: int | None = -126) -> Fraction:
    """The nearest number of so many fraction bits, ties to even; low: the least exponent."""
    if not exact:
        return exact
    size = abs(exact)
    top = size.numerator.bit_length() - size.denominator.bit_length()
    top -= size < Fraction(2) ** top
    unit = Fraction(2) ** ((top if low is None else max(top, low)) - bits)
    return round(exact / unit) * unit  # Python rounds fractions to nearest even


def floating(exact: Fraction, high: int = 127) -> float:
    """A number as a float, infinite beyond a format's largest."""
    if abs(exact) >= Fraction(2) ** (high + 1):
        return math.inf if exact > 0 else -math.inf
    return float(exact)


def added(x: float, y: float) -> float:
    """x + y in float32."""
    if math.isfinite(x) and math.isfinite(y) and (x or y):
        return floating(nearest(Fraction(x) + Fraction(y)))
    return x + y  # NaN, infinities and the signs of zeros are those of any IEEE format


# --- NVIDIA ----------------------------------------------------------------------------------


def group(a: Sequence[float], b: Sequence[float], c: float, forms: Sequence[str],
          unit: Unit) -> float:  # fmt: skip
    """One step of a tensor core: a group of products and the accumulator."""
    if unit.after:
        return added(group(a, b, 0.0, forms, unit._replace(after=False)), c)
    found = special(a, b, c)
    if found is not None:
        return found
    terms = []
    for x, y in zip(a, b, strict=True):
        if x and y:
            (p, e, m), (q, f, n) = split(x, forms[0]), split(y, forms[1])
            terms.append((p * q, e + f, m + n))
    if c:
        terms.append(split(c, "float16" if unit.half else "float32"))
    top = max([unit.least, *(e for _, e, _ in terms)])
    total = sum(cut(s, unit.bits - (top - e) - m) for s, e, m in terms)
    exact = Fraction(total) * Fraction(2) ** (top - unit.bits)
    if unit.half:
        kept = floating(nearest(exact, 10, -14), high=15)
    else:
        low = max(abs(total).bit_length() - 1 + top - unit.bits, -126) - unit.kept
        kept = floating(cut(total, top - unit.bits - low) * Fraction(2) ** low)
    return math.copysign(kept, total) if total else 0.0


def dot(a: Sequence[float], b: Sequence[float], c: float, forms: Sequence[str], unit: Unit,
        promote: int | None = None) -> float:  # fmt: skip
    """A row times a column on top of c, group by group; promote: products in each partial sum."""
    span = promote or len(a)
    total = c
    for start in range(0, len(a), span):
        stop = min(start + span, len(a))
        partial = 0.0 if promote else c
        for i in range(start, stop, unit.group):
            j = min(i + unit.group, stop)
            partial = group(a[i:j], b[i:j], partial, forms, unit)
        total = added(total, partial) if promote else partial
    return total


# --- AMD and Intel ---------------------------------------------------------------------------


def _floor(x: Fraction, unit: Fraction) -> Fraction:
    return math.floor(x / unit) * unit


def _aligned(terms: Sequence[tuple[Fraction, int]], bits: int) -> tuple[Fraction, int | None]:
    """The sum of terms, each cut toward zero, and the exponent to which they were aligned."""
    if not terms:
        return Fraction(0), None
    top = max(e for _, e in terms)
    unit = Fraction(2) ** (top - bits)
    return sum((math.trunc(x / unit) * unit for x, _ in terms), Fraction(0)), top


def cdna3(a: Sequence[float], b: Sequence[float], c: float, forms: Sequence[str]) -> float:
    """AMD CDNA3, group by group, as arXiv 2511.10909 found it (TR-FDPA and GTR-FDPA)."""
    size = {"float16": 8, "bfloat16": 8, "tf32": 4}.get(forms[0], 16)
    for i in range(0, len(a), size):
        c = _cdna3_group(a[i : i + size], b[i : i + size], c, forms)
    return c


def _cdna3_group(a: Sequence[float], b: Sequence[float], c: float, forms: Sequence[str]) -> float:
    fp8 = forms[0].startswith("float8")
    halves: tuple[list[tuple[Fraction, int]], ...] = ([], [])
    huge = []
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        finite = math.isfinite(x) and math.isfinite(y)
        if finite and x and y:
            product = Fraction(x) * Fraction(y)
            if abs(product) >= Fraction(2) ** 128:
                huge.append(math.inf if product > 0 else -math.inf)
            exponent = split(x, forms[0])[1] + split(y, forms[1])[1]
            halves[k % 2 if fp8 else 0].append((product, exponent))
    found = special([*a, *huge], [*b, *(1.0 for _ in huge)], c)
    if found is not None:
        return found
    sums = [_aligned(terms, 24) for terms in halves]
    tops = [top for _, top in sums if top is not None]
    products = Fraction(0)
    if tops and fp8:
        unit = Fraction(2) ** (max(tops) - 24)
        products = sum((_floor(s, unit) for s, _ in sums), Fraction(0))
    elif tops:
        products = sums[0][0]
    low = split(c, "float32")[1] if c else -126
    top = max([*tops, low])
    products = _floor(products, Fraction(2) ** (top - 32))
    joined = _floor(Fraction(c), Fraction(2) ** (top - 24))
    if fp8 and low < top - 25:
        joined = Fraction(0)
    exact = products + joined
    if not exact:
        return 0.0
    size = abs(exact)
    lead = size.numerator.bit_length() - size.denominator.bit_length()
    lead = max(lead - (size < Fraction(2) ** lead), -126)
    return math.copysign(floating(nearest(_floor(exact, Fraction(2) ** (lead - 31)))), exact)


def amx(a: Sequence[float], b: Sequence[float], c: float) -> float:
    """Intel's TDPBF16PS, 32 products at a time: two chains of float32 FMAs, then added to c."""
    c = _flushed(c)
    for i in range(0, len(a), 32):
        chains = [0.0, 0.0]
        for k, (x, y) in enumerate(zip(a[i : i + 32], b[i : i + 32], strict=True)):
            chains[k % 2] = _fma(_flushed(x), _flushed(y), chains[k % 2])
        c = _fma(1.0, c, _fma(1.0, chains[0], chains[1]))
    return c


def _flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def _fma(x: float, y: float, z: float) -> float:
    """x * y + z, rounded once to float32; results that are tiny after rounding become zero."""
    finite = math.isfinite(x) and math.isfinite(y) and math.isfinite(z)
    exact = Fraction(x) * Fraction(y) + Fraction(z) if finite else Fraction(0)
    if not exact:
        return x * y + z  # NaN, infinity, or a zero and its sign
    rounded = nearest(exact, low=None)
    if abs(rounded) < Fraction(2) ** -126:
        return math.copysign(0.0, exact)
    return floating(rounded)
