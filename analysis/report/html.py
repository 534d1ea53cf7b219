"""The report as one HTML file that needs nothing else: no network, no fonts, no scripts of others.

Everything that came from a trace is escaped by jinja2's autoescape; the page's own script is
allowed by its digest alone (Content-Security-Policy), so that none that a name smuggled in could
run even if it were not.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fpemu.analysis.report import numbers
from fpemu.analysis.report.figures import Figure, figures
from fpemu.analysis.report.layout import present
from fpemu.analysis.report.pages import templates
from fpemu.analysis.report.sections.verdict import BADGES
from fpemu.analysis.report.summary import Report

if TYPE_CHECKING:
    import jinja2

__all__ = ["TEMPLATES", "Part", "render", "style_and_script"]

TEMPLATES = Path(__file__).parent / "templates"

_WHAT = {
    "nan": "NaN",
    "inf": "infinite",
    "skipped": "not finite, step skipped",
    "invalid": "negative in an unsigned format",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A section as the page holds it."""

    anchor: str
    title: str
    body: Markup


def render(report: Report, *, plots: bool | Sequence[Figure] = True) -> str:
    """Return the report as the text of one self-contained HTML page.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.analysis import report
    >>> trace = Trace()
    >>> trace.record("<b>", "weight", np.float32([1.0]), step=0)
    >>> page = report.html.render(report.build(trace, to="bf16"), plots=False)
    >>> "&lt;b&gt;" in page, "<b>" in page.split("<body>")[1].split("safe unscaled")[0]
    (True, False)

    plots: whether to draw the plots (a few seconds), or what `figures` drew. A section without
    data is left out of the page and of its contents.
    """
    return _templates().get_template("report.html.j2").render(
        report=report,
        badge=BADGES[report.verdict.status],
        sections=list(_parts(report, plots)),
        **style_and_script(),
    )


def style_and_script() -> dict[str, Any]:
    """Return what a page of its own needs of looks and behaviour, for its template."""
    script = (TEMPLATES / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    css = (TEMPLATES / "report.css").read_text("utf-8")
    return {"css": Markup(css), "script": Markup(script), "script_hash": digest}


def _parts(report: Report, plots: bool | Sequence[Figure]) -> Iterator[Part]:
    """The sections that have data, the plots before the definitions at the end."""
    *facts, words = present(report)
    for section in facts:
        body = _body(section.name, report=report, **section.page(report))
        yield Part(section.anchor, section.title(report), body)
    if drawn := list(figures(report)) if plots is True else list(plots or ()):
        yield Part("plots", "Plots", _body("plots", figures=drawn))
    yield Part(words.anchor, words.title(report), _body(words.name, report=report))


def _body(name: str, **given: Any) -> Markup:
    return Markup(_templates().get_template(f"sections/{name}.html.j2").render(**given))


@cache
def _templates() -> jinja2.Environment:
    return templates(
        TEMPLATES,
        lenient=True,
        bits=numbers.bits,
        cell=numbers.cell,
        cosine=numbers.cosine,
        decibels=numbers.decibels,
        exponent=numbers.exponent,
        file_size=numbers.file_size,
        key=_key,
        tone=_tone,
        what=lambda what: _WHAT.get(what, what),
        words=lambda key: numbers.plain(str(key)).replace("_", " "),
    )


def _key(value: float | None) -> str:
    """What a cell sorts by: six digits are enough to tell rows apart."""
    return "" if value is None else f"{value:.6g}"


def _tone(value: float, tolerance: float) -> str:
    """How bad a share is, as a style."""
    return "ok" if value <= 100 * tolerance else "warn" if value <= 1000 * tolerance else "bad"
