"""First cause: where a value first left a run's range, and what led to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from fpemu.errors import FpemuError, InputError

if TYPE_CHECKING:
    from fpemu.analysis.records import Event

__all__ = ["EVENT", "WHATS", "FirstCause", "FirstCauseError", "Glimpse", "causes_in"]

#: The kind under which a trace's events keep first causes.
EVENT = "first_cause"

#: What can happen to a value first, with the words that say it.
WHATS = {
    "nan": "NaN",
    "inf": "infinity",
    "overflow": "overflow",
    "saturated": "saturation",
}


@dataclass(frozen=True, slots=True)
class Glimpse:
    """One tensor as it went by: its name and what is needed to see where it was heading."""

    name: str
    kind: str  #: a tensor's kind, or "input" for one that is not recorded
    phase: str  #: forward, backward or optimizer
    operation: str
    amax: float  #: the largest finite magnitude
    nan: int
    inf: int
    total: int

    @property
    def normal(self) -> bool:
        """Whether all of its values were finite."""
        return not (self.nan or self.inf)

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class FirstCause:
    """The first tensor of a run that overflowed, or held NaN, and what made it.

    >>> from fpemu.analysis.first_cause import FirstCause, Glimpse
    >>> cause = FirstCause(
    ...     what="overflow", to="float16", step=3, name="block.add", kind="activation",
    ...     module="block", operation="add", source="model.py:12", code="x = x + y",
    ...     phase="forward", role="producer", amax_in=60000.0, amax_out=66246.0, nan=0, inf=0,
    ...     count=1, total=4096)
    >>> print(cause.headline)
    overflow in float16 at step 3, forward, in add of block (model.py:12): 60000 in, 66246 out
    >>> FirstCause.from_json(cause.to_json()) == cause
    True

    amax_in and amax_out are the largest finite magnitudes that went in and came out; amax_in is
    None where nothing goes in. A producer made the value from normal ones, a propagator only
    handed it on. loss_scale: what the gradients were multiplied by; caught: a GradScaler looks for
    such values and skips the step, so that the run is not harmed.
    """

    what: str  #: one of WHATS
    to: str | None  #: the what-if format; None: the value itself is not finite
    step: int
    name: str
    kind: str
    module: str  #: "": outside every watched module
    operation: str
    source: str  #: file:line of the user's source; "?": none was found
    code: str  #: that line's text
    phase: str  #: forward, backward or optimizer
    role: str  #: producer or propagator
    amax_in: float | None
    amax_out: float
    nan: int
    inf: int
    count: int  #: how many values are concerned
    total: int
    loss_scale: float = 1.0
    caught: bool = False
    inputs: tuple[Glimpse, ...] = ()
    lead_up: tuple[Glimpse, ...] = ()  #: the tensors before it, the last one at the end

    @property
    def headline(self) -> str:
        """The cause in one line."""
        what = WHATS[self.what] + (f" in {self.to}" if self.to else "")
        where = f" of {self.module}" if self.module else ""
        amounts = f"{self._in()} in, {_odd(self.nan, self.inf) or _number(self.amax_out)} out"
        return (
            f"{what} at step {self.step}, {self.phase}, in {self.operation}{where} "
            f"({self.source}): {amounts}"
        )

    @property
    def explanation(self) -> str:
        """What the role means here, and what a loss scale has to do with it."""
        share = f"{self.count} of {self.total} values of {self.name} ({self._kind()})"
        if self.role == "producer":
            said = f"{share}; normal values went in: this operation is where it began."
        elif self.kind == "weight":
            said = f"{share}; the step began with it: look at the step before, and record it too."
        else:
            said = f"{share}; it came in already: look at where these inputs come from."
        if self.loss_scale != 1:
            said += f" Gradients were multiplied by the loss scale {self.loss_scale:g}."
        if self.caught:
            said += " A GradScaler watches for this and skips the step."
        return said

    def text(self) -> str:
        """Return the report of several lines that `stop_on` raises with."""
        lines = [self.headline, f"  {self.code}" if self.code else "", f"  {self.explanation}"]
        lines += ["  inputs:", *map(_line, self.inputs)] if self.inputs else []
        lines += ["  before it:", *map(_line, self.lead_up)] if self.lead_up else []
        return "\n".join(filter(None, lines))

    def to_json(self) -> dict[str, Any]:
        """Return the cause as JSON values; `from_json` reads it back."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {
            "inputs": [one.to_json() for one in self.inputs],
            "lead_up": [one.to_json() for one in self.lead_up],
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> FirstCause:
        """Make a cause from `to_json`'s dict; anything else is an InputError."""
        try:
            made = cls(**facts)
            return replace(
                made,
                inputs=tuple(Glimpse(**one) for one in made.inputs),  # type: ignore[arg-type]
                lead_up=tuple(Glimpse(**one) for one in made.lead_up),  # type: ignore[arg-type]
            )
        except TypeError as error:
            raise InputError(
                f"first cause {facts!r:.80}: not what FirstCause.to_json() gives ({error}); "
                "restore the trace from a copy"
            ) from None

    def _in(self) -> str:
        nan, inf = sum(one.nan for one in self.inputs), sum(one.inf for one in self.inputs)
        return _odd(nan, inf) or _number(self.amax_in)

    def _kind(self) -> str:
        return self.kind.replace("_", " ")


class FirstCauseError(FpemuError):
    """What `stop_on` raises: its message is the report of the first cause, `cause` the record."""

    def __init__(self, cause: FirstCause) -> None:
        super().__init__(cause.text())
        self.cause = cause


def causes_in(events: Iterable[Event]) -> tuple[FirstCause, ...]:
    """Return the first causes among a trace's events: of each kind the first, in order of time.

    Of several ranks that were merged, the earliest step counts; what a GradScaler catches comes
    after what it does not.
    """
    firsts: dict[tuple[str, str | None, bool], FirstCause] = {}
    for event in events:
        if event.kind == EVENT:
            cause = FirstCause.from_json(event.facts["cause"])
            known = firsts.setdefault((cause.what, cause.to, cause.caught), cause)
            if cause.step < known.step:
                firsts[cause.what, cause.to, cause.caught] = cause
    return tuple(sorted(firsts.values(), key=lambda cause: (cause.caught, cause.step)))


def _odd(nan: int, inf: int, joined: str = " and ") -> str:
    return joined.join(f"{n} {word}" for n, word in ((nan, "NaN"), (inf, "inf")) if n)


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def _line(seen: Glimpse) -> str:
    words = dict.fromkeys(filter(None, (seen.kind.replace("_", " "), seen.operation)))
    told = [word for word in words if word != seen.name]
    what = f"{seen.name} ({', '.join(told)})" if told else seen.name
    return f"    {what}: " + ", ".join(
        filter(None, (f"amax {seen.amax:.6g}", _odd(seen.nan, seen.inf, ", ")))
    )
