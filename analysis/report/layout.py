"""Layout: the sections of a report, in the order in which every view shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpemu.analysis.report.section import Section
from fpemu.analysis.report.sections import (
    advice,
    against,
    blocks,
    definitions,
    events,
    first_cause,
    loss_scale,
    ranks,
    recipes,
    runs,
    tensors,
    updates,
    verdict,
    what_if,
)

if TYPE_CHECKING:
    from fpemu.analysis.report.summary import Report

__all__ = ["SECTIONS", "present"]

SECTIONS: tuple[Section, ...] = tuple(
    module.SECTION
    for module in (
        verdict,
        first_cause,
        advice,
        runs,
        tensors,
        what_if,
        loss_scale,
        updates,
        blocks,
        recipes,
        events,
        ranks,
        against,
        definitions,
    )
)


def present(report: Report) -> list[Section]:
    """Return the sections that a report has data for."""
    return [section for section in SECTIONS if section.there(report)]
