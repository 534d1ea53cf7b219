"""Flags and values at the edges of formats, against Fractions and the standard's words."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support import DETERMINISTIC, names

import fpemu
from fpemu import arithmetic
from fpemu.cast import Cast, Rounding
from fpemu.format import Format

FLAGS = ["invalid", "divide_by_zero", "overflow", "underflow", "inexact"]


def edges(form: Format) -> list[float]:
    """Both signs of 0, infinity, NaN, the ends of the normal and subnormal numbers, midpoints."""
    normal, least = form.smallest_normal, form.smallest_subnormal
    found = [0.0, math.inf, math.nan, 1.0, 1 + form.eps, form.eps / 2, 1.5, 3.0, form.max,
             form.max / 2, normal, normal - least, normal * (1 - form.eps / 4), least, least / 2]
    return [sign * x for x in found for sign in (1, -1)]


def unbounded(x: Fraction, form: Format, mode: Rounding, emin: int | None) -> Fraction:
    """|x| rounded to a format's precision with no largest value and, without emin, no smallest."""
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, exponent if emin is None else emin) - form.mantissa_bits)
    whole, rest = divmod(size, unit)
    away = {
        Rounding.NEAREST_EVEN: 2 * rest > unit or (2 * rest == unit and whole % 2 == 1),
        Rounding.NEAREST_AWAY: 2 * rest >= unit,
        Rounding.TOWARD_ZERO: False,
        Rounding.UP: x > 0,
        Rounding.DOWN: x < 0,
        Rounding.TO_ODD: whole % 2 == 0,
    }[mode]
    return (whole + (rest > 0 and away)) * unit


def special(name: str, x: tuple[float, ...]) -> set[str] | None:
    """The flags of operands that are not finite, or have no result; None for all others."""
    if any(map(math.isnan, x)):
        return set()
    infinite = [math.isinf(v) for v in x]
    signs = [math.copysign(1, v) for v in x]
    clash = {
        "add": lambda: all(infinite) and signs[0] != signs[1],
        "subtract": lambda: all(infinite) and signs[0] == signs[1],
        "multiply": lambda: any(infinite) and 0 in x,
        "divide": lambda: all(infinite) or x[0] == x[1] == 0,
        "fma": lambda: (any(infinite[:2]) and 0 in x[:2])
        or (any(infinite[:2]) and infinite[2] and signs[0] * signs[1] != signs[2]),
    }
    if clash[name]():
        return {"invalid"}
    if any(infinite):
        return set()
    return {"divide_by_zero"} if name == "divide" and x[1] == 0 else None


EXACT = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}


def finite_flags(exact: Fraction, cast: Cast, tininess: str) -> set[str]:
    if exact == 0:
        return set()
    form, mode = cast.format, cast.rounding
    result = unbounded(exact, form, mode, form.emin)
    if result > Fraction(form.max):
        return {"overflow", "inexact"}
    if result == abs(exact):
        return set()
    size = abs(exact) if tininess == "before" else unbounded(exact, form, mode, None)
    return {"inexact"} | ({"underflow"} if size < Fraction(form.smallest_normal) else set())


@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=names(DETERMINISTIC))
@pytest.mark.parametrize("to", ["float16", "float8_e4m3fn"])
def test_flags_at_the_edges(to, rounding):
    cast = Cast(to, rounding)
    values = edges(cast.format)
    random = np.random.default_rng(0)
    for name, exact in EXACT.items():
        cases = list(itertools.product(values, values))
        if name == "fma":
            cases = [tuple(map(float, random.choice(values, 3))) for _ in range(600)]
        for tininess in ("after", "before"):
            columns = np.array(cases, np.float32).T
            _, flags = getattr(arithmetic, name)(*columns, cast, flags=True, tininess=tininess)
            raised = {flag: flags.where(flag) for flag in FLAGS}
            for i, case in enumerate(cases):
                want = special(name, case)
                if want is None:
                    want = finite_flags(exact(*map(Fraction, case)), cast, tininess)
                got = {flag for flag in FLAGS if raised[flag][i]}
                assert got == want, f"{name}{case} {cast} tiny {tininess}: {got}, want {want}"


def test_exact_subnormals_raise_nothing_and_inexact_ones_underflow():
    least = np.float32(fpemu.finfo("fp16").smallest_subnormal)
    for factor, flags in ((3, []), (1.5, ["underflow", "inexact"]), (0, [])):
        found = arithmetic.multiply(least, factor, "fp16", flags=True)[1]
        assert [flag for flag in FLAGS if getattr(found, flag)] == flags
