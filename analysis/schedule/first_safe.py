"""First safe: from which step of a run on a tensor fits a lower precision, by exact counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.asked import casts, known
from fpemu.analysis.carried import carried
from fpemu.analysis.scales import TOLERANCE, check_tolerance, is_safe, powers_of_two
from fpemu.analysis.schedule.places import Place, is_of_products, place
from fpemu.analysis.schedule.spans import Span, check_patience, spans
from fpemu.cast import Cast
from fpemu.format import Format

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace
    from fpemu.tallies import Outcome

__all__ = ["FORMATS", "PATIENCE", "SafeFrom", "first_safe"]

#: Formats tried unless others are asked for: those that training is done in.
FORMATS = ("bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")

#: How many recorded steps in a row have to be safe, unless said otherwise.
PATIENCE = 3


@dataclass(frozen=True, slots=True)
class SafeFrom:
    """When one tensor fits one cast at one scale."""

    name: str  #: the tensor's name
    kind: str  #: one of `fpemu.analysis.trace.KINDS`
    cast: Cast
    scale: float  #: a power of two; the true values are multiplied by it before the cast
    spans: tuple[Span, ...]  #: when it is safe, each of at least `patience` recorded steps
    steps: int  #: how many were recorded
    unsafe_steps: int  #: at how many of them it loses too much, or overflows
    last_unsafe: int | None  #: the last of those
    worst_percent: float  #: the largest loss of its finite non-zero values at one step
    worst_step: int  #: the first step that has it
    place: Place | None  #: where a policy decides on it; None: nowhere

    @property
    def to(self) -> str:
        """The cast as text."""
        return str(self.cast)

    @property
    def step(self) -> int | None:
        """The first step from which all that were recorded are safe; None: there is none."""
        last = self.spans[-1] if self.spans else None
        return last.first_step if last is not None and last.last_step is None else None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return {
            "name": self.name,
            "kind": self.kind,
            "to": self.to,
            "scale": self.scale,
            "step": self.step,
            "spans": [span.to_json() for span in self.spans],
            "steps": self.steps,
            "unsafe_steps": self.unsafe_steps,
            "last_unsafe": self.last_unsafe,
            "worst_percent": self.worst_percent,
            "worst_step": self.worst_step,
        }


@dataclass(slots=True)
class _Series:
    """What one tensor loses in one cast at one scale, step by step."""

    steps: list[int] = field(default_factory=list)
    safe: list[bool] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)

    def add(self, step: int, outcome: Outcome, tolerance: float) -> None:
        self.steps.append(step)
        self.safe.append(is_safe(outcome, tolerance))
        self.lost.append(100.0 * outcome.lost_fraction)

    def row(
        self, name: str, kind: str, cast: Cast, scale: float, patience: int, products: bool
    ) -> SafeFrom:
        unsafe = [step for step, safe in zip(self.steps, self.safe, strict=True) if not safe]
        worst = max(self.lost)
        return SafeFrom(
            name, kind, cast, scale, spans(self.steps, self.safe, patience),
            len(self.steps), len(unsafe), unsafe[-1] if unsafe else None,
            worst, self.steps[self.lost.index(worst)], place(name, kind, products=products),
        )  # fmt: skip


def first_safe(
    trace: Trace,
    *,
    formats: str | Format | Cast | Iterable[str | Format | Cast] = FORMATS,
    scales: float | Iterable[float] = 1.0,
    names: str | Iterable[str] | None = None,
    kinds: str | Iterable[str] | None = None,
    tolerance: float = TOLERANCE,
    patience: int = PATIENCE,
) -> list[SafeFrom]:
    """Return for each tensor, format and scale the step from which it fits.

    >>> import numpy as np
    >>> from fpemu.analysis import Trace, schedule
    >>> trace = Trace()
    >>> for step in range(6):  # a gradient that grows out of float16's underflow
    ...     trace.record("fc1", "activation_gradient", np.float32([2.0 ** (4 * step - 32)]), step)
    >>> [row] = schedule.first_safe(trace, formats="fp16", patience=2)
    >>> row.step, row.unsafe_steps, row.spans
    (2, 2, (Span(first_step=2, last_step=None),))
    >>> [row.step for row in schedule.first_safe(trace, formats="fp16", scales=256)]
    [0]

    formats: names, Formats or Casts; scales: powers of two, what the true values are multiplied
    by: a loss scale or a tensor's own. names, kinds: only these tensors. A recorded step is safe
    if no value overflows to infinity or NaN and at most the fraction `tolerance` of the finite
    non-zero values is lost to underflow or saturation. patience: how many recorded steps in a row
    must be safe to count. Steps that were not recorded are taken to be like those around them.
    Gradients are counted as they truly are: a loss scale that they were recorded times is undone
    (`fpemu.analysis.carried`). NaN, infinite and zero values are lost by no format.
    Errors: InputError for names and kinds that the trace has not, for stochastic casts, and for a
    recorded loss scale that is no power of two.
    """
    tried, factors = casts(formats), powers_of_two(scales)
    check_tolerance(tolerance)
    check_patience(patience)
    keep_names = known("name", names, trace.names(), trace.path)
    keep_kinds = known("kind", kinds, trace.kinds(), trace.path)
    carry = carried(trace)
    found: dict[tuple[str, str, Cast, float], _Series] = {}
    for record in trace.records():
        if record.name not in keep_names or record.kind not in keep_kinds:
            continue
        true = carry.factor(record)
        for cast in tried:
            outcomes = record.tally.outcomes(cast, [true * scale for scale in factors])
            for scale, outcome in zip(factors, outcomes, strict=True):
                series = found.setdefault((record.name, record.kind, cast, scale), _Series())
                series.add(record.step, outcome, tolerance)
    products = is_of_products(trace)
    return [series.row(*key, patience, products) for key, series in found.items()]
