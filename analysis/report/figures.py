"""Figures: the plots of a report as the page holds them, images inside data: URLs."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, TypeAlias

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.numbers import count, kind_words, plain, shorten
from fpemu.analysis.report.sections.blocks import ELEMENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.report.summary import Report

__all__ = ["Figure", "figures"]

_Drawing: TypeAlias = "tuple[str, str, str, Callable[[], Axes]]"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot as the page holds it."""

    name: str  #: of the function of `fpemu.analysis.plots` that drew it
    title: str
    caption: str
    png: bytes

    @property
    def source(self) -> str:
        """The image as a data: URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


def figures(report: Report) -> Iterator[Figure]:
    """Draw the plots that a report has data for."""
    from fpemu.analysis import plots

    for name, title, note, draw in _drawings(report):
        yield Figure(name, title, f"{title}. {note}", plots.figure_png(draw()))


def _drawings(report: Report) -> Iterator[_Drawing]:
    """The plot's name, its title, what else the caption says, and what draws it."""
    if report.tensors:
        yield from _ranges(report)
        yield from _losses(report)
    yield from _training(report)
    yield from _values(report)


def _ranges(report: Report) -> Iterator[_Drawing]:
    """Where the numbers lie."""
    from fpemu.analysis import plots

    totals, to = report.totals, report.to
    yield (
        "exponent_histogram",
        "How often each power of two occurs, by kind",
        "Above, the ranges of the formats.",
        lambda: plots.exponent_histogram(totals, formats=_casts(report)[:5]),
    )
    if isinstance(to, ByRecipe):
        return  # its scales go with the numbers: there is no range to draw
    yield (
        "exponent_heatmap",
        "Which powers of two occur in each tensor",
        f"Share of a tensor's non-zero values in each binade; lines: the limits of {to}.",
        lambda: plots.exponent_heatmap(totals, to=to),
    )
    yield (
        "scale_plot",
        "How far each layer's numbers reach, forward and backward",
        f"Largest, root mean square and smallest magnitude; lines: the limits of {to}.",
        lambda: plots.scale_plot(totals, to=to),
    )
    if len(report.amax.steps) > 1:
        yield (
            "amax_by_step",
            "The largest magnitude by step",
            f"Against the largest value of {to}.",
            lambda: plots.amax_by_step(report.amax),
        )


def _losses(report: Report) -> Iterator[_Drawing]:
    """What formats do to them."""
    from fpemu.analysis import plots

    totals, to, kind = report.totals, report.to, _scaled_kind(report)
    formats, whose = _casts(report)[:5], kind_words(kind) if kind else "all tensors"
    together = [total for total in totals if kind in (None, total.kind)]
    scaled = [total for total in together if not total.stays_wide] or together
    yield (
        "underflow_heatmap",
        "What becomes zero, by tensor and step",
        f"Share of the non-zero values that {to} makes zero, unscaled, at each recorded step.",
        lambda: plots.underflow_heatmap(report.underflow),
    )
    if formats:
        yield (
            "lost_by_scale",
            f"What is lost at each scale, {whose}",
            "Lines: all values of this kind together. Bars: the scales that are safe for each "
            "tensor by itself, as in the tables.",
            lambda: plots.lost_by_scale(
                scaled, formats=formats, tolerance=report.tolerance, kind=kind
            ),
        )
    fine = [to for to in formats if _expected(report, to)]
    if fine and any(total.parts.nonzero for total in together):
        yield (
            "sqnr_by_scale",
            f"Signal to noise at each scale, {whose}",
            "Expected from the counts, of all values of this kind together.",
            lambda: plots.sqnr_by_scale([reduce(add, together)], formats=fine),
        )
    if _expected(report, str(to)):
        yield (
            "sqnr_by_layer",
            f"Signal to noise of each tensor in {to}",
            "Measured on the values; the worst first." if isinstance(to, ByRecipe) else
            "Expected from the counts, unscaled; the worst first.",
            lambda: plots.sqnr_by_layer(totals, to=to),
        )


def _training(report: Report) -> Iterator[_Drawing]:
    """What training makes of them: loss scales and updates."""
    from fpemu.analysis import plots

    if report.replays and len(report.replays[0].steps) > 1:
        yield (
            "loss_scale_trajectory",
            "The loss scale by step, recorded and replayed",
            "Marked: skipped steps.",
            lambda: plots.loss_scale_trajectory(report.replays),
        )
    updates = report.update_total
    if updates is not None and updates.changed:
        yield (
            "update_ratio",
            "How large updates are beside their weights",
            "An update below half a gap of the weight's format is lost to rounding to nearest.",
            lambda: plots.update_ratio(updates),
        )


def _values(report: Report) -> Iterator[_Drawing]:
    """What needs values and not counts."""
    from fpemu.analysis import plots

    for name, values in report.samples.items():
        said = f"{shorten(plain(name))}, {count(values.size)} values"
        if not isinstance(report.to, ByRecipe):  # whose units in the last place go with the scale
            yield (
                "error_distribution",
                f"Rounding errors in {report.to}: {said}",
                "In units of the last place.",
                partial(plots.error_distribution, values, report.to),
            )
        yield (
            "qsnr_by_crest",
            f"Signal to noise of blocks of 32 with a scale each: {said}",
            "By the crest factor: the largest magnitude over the root mean square.",
            partial(plots.qsnr_by_crest, values, to=ELEMENTS[0]),
        )


def _casts(report: Report) -> list[str]:
    """The formats tried that are no recipes."""
    return list(dict.fromkeys(r.to for r in report.kind_scales if r.bits_per_value is None))


def _expected(report: Report, to: str) -> bool:
    """Whether a cast's noise can be expected from counts."""
    return any(row.to == to and row.quality.sqnr_db is not None for row in report.kind_scales)


def _scaled_kind(report: Report) -> str | None:
    """The kind whose scale is most in question: gradients, if there are any."""
    there = {row.kind for row in report.tensors}
    return next((kind for kind in reversed(GRADIENTS) if kind in there), None)
