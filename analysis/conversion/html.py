"""HTML: a conversion as one file that needs nothing else: the answer, every tensor.

It has the style and the script of the report's page. Everything that came from a checkpoint is
escaped by jinja2's autoescape, and no script but the page's own, by its digest, is allowed to run.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.conversion.answer import ratio
from fpemu.analysis.conversion.result import Converted
from fpemu.analysis.conversion.text import dtypes
from fpemu.analysis.report.html import style_and_script
from fpemu.analysis.report.pages import templates

if TYPE_CHECKING:
    import jinja2

__all__ = ["render"]


def render(done: Converted) -> str:
    """Return a conversion as the text of one self-contained HTML page."""
    return _template().render(done=done, **style_and_script())


@cache
def _template() -> jinja2.Template:
    found = templates(
        Path(__file__).parent / "templates",
        dtypes=dtypes,
        file=lambda path: Path(path).name,
        ratio=ratio,
        size=size,
    )
    return found.get_template("convert.html.j2")
