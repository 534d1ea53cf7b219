"""Rows: what a comparison of two runs says, as frozen records, and where it draws its lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.diff.checks import FAIL_ON
from fpemu.analysis.report.numbers import count, share
from fpemu.analysis.report.rows import label, record_json
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.report.sections.verdict import Verdict

__all__ = ["CHANGES", "Diff", "DiffRow", "ScalarDiff", "Side", "Thresholds", "times_words"]

#: What can have become of a tensor or of a run.
CHANGES = ("worse", "better", "same", "new", "gone")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a difference counts."""

    points: float = 0.1  #: percentage points that a tensor loses more or less, ...
    factor: float = 1.1  #: ... if that is also so many times what it lost

    def __post_init__(self) -> None:
        for name, least in (("points", 0.0), ("factor", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= least:
                raise InputError(f"{name}={value!r}: must be a number from {least:g} on")

    def change(self, before: float, after: float) -> str:
        """Say whether a lost share, in percent, got worse, better or stayed."""
        small, large = sorted((before, after))
        if large - small <= self.points or large < small * self.factor:
            return "same"
        return "worse" if after > before else "better"

    @property
    def words(self) -> str:
        """The rule in one sentence."""
        return (
            "A tensor is worse if it was safe and is not, if it has NaN, infinite or overflowing "
            f"values and had none, or if it loses over {self.points:g} percentage points more and "
            f"{self.factor:g} times as much; better is the reverse. Other changes count as none."
        )


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    name: str  #: its file, or "before" and "after"
    to: str  #: the cast that it is judged in
    verdict: Verdict
    tensors: int
    steps: int

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One tensor in both runs; a number of the run that lacks it is None."""

    name: str
    kind: str
    change: str  #: one of CHANGES
    why: str  #: in words
    judged: bool
    identical: bool  #: every value was counted alike
    safe_before: bool | None
    safe_after: bool | None
    lost_percent_before: float | None
    lost_percent_after: float | None
    broken_before: int | None  #: NaN and infinite values that no loss scaler caught
    broken_after: int | None
    amax_before: float | None
    amax_after: float | None
    rms_before: float | None
    rms_after: float | None

    @property
    def label(self) -> str:
        """Name and kind, as sentences name the tensor."""
        return label(self.name, self.kind)

    @property
    def moved(self) -> float:
        """By how many percentage points more is lost."""
        return (self.lost_percent_after or 0.0) - (self.lost_percent_before or 0.0)

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class ScalarDiff:
    """The last value of a scalar that both runs have, such as the loss."""

    name: str
    before: float
    after: float

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class Diff:
    """Two runs compared; `diff` makes one."""

    before: Side
    after: Side
    verdict_change: str  #: worse, better or same
    rows: tuple[DiffRow, ...]  #: what got worse first, the tensors that are the same last
    scalars: tuple[ScalarDiff, ...]
    thresholds: Thresholds

    @property
    def change(self) -> str:
        """The whole in one word: worse if the verdict or any judged tensor is."""
        changes = {self.verdict_change, *(row.change for row in self.rows if row.judged)}
        return next((word for word in ("worse", "better") if word in changes), "same")

    def counted(self, change: str) -> int:
        """Return how many judged tensors changed so."""
        return sum(row.judged and row.change == change for row in self.rows)

    @property
    def headline(self) -> str:
        """The whole in one sentence."""
        parts = [f"{count(n)} {word}" for word in CHANGES if (n := self.counted(word))]
        judged = f"of the judged tensors {', '.join(parts)}" if parts else "no tensor is judged"
        words = [side.verdict.status.value.replace("_", " ") for side in (self.before, self.after)]
        verdict = f"{words[0]} before and after" if words[0] == words[1] else " → ".join(words)
        return f"{self.change.capitalize()}: {judged}; verdict {verdict}."

    def fails(self, on: str) -> bool:
        """Say whether a check on one of FAIL_ON fails."""
        if on not in FAIL_ON:
            raise InputError(f"fail_on {on!r}: choose from {', '.join(FAIL_ON)}")
        if on == "worse":
            return self.change == "worse"
        if on == "verdict":
            return self.verdict_change == "worse"
        return self.verdict_change != "same" or any(row.change != "same" for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON-ready dict, described in docs/report.schema.md."""
        return {
            "schema": 1,
            "change": self.change,
            "headline": self.headline,
            "verdict_change": self.verdict_change,
            "thresholds": record_json(self.thresholds),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "scalars": [row.to_json() for row in self.scalars],
            "tensors": [row.to_json() for row in self.rows],
        }


def times_words(before: float, after: float) -> str:
    """Return how much more or less is lost, in words."""
    if before and after:
        ratio = max(before, after) / min(before, after)
        much = f"{ratio:.3g} times as much"
        return f"loses {much}" if after > before else f"lost {much} before"
    lost = share(after or before)
    return f"loses {lost}, lost nothing" if after else f"loses nothing, lost {lost}"
