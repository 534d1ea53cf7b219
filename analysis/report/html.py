"""The report as one HTML file that needs nothing else: no network, no fonts, no scripts of others.

Everything that came from a trace is escaped by jinja2's autoescape; the page's own script is
allowed by its digest alone (Content-Security-Policy), so that none that a name smuggled in could
run even if it were not.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from fpemu.analysis.report import numbers
from fpemu.analysis.report.causes import seen_rows
from fpemu.analysis.report.rows import GRADIENTS
from fpemu.analysis.report.summary import Report
from fpemu.analysis.report.verdict import Status

if TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes

__all__ = ["BADGES", "TEMPLATES", "Badge", "Figure", "render", "sections"]

TEMPLATES = Path(__file__).parent / "templates"


class Badge(NamedTuple):
    """The verdict in a word, a sign and a colour, so that none of them stands alone."""

    word: str
    sign: str
    tone: str


BADGES = {
    Status.SAFE: Badge("Safe", "✓", "ok"),
    Status.SAFE_WITH_LOSS_SCALE: Badge("Safe with a loss scale", "!", "warn"),
    Status.NOT_SAFE: Badge("Not safe", "✕", "bad"),
    Status.BROKEN: Badge("Broken as recorded", "✕", "bad"),
    Status.NO_DATA: Badge("No data", "–", "none"),
}

_WHAT = {"nan": "NaN", "inf": "infinite", "invalid": "negative in an unsigned format"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot as the page holds it."""

    title: str
    caption: str
    source: str  #: a data: URL


def render(report: Report, *, plots: bool = True) -> str:
    """Return the report as the text of one self-contained HTML page.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.analysis import report
    >>> trace = Trace()
    >>> trace.record("<b>", "weight", np.float32([1.0]), step=0)
    >>> page = report.html.render(report.build(trace, to="bf16"), plots=False)
    >>> "&lt;b&gt;" in page, "<b>" in page.split("<body>")[1].split("safe unscaled")[0]
    (True, False)

    plots: whether to draw the four plots (about a second). A section without data is left out of
    the page and of its contents.
    """
    figures = tuple(_figures(report)) if plots and report.tensors else ()
    script = (TEMPLATES / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tensors = sorted(report.tensors, key=lambda row: row.rank)
    by_tensor: dict[tuple[str | None, str], list[Any]] = {}
    for row in report.tensor_scales:
        by_tensor.setdefault((row.name, row.kind), []).append(row)
    return _template().render(
        report=report,
        badge=BADGES[report.verdict.status],
        sections=sections(report, figures=bool(figures)),
        causes=[(cause, seen_rows(cause)) for cause in report.first_causes],
        judged=[row for row in tensors if row.judged],
        tensors=tensors,
        tensor_scales=[(row, by_tensor[row.name, row.kind]) for row in tensors],
        run_columns=list(dict.fromkeys(key for run in report.runs for key in run)),
        curves=[
            (kind, list(rows))
            for kind, rows in itertools.groupby(report.curves, key=lambda curve: curve.kind)
        ],
        shown_scales=_shown(report.scales),
        figures=figures,
        css=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=digest,
    )


def sections(report: Report, *, figures: bool) -> list[tuple[str, str]]:
    """Return the id and title of every section that the page has."""
    all_sections = (
        ("verdict", "Verdict", True),
        ("first-cause", "First cause", bool(report.first_causes)),
        ("runs", "Runs" if report.runs else "Scalars", bool(report.runs or report.scalars)),
        ("tensors", "Tensors", bool(report.tensors)),
        ("what-if", "What if", bool(report.tensors)),
        ("events", "Events", bool(report.events or report.log)),
        ("plots", "Plots", figures),
        ("definitions", "Definitions", True),
    )
    return [(name, title) for name, title, there in all_sections if there]


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        share=numbers.share,
        number=numbers.number,
        bits=numbers.bits,
        count=numbers.count,
        power=numbers.power,
        interval=numbers.interval,
        kind_words=numbers.kind_words,
        plain=numbers.plain,
        shorten=numbers.shorten,
        cell=numbers.cell,
        bar=_bar,
        tone=_tone,
        what=lambda what: _WHAT.get(what, what),
        words=lambda key: numbers.plain(str(key)).replace("_", " "),
    )
    return environment.get_template("report.html.j2")


def _bar(value: float) -> int:
    """The length of a bar in percent: logarithmic, from 0.001 % to 100 %."""
    return round(min(max((math.log10(value) + 3) * 20, 2), 100)) if value > 0 else 0


def _tone(value: float, tolerance: float) -> str:
    """How bad a share is, as a style."""
    return "ok" if value <= 100 * tolerance else "warn" if value <= 1000 * tolerance else "bad"


def _shown(scales: tuple[float, ...]) -> list[int]:
    """Indices of the scales that fit a table: 1 and every so many binades around it."""
    one = scales.index(1.0)
    step = max(1, math.ceil(len(scales) / 16))
    return list(range(one % step, len(scales), step))


# --- plots -------------------------------------------------------------------------------------


def _figures(report: Report) -> Iterator[Figure]:
    """The four plots of a report, each as a PNG inside a data: URL."""
    from fpemu.analysis import plots

    totals, to, tolerance = report.totals, report.to, report.tolerance
    formats = list(report.formats)[:5]
    kind = _scaled_kind(report)
    drawings: tuple[tuple[str, str, Callable[[], Axes]], ...] = (
        (
            "How often each power of two occurs, by kind",
            "Above, the ranges of the formats.",
            lambda: plots.exponent_histogram(totals, formats=formats),
        ),
        (
            "Which powers of two occur in each tensor",
            f"Share of a tensor's non-zero values in each binade; lines: the limits of {to}.",
            lambda: plots.exponent_heatmap(totals, to=to),
        ),
        (
            "What becomes zero, by tensor and step",
            f"Share of the non-zero values that {to} makes zero, unscaled, at each recorded step.",
            lambda: plots.underflow_heatmap(report.underflow),
        ),
        (
            f"What is lost at each scale, {numbers.kind_words(kind) if kind else 'all tensors'}",
            "Lines: all values of this kind together. Bars: the scales that are safe for each "
            "tensor by itself, as in the tables.",
            lambda: plots.lost_by_scale(totals, formats=formats, tolerance=tolerance, kind=kind),
        ),
    )
    for title, note, draw in drawings:
        image = base64.b64encode(plots.figure_png(draw())).decode()
        yield Figure(title, f"{title}. {note}", f"data:image/png;base64,{image}")


def _scaled_kind(report: Report) -> str | None:
    """The kind whose scale is most in question: gradients, if there are any."""
    there = {row.kind for row in report.tensors}
    return next((kind for kind in reversed(GRADIENTS) if kind in there), None)
