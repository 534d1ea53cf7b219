"""HTML: a scan as one file that needs nothing else: the answer, the formats, every tensor.

It has the style and the script of the report's page. Everything that came from a checkpoint is
escaped by jinja2's autoescape, and no script but the page's own, by its digest, is allowed to run.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fpemu.analysis.checkpoints.result import Scan
from fpemu.analysis.checkpoints.rows import Loss
from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.checkpoints.text import short_name
from fpemu.analysis.report.html import style_and_script
from fpemu.analysis.report.pages import templates

if TYPE_CHECKING:
    import jinja2

__all__ = ["render"]


def render(found: Scan) -> str:
    """Return a scan as the text of one self-contained HTML page.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from fpemu.analysis.checkpoints import html, scan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(os.path.join(folder, "a.npz"), **{"<u>": np.float32([1.0])})
    ...     page = html.render(scan(folder))
    >>> "&lt;u&gt;" in page, "<u>" in page
    (True, False)
    """
    return _template().render(scan=found, **style_and_script())


@cache
def _template() -> jinja2.Template:
    found = templates(
        Path(__file__).parent / "templates",
        file=lambda path: Path(path).name,
        short_name=short_name,
        size=size,
        tone=_tone,
    )
    return found.get_template("scan.html.j2")


def _tone(loss: Loss) -> str:
    """How bad it is, as a style."""
    return "ok" if loss.safe.unscaled else "warn" if loss.safe.safe else "bad"
