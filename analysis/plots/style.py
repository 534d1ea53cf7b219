"""Style: colours, line marks and text that any name survives.

Text is never parsed as mathematics or TeX: a layer may be called `$x_^`. Powers of two are written
with Unicode superscripts, since matplotlib's mathtext parser is one shared object and a server may
draw in several threads.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GREY",
    "MARKS",
    "TEXT",
    "Mark",
    "arrow",
    "inches",
    "ink",
    "legend_below",
    "nothing",
    "percent",
    "plain",
    "power",
    "power_ticks",
    "set_title",
    "shorten",
    "shorten_all",
    "thin",
]

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


def shorten_all(names: Iterable[object], limit: int = 40) -> list[str]:
    """Return printable names of at most `limit` characters that keep what tells them apart.

    >>> from fpemu.analysis.plots.style import shorten_all
    >>> shorten_all([f"model.decoder.layers.{i}.mlp.weight" for i in (0, 17)], 20)
    ['…0.mlp.weight', '…17.mlp.weight']

    If one is longer, what all have in common is left out: their beginning up to a dot or slash,
    then their end; what is still too long loses its middle.
    """
    texts = [plain(name) for name in names]
    for cut in (_cut_start, _cut_end):
        if len(texts) > 1 and max(map(len, texts)) > limit:
            texts = cut(texts)
    return [shorten(text, limit) for text in texts]


def _cut_start(texts: list[str]) -> list[str]:
    common = os.path.commonprefix(texts)
    size = 1 + max(common.rfind("."), common.rfind("/"))
    return [f"…{text[size:]}" for text in texts] if size > 1 else texts


def _cut_end(texts: list[str]) -> list[str]:
    return [text[::-1] for text in _cut_start([text[::-1] for text in texts])]


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """Return 2 to an integer exponent as text: '2⁻²⁴', or '2^-24' where the font lacks it."""
    raised = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"2{raised}" if _has_glyphs(raised) else f"2^{exponent}"


def arrow(sign: str) -> str:
    """Return an arrow, or < and > where the font lacks it."""
    return sign if _has_glyphs(sign) else {"←": "<", "→": ">"}[sign]


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


def inches(ax: Axes) -> tuple[float, float]:
    """Return the width and height of an Axes in inches."""
    figure = ax.figure
    assert figure is not None
    box = ax.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def power_ticks(ax: Axes, low: int, high: int) -> tuple[list[float], list[str]]:
    """Return ticks for the powers of two from `low` to `high`, as many as can be read."""
    room = max(2, int(inches(ax)[0] / 0.55))
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if (high - low) / s <= room or s == 64)
    ticks = range(-(-low // step) * step, high + 1, step)
    return [float(k) for k in ticks], [power(k) for k in ticks]


def legend_below(ax: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put a legend under the x axis' label, where it hides nothing, with any names.

    matplotlib drops labels that begin with _, so the names are set afterwards.
    """
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    lines = ax.get_xlabel().count("\n") + 1
    below = ScaledTranslation(0, -0.38 - 0.17 * lines, figure.dpi_scale_trans)
    names = shorten_all(labels)
    columns = max(1, int(inches(ax)[0] / (0.6 + 0.08 * max(map(len, names)))))
    drawn = ax.legend(
        handles,
        [str(row) for row in range(len(handles))],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        ncols=min(columns, len(names)),
        fontsize="small",
        frameon=False,
        borderaxespad=0,
    )
    for text, name in zip(drawn.get_texts(), names, strict=True):
        text.set(text=name, **TEXT)


def set_title(ax: Axes, title: str) -> None:
    """Set the title at the left, wrapped to the axes' width."""
    width = max(20, int(inches(ax)[0] * 9))
    lines = textwrap.wrap(plain(title), width) or [""]
    ax.set_title("\n".join(lines[:3]), loc="left", fontsize="large", **TEXT)


def nothing(ax: Axes, message: str) -> Axes:
    """Say in place of a plot why there is none."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, message, ha="center", va="center", transform=ax.transAxes, **TEXT)
    return ax
