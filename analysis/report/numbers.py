"""Numbers and names as people read them; the JSON report keeps the plain ones."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from fpemu.analysis.scales import SafeScales

__all__ = [
    "bits",
    "cell",
    "count",
    "interval",
    "kind_words",
    "number",
    "plain",
    "power",
    "share",
    "shorten",
]

NOTHING = "–"  #: shown where there is no number, such as the mean of no values


def number(x: float | None) -> str:
    """Return three significant digits: 0.0123, 65504, 3.2e-08.

    >>> from fpemu.analysis.report.numbers import number
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

    >>> from fpemu.analysis.report.numbers import share
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


def power(scale: float | None) -> str:
    """Return a power of two as 2^k, and 1 as 1.

    >>> from fpemu.analysis.report.numbers import power
    >>> power(8192.0), power(2.0**-14), power(1.0)
    ('2^13', '2^-14', '1')
    """
    if scale is None:
        return NOTHING
    if math.frexp(scale)[0] != 0.5:
        return number(scale)
    return "1" if scale == 1.0 else f"2^{math.frexp(scale)[1] - 1}"


def interval(safe: SafeScales) -> str:
    """Return the safe scales in words; an end that is the last scale tried is marked.

    >>> from fpemu.analysis.report.numbers import interval
    >>> from fpemu.analysis.scales import SafeScales
    >>> interval(SafeScales("float16", 64.0, 2.0**39, 64.0, 0.0, False, True))
    '2^6 to 2^39 or more'
    """
    if safe.low is None:
        return "none"
    if safe.low_open and safe.high_open:
        return "all tried"
    low = power(safe.low) + (" or less" if safe.low_open else "")
    high = power(safe.high) + (" or more" if safe.high_open else "")
    return low if safe.low == safe.high else f"{low} to {high}"


def bits(x: float | None) -> str:
    """Return a number of binades, with its sign where it is one short.

    >>> from fpemu.analysis.report.numbers import bits
    >>> bits(3.25), bits(-10.0), bits(None)
    ('3.2', '-10.0', '–')
    """
    return NOTHING if x is None or math.isnan(x) else f"{x:.1f}"


def shorten(text: str, limit: int = 48) -> str:
    """Return a name of at most `limit` characters, its middle left out.

    >>> from fpemu.analysis.report.numbers import shorten
    >>> shorten("decoder.layers.11.attention.output", 21)
    'decoder.la…ion.output'
    """
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[len(text) - (limit - 1) // 2 :]}"


def count(n: int) -> str:
    """Return a count with its thousands set apart: 1,797."""
    return f"{n:,}"


def kind_words(kind: str) -> str:
    """Return a kind as people say it: 'weight gradient'."""
    return plain(kind.replace("_", " "))


def plain(text: str) -> str:
    r"""Return a name that is safe to print: control and direction marks are spelled out.

    >>> from fpemu.analysis.report.numbers import plain
    >>> plain("a\nb\x1b[31m")
    'a\\x0ab\\x1b[31m'

    A name comes from a file: it may hold a terminal's control codes, marks that reorder the text
    around it, or halves of characters that no file can store.
    """
    return "".join(
        _spelled(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c
        for c in text
    )


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def cell(value: Any) -> str:
    """Return a value of the metadata for a table: numbers short, anything else as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: NOTHING}[value]
    if isinstance(value, int):
        return count(value) if abs(value) >= 10**6 else str(value)
    if isinstance(value, float):
        return number(value) if abs(value) < 0.001 or abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{plain(str(key))} {cell(item)}" for key, item in value.items())
    return plain(str(value))
