"""What any format at any power-of-two scale, or a recipe, would do to each tensor of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.answers import answers
from fpemu.analysis.asked import Asked, known, targets
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.carried import carried
from fpemu.analysis.parts import Parts, Scored
from fpemu.analysis.scales import (
    SCALES,
    TOLERANCE,
    SafeScales,
    best_scale,
    powers_of_two,
    safe_scales,
)
from fpemu.analysis.totals import add_to
from fpemu.tallies import Outcome

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = [
    "FORMATS",
    "SCALES",
    "TOLERANCE",
    "Row",
    "SafeScales",
    "best_scale",
    "grouped",
    "percent",
    "safe_scales",
    "whatif",
]

#: Formats tried unless others are asked for.
FORMATS = (
    "float16",
    "bfloat16",
    "tf32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float6_e3m2fn",
    "float4_e2m1fn",
)


def percent(part: int, whole: int) -> float:
    """Return `part` of `whole` in percent; 0.0 of nothing."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one cast at one scale does to one tensor, over all steps or at one."""

    name: str  #: the tensor's name
    kind: str  #: one of `fpemu.analysis.trace.KINDS`
    step: int | None  #: None: all recorded steps together
    to: str  #: the Cast, as `str(cast)`, or the recipe's name
    scale: float  #: a power of two; the values are multiplied by it before the cast; of a recipe 1
    outcome: Outcome  #: exact counts; of a recipe, clipped is saturated
    scored: Scored | None = None  #: of a recipe: its noise, and the bits it takes

    @property
    def underflow_percent(self) -> float:
        """Non-zero values that become zero, in percent of the finite non-zero ones."""
        return percent(self.outcome.underflow, self.outcome.nonzero)

    @property
    def subnormal_percent(self) -> float:
        """Results below the smallest normal, which keep fewer bits, likewise."""
        return percent(self.outcome.subnormal, self.outcome.nonzero)

    @property
    def saturated_percent(self) -> float:
        """Finite values clamped to the largest finite one, likewise."""
        return percent(self.outcome.saturated, self.outcome.nonzero)

    @property
    def overflow_percent(self) -> float:
        """Finite values that become infinity or NaN, likewise."""
        return percent(self.outcome.overflow, self.outcome.nonzero)

    @property
    def lost_percent(self) -> float:
        """Underflow, saturated, overflow and values of a sign the format lacks, likewise."""
        return percent(self.outcome.lost, self.outcome.nonzero)

    @property
    def sqnr_db(self) -> float | None:
        """Signal to quantization noise of a recipe, measured; None without noise, and of a cast."""
        return None if self.scored is None else self.scored.sqnr_db

    @property
    def bits_per_value(self) -> float | None:
        """Bits that a value takes in a recipe, its share of the scales included; None of a cast."""
        return None if self.scored is None else self.scored.bits_per_value

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict, counts and percentages."""
        shares = ("underflow", "subnormal", "saturated", "overflow", "lost")
        return {
            "name": self.name,
            "kind": self.kind,
            "step": self.step,
            "to": self.to,
            "scale": self.scale,
            **{f"{share}_percent": getattr(self, f"{share}_percent") for share in shares},
            "sqnr_db": self.sqnr_db,
            "bits_per_value": self.bits_per_value,
            "outcome": self.outcome.to_json(),
        }


def whatif(
    trace: Trace,
    *,
    formats: Asked | Iterable[Asked] = FORMATS,
    scales: float | Iterable[float] = SCALES,
    names: str | Iterable[str] | None = None,
    kinds: str | Iterable[str] | None = None,
    per_step: bool = False,
) -> list[Row]:
    """Return one row for each tensor, format and scale: the exact counts of what would be lost.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.analysis.what_if import whatif
    >>> trace = Trace()
    >>> trace.record("dense", "weight_gradient", np.float32([1e-8, 1e-4, 0.0]), step=0)
    >>> for row in whatif(trace, formats=["fp16"], scales=[1, 1024]):
    ...     print(row.to, row.scale, row.underflow_percent)
    float16 1.0 50.0
    float16 1024.0 0.0

    formats: names, Formats, Casts, or recipes (`fpemu.scaling`) by name, text or record, which have
    scales of their own and one row each, at scale 1: of what the run counted of them
    (`watch(..., recipes=)`), or, where one power of two scales the whole tensor, of the histogram.
    scales: powers of two. names, kinds: only these tensors. Of each, one is as good as a list of
    one.
    per_step: a row for each recorded step too, instead of one for all steps together.
    Values are counted as recorded, before the cast, gradients without the loss scale that they
    carried (`fpemu.analysis.carried`); zeros, NaN and infinite values are counted apart in
    `row.outcome` and are in no percentage. Stochastic casts are refused, and so are two
    different ones that print alike, and recipes that were not counted (InputError).
    """
    tried, factors = targets(formats), powers_of_two(scales)
    return [
        Row(*key, str(to), *rest)
        for key, parts in grouped(trace, names, kinds, per_step, tried).items()
        for to in tried
        for rest in _rows(parts, to, factors)
    ]


def _rows(
    parts: Parts, to: Target, factors: Sequence[float]
) -> list[tuple[float, Outcome, Scored | None]]:
    """Scale and outcome of each row, and what a recipe made of it."""
    if isinstance(to, ByRecipe):
        scored = parts.scored(to)
        return [(1.0, scored.outcome, scored)]
    outcomes = parts.outcomes(to, factors)
    return [(scale, outcome, None) for scale, outcome in zip(factors, outcomes, strict=True)]


def grouped(
    trace: Trace,
    names: str | Iterable[str] | None = None,
    kinds: str | Iterable[str] | None = None,
    per_step: bool = False,
    tried: Iterable[Target] = (),
) -> dict[tuple[str, str, int | None], Parts]:
    """Return the counts of a trace by (name, kind, step or None), in the order of recording.

    Gradients are counted without the loss scale that they were recorded times. tried: those of
    these that are recipes are answered too.
    """
    scales, answered = carried(trace), answers(trace, tried)
    keep_names = known("name", names, trace.names(), trace.path)
    keep_kinds = known("kind", kinds, trace.kinds(), trace.path)
    totals: dict[tuple[str, str, int | None], Parts] = {}
    for record in trace.records():
        if record.name in keep_names and record.kind in keep_kinds:
            step = record.step if per_step else None
            parts = answered.parts(record, scales.factor(record))
            add_to(totals, (record.name, record.kind, step), parts)
    return totals
