"""Numbers and names as people read them; the JSON report keeps the plain ones."""

from __future__ import annotations

import math
from typing import Any

from fpemu.analysis.scales import SafeScales
from fpemu.analysis.shown import NOTHING, number, plain, share, shorten

__all__ = [
    "NOTHING",
    "bar_length",
    "bits",
    "cell",
    "cosine",
    "count",
    "decibels",
    "exponent",
    "file_size",
    "interval",
    "kind_words",
    "number",
    "plain",
    "power",
    "reach",
    "scale_words",
    "share",
    "shorten",
]


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


def scale_words(scale: float) -> str:
    """Return a power of two with its value, where that says more.

    >>> from fpemu.analysis.report.numbers import scale_words
    >>> scale_words(8192.0), scale_words(1.0)
    ('2^13 (8192)', '1')
    """
    return power(scale) if scale == 1.0 else f"{power(scale)} ({number(scale)})"


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


def reach(low: float | None, high: float | None) -> str:
    """Return the scales from `low` to `high`, both powers of two; without them, none."""
    if low is None or high is None:
        return "none"
    return power(low) if low == high else f"{power(low)} to {power(high)}"


def bits(x: float | None) -> str:
    """Return a number of binades, with its sign where it is one short.

    >>> from fpemu.analysis.report.numbers import bits
    >>> bits(3.25), bits(-10.0), bits(None)
    ('3.2', '-10.0', '–')
    """
    return NOTHING if x is None or math.isnan(x) else f"{x:.1f}"


def decibels(x: float | None) -> str:
    """Return decibels: '31.4 dB'."""
    if x is None or math.isnan(x):
        return NOTHING
    return f"{number(x)} dB" if math.isinf(x) else f"{round(x, 1) + 0.0:.1f} dB"


def cosine(x: float | None) -> str:
    """Return a cosine with six digits, never 1 for one below it: '0.999987'."""
    return NOTHING if x is None or math.isnan(x) else f"{math.floor(x * 1e6) / 1e6:.6f}"


def exponent(k: float | None) -> str:
    """Return a power of two whose exponent need be no integer: '2^-9.5'."""
    return NOTHING if k is None or math.isnan(k) else f"2^{k:.1f}"


def bar_length(percent: float) -> int:
    """Return the length of a share's bar in percent: logarithmic, from 0.001 % to 100 %.

    >>> from fpemu.analysis.report.numbers import bar_length
    >>> [bar_length(percent) for percent in (0.0, 1e-9, 0.1, 100.0)]
    [0, 2, 40, 100]
    """
    return round(min(max((math.log10(percent) + 3) * 20, 2), 100)) if percent > 0 else 0


def file_size(n: float) -> str:
    """Return a number of bytes: '12.3 MiB'.

    >>> from fpemu.analysis.report.numbers import file_size
    >>> file_size(512), file_size(3 * 2**20)
    ('512 B', '3 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.3g} {unit}"
        n /= 1024
    return f"{n:.3g} TiB"


def count(n: int) -> str:
    """Return a count with its thousands set apart: 1,797."""
    return f"{n:,}"


def kind_words(kind: str) -> str:
    """Return a kind as people say it: 'weight gradient'."""
    return plain(kind.replace("_", " "))


def cell(value: Any, depth: int = 8) -> str:
    """Return a value of the metadata for a table: numbers short, anything else as text.

    Of lists and dicts inside each other, `depth` are shown: a file may hold hundreds.
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: NOTHING}[value]
    if isinstance(value, int):
        return count(value) if abs(value) >= 10**6 else str(value)
    if isinstance(value, float):
        return number(value) if abs(value) < 0.001 or abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, list | tuple | dict) and not depth:
        return "…"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item, depth - 1) for item in value)
    if isinstance(value, dict):
        named = ((plain(str(key)), cell(item, depth - 1)) for key, item in value.items())
        return ", ".join(f"{key} {item}" for key, item in named)
    return plain(str(value))
