"""Style: colours, line marks and text that any name survives.

Text is never parsed as mathematics or TeX: a layer may be called `$x_^`. Powers of two are written
with Unicode superscripts, since matplotlib's mathtext parser is one shared object and a server may
draw in several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["GREY", "MARKS", "TEXT", "Mark", "ink", "percent", "plain", "power", "shorten", "thin"]

#: Passed to every text that may hold a name.
TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}

GREY = "#8c8c8c"  #: readable on white and on black


class Mark(NamedTuple):
    """How one of several formats or tensors looks: no two share a colour, marker or dash."""

    colour: str
    marker: str
    dash: Any
    hatch: str


#: Okabe and Ito's colours (jfly.uni-koeln.de/color), told apart by the colour-blind; their yellow
#: is left out (too pale on white) and so is their black (lost on dark styles).
MARKS = (
    Mark("#0072B2", "o", "solid", "////"),
    Mark("#D55E00", "s", (0, (5, 1.5)), "\\\\\\\\"),
    Mark("#009E73", "^", (0, (4, 1, 1, 1)), "xxxx"),
    Mark("#CC79A7", "D", (0, (1, 1)), "...."),
    Mark("#E69F00", "v", (0, (7, 1, 1, 1, 1, 1)), "----"),
    Mark("#56B4E9", "P", (0, (3, 1)), "||||"),
    Mark("#7F3C00", "X", (0, (8, 2)), "++++"),
    Mark("#999999", "*", (0, (1, 2)), "oooo"),
)


def ink() -> Any:
    """Return the text colour in force (black, unless the user's matplotlib style says else)."""
    import matplotlib

    return matplotlib.rcParams["text.color"]


@lru_cache(maxsize=16)
def _glyphs(families: tuple[str, ...]) -> frozenset[int]:
    from matplotlib import font_manager

    paths = {font_manager.findfont(font_manager.FontProperties(family=[f])) for f in families}
    return frozenset(code for path in paths for code in font_manager.get_font(path).get_charmap())


def _has_glyphs(text: str) -> bool:
    import matplotlib

    return _glyphs(tuple(matplotlib.rcParams["font.family"])).issuperset(map(ord, text))


def plain(name: object) -> str:
    r"""Return a name with what cannot be printed, or has no glyph in the font, escaped.

    >>> from fpemu.analysis.plots.style import plain
    >>> plain("a\n$b_^\u202e")
    'a\\n$b_^\\u202e'
    """
    return "".join(
        c if c.isprintable() and _has_glyphs(c) else c.encode("unicode_escape").decode()
        for c in str(name)
    )


def shorten(name: object, limit: int = 40) -> str:
    """Return a printable name of at most `limit` characters, with its middle left out.

    >>> from fpemu.analysis.plots.style import shorten
    >>> shorten("decoder.layers.11.self_attention.output.weight", 20)
    'decoder.l…put.weight'
    """
    text = plain(name)
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[head + 1 - limit:]}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """Return 2 to an integer exponent as text: '2⁻²⁴', or '2^-24' where the font lacks it."""
    raised = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"2{raised}" if _has_glyphs(raised) else f"2^{exponent}"


def percent(value: float) -> str:
    """Return a percentage with two significant digits: '0.1 %', '12 %'."""
    return f"{value:.2g} %" if value < 99.5 else f"{value:.3g} %"


def thin(count: int, room: int) -> Sequence[int]:
    """Return evenly spaced indices below `count`, at most `room` of them, always with 0.

    >>> from fpemu.analysis.plots.style import thin
    >>> list(thin(500, 30))[:4]
    [0, 20, 40, 60]
    """
    if count <= max(room, 1):
        return range(count)
    steps = (base * scale for scale in (10**i for i in range(12)) for base in (1, 2, 5))
    return range(0, count, next(step for step in steps if step * max(room, 1) >= count))
