"""Shown: names and numbers as people read them, in reports and in plots."""

from __future__ import annotations

import math

__all__ = ["NOTHING", "number", "plain", "share", "shorten", "spelled"]

NOTHING = "–"  #: shown where there is no number, such as the mean of no values


def plain(text: object) -> str:
    r"""Return a name that is safe to print: what is not printable is spelled out.

    >>> from fpemu.analysis.shown import plain
    >>> plain("a\nb\x1b[31m\u202e")
    'a\\nb\\x1b[31m\\u202e'

    A name comes from a file: it may hold a terminal's control codes, marks that reorder the text
    around it, or halves of characters that no file can store.
    """
    return "".join(c if c.isprintable() else spelled(c) for c in str(text))


def spelled(character: str) -> str:
    r"""Return a character as Python spells it: '\u202e'."""
    return character.encode("unicode_escape").decode()


def shorten(text: str, limit: int = 48) -> str:
    """Return a name of at most `limit` characters, its middle left out.

    >>> from fpemu.analysis.shown import shorten
    >>> shorten("decoder.layers.11.attention.output", 21)
    'decoder.la…ion.output'
    """
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[head + 1 - limit:]}"


def number(x: float | None) -> str:
    """Return three significant digits: 0.0123, 65504, 3.2e-08.

    >>> from fpemu.analysis.shown import number
    >>> [number(x) for x in (65504.0, 0.01234, 3.2e-8, 2.5e10, 1.0, None)]
    ['65504', '0.0123', '3.2e-8', '2.5e10', '1', '–']
    """
    if x is None or math.isnan(x):
        return NOTHING
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x == int(x) and abs(x) < 1e7:
        return str(int(x))
    mantissa, e, exponent = (f"{x:.2e}" if abs(x) < 1e-3 else f"{x:.3g}").partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if e else mantissa
    if e and 1000 <= abs(x) < 1e7:
        return f"{x:.0f}"
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def share(x: float | None) -> str:
    """Return a percentage; never a non-zero one as 0 nor one below 100 as 100.

    >>> from fpemu.analysis.shown import share
    >>> [share(x) for x in (0.0, 0.0131, 43.08, 99.9996, 100.0, 2e-7)]
    ['0 %', '0.0131 %', '43.1 %', '99.9996 %', '100 %', '2e-7 %']
    """
    if x is None or math.isnan(x):
        return f"{NOTHING} %"
    if x >= 100.0 or x <= 0.0:
        return f"{x:.0f} %"
    if x > 99.9:
        return f"{100 - float(f'{100 - x:.1g}'):.10g} %"
    if x < 0.001:
        return f"{number(float(f'{x:.2g}'))} %"
    return f"{x:.3g} %"
