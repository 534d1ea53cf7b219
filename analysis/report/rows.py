"""The rows of a report: frozen records, each a fact that text, HTML and JSON all show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from fpemu.analysis.totals import Total
    from fpemu.format import Format
    from fpemu.tallies import Outcome

__all__ = [
    "GRADIENTS",
    "HARD",
    "JUDGED",
    "Incident",
    "LogRow",
    "ScalarRow",
    "TensorRow",
    "json_value",
    "record_json",
    "tensor_row",
]

#: The kinds that mixed-precision training casts; optimizer states and updates stay float32 there.
JUDGED = ("activation", "weight", "weight_gradient", "activation_gradient")

#: The kinds that a loss scale multiplies.
GRADIENTS = ("weight_gradient", "activation_gradient")

#: Events that count from the first value on; the others only above the tolerance.
HARD = ("nan", "inf", "overflow")


def record_json(record: Any) -> dict[str, Any]:
    """A record's fields; a number that JSON cannot hold is null."""
    return {field.name: json_value(getattr(record, field.name)) for field in fields(record)}


def json_value(value: Any) -> Any:
    """A value as JSON holds it: no NaN, no infinity, no tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    return value.to_json() if hasattr(value, "to_json") else value


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor over all recorded steps, and what the report's cast does to it unscaled.

    Percentages are of the finite non-zero values, but zero_percent, nan and inf of all.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    steps: int  #: recorded steps
    count: int  #: values, over all steps
    nan: int
    inf: int
    zero_percent: float
    smallest_nonzero: float | None  #: magnitude; None: no non-zero value
    amax: float | None
    rms: float | None
    mean: float | None
    std: float | None
    kurtosis: float | None
    dynamic_range_bits: float | None
    headroom_max_bits: float | None
    headroom_normal_bits: float | None
    latent_percent: float
    underflow_percent: float
    subnormal_percent: float
    saturated_percent: float
    overflow_percent: float
    lost_percent: float
    safe: bool
    judged: bool  #: whether the verdict speaks of it

    @property
    def label(self) -> str:
        """Name and kind, as sentences name the tensor."""
        return f"{self.name} ({self.kind.replace('_', ' ')})"

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Sorts the worst first: judged and unsafe, overflowing or broken, losing most."""
        hard = self.nan or self.inf or self.overflow_percent
        return not self.judged, self.safe, not hard, -self.lost_percent

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class Incident:
    """The first time that something happened to one tensor, and the worst.

    `a + b` joins those of two steps: the first one, with the worst step's share.
    """

    what: str  #: nan, inf, overflow, saturated, underflow or invalid
    name: str
    kind: str
    step: int  #: the first step
    count: int  #: values, at that step
    percent: float  #: of all values for nan and inf, else of the finite non-zero ones
    amax: float | None  #: largest finite magnitude of the tensor at that step
    steps: int  #: recorded steps at which it happened
    worst_step: int
    worst_percent: float
    order: int  #: place among all records: the first within a step is the cause to look at

    def __add__(self, other: Incident) -> Incident:
        first = min(self, other, key=lambda incident: (incident.step, incident.order))
        worst = other if other.worst_percent > self.worst_percent else self
        return replace(
            first,
            steps=self.steps + other.steps,
            worst_step=worst.worst_step,
            worst_percent=worst.worst_percent,
        )

    @property
    def hard(self) -> bool:
        """Whether one value is enough."""
        return self.what in HARD

    @property
    def label(self) -> str:
        """Name and kind, as sentences name the tensor."""
        return f"{self.name} ({self.kind.replace('_', ' ')})"

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class LogRow:
    """An event that the run itself recorded: a step skipped, a loss scale changed."""

    step: int
    name: str
    kind: str
    message: str
    facts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """One scalar of the recorded run, such as its loss: where it began and ended, its range."""

    name: str
    first: float
    last: float
    smallest: float | None  #: of the finite values; None: there is none
    largest: float | None
    count: int
    nonfinite: int

    @classmethod
    def of(cls, name: str, values: Sequence[float]) -> ScalarRow:
        """Sum up the values of a scalar, in the order of steps."""
        finite = [value for value in values if math.isfinite(value)]
        return cls(
            name,
            first=values[0],
            last=values[-1],
            smallest=min(finite, default=None),
            largest=max(finite, default=None),
            count=len(values),
            nonfinite=len(values) - len(finite),
        )

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def tensor_row(
    tensor: Total,
    outcome: Outcome,
    doubled: Outcome,
    form: Format,
    *,
    tolerance: float,
    judged: bool,
) -> TensorRow:
    """Return the row of a tensor; `doubled` is its outcome at scale 2, for the latent share."""
    moments = tensor.moments
    some = outcome.nonzero > 0
    amax, smallest = (moments.amax, moments.smallest_nonzero) if some else (None, None)
    beyond = outcome.overflow + outcome.saturated
    finite = moments.count > 0
    return TensorRow(
        name=tensor.name,
        kind=tensor.kind,
        shape=tensor.shape,
        steps=tensor.steps,
        count=outcome.total,
        nan=outcome.nan,
        inf=outcome.inf,
        zero_percent=percent(outcome.zero, outcome.total),
        smallest_nonzero=smallest,
        amax=moments.amax if finite else None,
        rms=moments.rms if finite else None,
        mean=moments.mean if finite else None,
        std=moments.std if finite else None,
        kurtosis=moments.kurtosis if finite and math.isfinite(moments.kurtosis) else None,
        dynamic_range_bits=_binades(amax, smallest),
        headroom_max_bits=_binades(form.max, amax),
        headroom_normal_bits=_binades(smallest, form.smallest_normal),
        latent_percent=percent(doubled.overflow + doubled.saturated - beyond, outcome.nonzero),
        underflow_percent=percent(outcome.underflow, outcome.nonzero),
        subnormal_percent=percent(outcome.subnormal, outcome.nonzero),
        saturated_percent=percent(outcome.saturated, outcome.nonzero),
        overflow_percent=percent(outcome.overflow, outcome.nonzero),
        lost_percent=percent(outcome.lost, outcome.nonzero),
        safe=not (outcome.nan or outcome.inf or outcome.overflow)
        and outcome.lost_fraction <= tolerance,
        judged=judged,
    )


def _binades(above: float | None, below: float | None) -> float | None:
    """The distance between two magnitudes in binades."""
    return math.log2(above) - math.log2(below) if above and below else None
