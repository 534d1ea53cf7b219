"""Schedule: when a run's tensors fit a lower precision, and a policy that changes as they do.

    first_safe(trace)       for each tensor and format the step from which it is safe
    overrides, policy       these steps as a policy's overrides, to emulate
    follow(emulation, run)  a callback that changes an emulated policy as statistics cross lines
    Line, STATISTICS        the statistics, and the lines between which nothing changes
    Decision                what the callback changed, when and why
    table(rows)             rows or decisions as text
    decisions               logs as JSON, both ways

See docs/schedules.md.
"""

from __future__ import annotations

from fpemu.analysis.schedule import decisions
from fpemu.analysis.schedule.decisions import Decision
from fpemu.analysis.schedule.exceptions import overrides, policy
from fpemu.analysis.schedule.first_safe import SafeFrom, first_safe
from fpemu.analysis.schedule.follow import Follower, follow
from fpemu.analysis.schedule.lines import LINES, STATISTICS, Line
from fpemu.analysis.schedule.spans import Span
from fpemu.analysis.schedule.text import table

__all__ = [
    "LINES",
    "STATISTICS",
    "Decision",
    "Follower",
    "Line",
    "SafeFrom",
    "Span",
    "decisions",
    "first_safe",
    "follow",
    "overrides",
    "policy",
    "table",
]
