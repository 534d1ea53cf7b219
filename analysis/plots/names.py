"""Names: text that may say anything, made fit to be drawn.

Powers of two are written with Unicode superscripts, not as mathematics: matplotlib's parser of
that is one shared object, and a server may draw in several threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from fpemu.analysis import shown

__all__ = ["arrow", "plain", "power", "shorten", "shorten_all"]


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

    >>> from fpemu.analysis.plots.names import plain
    >>> plain("a\n$b_^\u202e")
    'a\\n$b_^\\u202e'
    """
    return "".join(c if _has_glyphs(c) else shown.spelled(c) for c in shown.plain(name))


def shorten(name: object, limit: int = 40) -> str:
    """Return a printable name of at most `limit` characters, with its middle left out.

    >>> from fpemu.analysis.plots.names import shorten
    >>> shorten("decoder.layers.11.self_attention.output.weight", 20)
    'decoder.l…put.weight'
    """
    return shown.shorten(plain(name), limit)


def shorten_all(names: Iterable[object], limit: int = 40) -> tuple[list[str], str]:
    """Return names of at most `limit` characters that keep what tells them apart, and the rest.

    >>> from fpemu.analysis.plots.names import shorten_all
    >>> shorten_all([f"model.decoder.layers.{i}.mlp.weight" for i in (0, 17)], 20)
    (['…0.mlp.weight', '…17.mlp.weight'], 'model.decoder.layers.…')

    If one is longer, what all have in common is left out: their beginning up to a dot or slash,
    then their end; what is still too long loses its middle.
    """
    texts, start, end = [plain(name) for name in names], "", ""
    if len(texts) > 1 and max(map(len, texts)) > limit:
        texts, start = _cut_start(texts)
    if len(texts) > 1 and max(map(len, texts)) > limit:
        texts, end = _cut_end(texts)
    return [shorten(text, limit) for text in texts], f"{start}…{end}" if start or end else ""


def _cut_start(texts: list[str]) -> tuple[list[str], str]:
    first, last = min(texts), max(texts)  # what these two share, all share
    same = next((i for i, c in enumerate(first) if last[i : i + 1] != c), len(first))
    size = 1 + max(first.rfind(".", 0, same), first.rfind("/", 0, same))
    return ([f"…{text[size:]}" for text in texts], first[:size]) if size > 1 else (texts, "")


def _cut_end(texts: list[str]) -> tuple[list[str], str]:
    backwards, end = _cut_start([text[::-1] for text in texts])
    return [text[::-1] for text in backwards], end[::-1]


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """Return 2 to an integer exponent as text: '2⁻²⁴', or '2^-24' where the font lacks it."""
    raised = str(int(exponent)).translate(_SUPERSCRIPTS)
    return f"2{raised}" if _has_glyphs(raised) else f"2^{exponent}"


def arrow(sign: str) -> str:
    """Return an arrow, or < and > where the font lacks it."""
    return sign if _has_glyphs(sign) else {"←": "<", "→": ">"}[sign]
