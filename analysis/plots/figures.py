"""Figures: axes without pyplot, and their bytes as PNG, SVG or PDF.

pyplot keeps every figure alive and picks a window system; a server or a thread wants neither.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpemu.analysis.files import write_bytes
from fpemu.analysis.plots.names import plain
from fpemu.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "axes_for",
    "figure_of",
    "figure_pdf",
    "figure_png",
    "figure_svg",
    "new_axes",
    "save",
]


def new_axes(width: float = 8.0, height: float = 4.5) -> Axes:
    """Return an empty Axes on a figure of its own, `width` by `height` inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    return figure.add_subplot()


def axes_for(ax: Any, width: float = 8.0, height: float = 4.5) -> Axes:
    """Return the Axes given, its scales linear, or new ones of this size for None."""
    if ax is None:
        return new_axes(width, height)
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise InputError(f"ax is {type(ax).__name__}: give a matplotlib Axes, or None for new ones")
    for scale, reset in ((ax.get_xscale(), ax.set_xscale), (ax.get_yscale(), ax.set_yscale)):
        if scale != "linear":
            reset("linear")  # powers of two are drawn by their exponents
    return ax


def figure_of(plot: Axes | Figure) -> Figure:
    """Return the figure of an Axes, or the Figure given."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    figure: Any = plot.figure if isinstance(plot, Axes) else plot
    if not isinstance(figure, Figure):
        figure = getattr(figure, "figure", None)  # the axes of a SubFigure
    if not isinstance(figure, Figure):
        raise InputError(f"{type(plot).__name__} is no plot: give a matplotlib Figure or Axes")
    return figure


def figure_png(plot: Axes | Figure, *, dpi: float = 110) -> bytes:
    """Return a plot as the bytes of a PNG image.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> ax = plots.exponent_histogram({"x": np.float32([0.5, 0.25, 0.0])})
    >>> plots.figure_png(ax)[:4]
    b'\\x89PNG'
    """
    return _with_palette(_render(plot, "png", dpi=dpi))


def figure_pdf(plot: Axes | Figure) -> bytes:
    """Return a plot as the bytes of a PDF file of one page, the same for the same plot."""
    return _render(plot, "pdf", dpi=200, metadata={"CreationDate": None})


def figure_svg(plot: Axes | Figure, *, title: str = "") -> bytes:
    """Return a plot as one self-contained SVG element, fit to stand in an HTML page.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> ax = plots.exponent_histogram({"x": np.float32([0.5, 0.25, 0.0])})
    >>> plots.figure_svg(ax)[:5]
    b'<svg '

    title: what a screen reader says; the Axes' own title unless given.
    Letters are outlines and images are inside, so nothing is fetched. XML prolog, DOCTYPE,
    comments and metadata are left out; ids carry a digest of the picture, so several pictures can
    stand in one page and the same plot gives the same bytes.
    """
    text = _render(plot, "svg", dpi=100, metadata=_NO_METADATA).decode()
    text = re.sub(r"<!--.*?-->\s*", "", text[text.index("<svg ") :], flags=re.DOTALL)
    text = re.sub(r'(?<=data:image/png;base64,)([^"]+)', _smaller, text)
    label = html.escape(plain(title or _title(plot)))
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return _own_ids(text).encode()


def save(plot: Axes | Figure, path: str | os.PathLike[str]) -> Path:
    """Write a plot as PNG, SVG or PDF, as the suffix says, and return the path.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> path = plots.save(plots.exponent_histogram(np.float32([1, 2, 3])), "histogram.svg")
    >>> path.name, path.unlink()
    ('histogram.svg', None)

    The file appears whole or not at all; one already there is replaced. Another suffix or a folder
    that cannot be written is an `InputError`.
    """
    path = Path(path)
    try:
        render = _WRITERS[path.suffix.lower()]
    except KeyError:
        raise InputError(
            f"{str(path)!r}: a plot is written as {', '.join(_WRITERS)}; end the name in one"
        ) from None
    write_bytes(path, render(plot))
    return path


_WRITERS: dict[str, Callable[[Axes | Figure], bytes]] = {
    ".png": figure_png,
    ".svg": figure_svg,
    ".pdf": figure_pdf,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def _render(plot: Axes | Figure, suffix: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure_of(plot).savefig(buffer, format=suffix, **options)
    return buffer.getvalue()


def _title(plot: Axes | Figure) -> str:
    return next((ax.get_title(loc="left") for ax in figure_of(plot).axes), "")


def _with_palette(png: bytes) -> bytes:
    """Store an opaque image with a palette of 256 colours: a third of the size, no visible change.

    An image of at most 256 colours, such as a heat map, keeps them exactly.
    """
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGBA")
    if image.getchannel("A").getextrema() != (255, 255):
        return png
    few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    few.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def _smaller(encoded: re.Match[str]) -> str:
    return base64.b64encode(_with_palette(base64.b64decode(encoded[1]))).decode()


def _own_ids(svg: str) -> str:
    """Number matplotlib's ids (random for clip paths and images) and add the picture's digest."""
    old = list(dict.fromkeys(re.findall(r' id="([^"]+)"', svg)))
    numbered = _replace_ids(svg, {name: f"i{number}" for number, name in enumerate(old)})
    digest = hashlib.sha256(numbered.encode()).hexdigest()[:8]
    new = (f"i{number}" for number in range(len(old)))
    return _replace_ids(numbered, {name: f"{name}-{digest}" for name in new})


def _replace_ids(svg: str, new: dict[str, str]) -> str:
    return re.sub(
        r'( id="|href="#|url\(#)([^")]+)',
        lambda found: found[1] + new.get(found[2], found[2]),
        svg,
    )
