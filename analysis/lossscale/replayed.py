"""Replayed: what a replay says, as frozen rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from fpemu.analysis.what_if import percent

__all__ = ["Replay", "ReplayedStep", "Totals"]


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """One step of a replay."""

    step: int
    scale: float  #: in use; of a replay by layers, the smallest of any layer
    recorded_scale: float  #: the loss scale that the recorded gradients carry
    overflow: bool
    skipped: bool  #: the weights stay as they were; the whole window is, if one step overflows
    lost_percent: float  #: of the non-zero gradients; 100 if the step is skipped
    underflow_percent: float  #: of them, those that become zero at this scale
    basis: str  #: how the overflow is known: "recorded", "counted", "assumed", "held"
    overflowed: tuple[str, ...] = ()  #: the tensors that overflow

    def to_json(self) -> dict[str, Any]:
        """Return the step as a JSON-ready dict; a scale that is infinite is "inf"."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        row["scale"] = _plain(self.scale)
        row["overflowed"] = list(self.overflowed)
        return row


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of all steps of a replay: what its percentages are made of."""

    nonzero: int = 0  #: finite non-zero gradients, of every step
    underflow: int = 0  #: of them, those that become zero
    lost: int = 0  #: of them, those that the format does not keep, and all of skipped steps


@dataclass(frozen=True)
class Replay:
    """What a loss scaler would have done on a recorded run; `replay` makes one."""

    scaler: str  #: its text form
    to: str  #: the cast, as `str(cast)`
    kinds: tuple[str, ...]  #: the kinds of gradients that decide
    accumulate: int  #: steps of the trace to one step of the optimizer
    steps: tuple[ReplayedStep, ...]
    totals: Totals
    final_scale: float  #: after the last step
    stopped: int | None  #: the step at which the framework ends the run
    open_loop: bool  #: an estimate: the recorded run went another way
    note: str  #: what the figures stand on, in a sentence or more
    layer: str = ""  #: of a part of a replay by layers
    layers: tuple[Replay, ...] = ()  #: the parts of a replay by layers

    @property
    def lost_percent(self) -> float:
        """Gradients that never reach the weights, in percent of the non-zero ones of all steps.

        Underflow, saturation and overflow in the format, and all gradients of skipped steps.
        """
        return percent(self.totals.lost, self.totals.nonzero)

    @property
    def underflow_percent(self) -> float:
        """Gradients that become zero in the format, in percent likewise."""
        return percent(self.totals.underflow, self.totals.nonzero)

    @property
    def overflow_steps(self) -> int:
        """How many steps overflow."""
        return sum(step.overflow for step in self.steps)

    @property
    def skipped_steps(self) -> int:
        """How many steps leave the weights as they were."""
        return sum(step.skipped for step in self.steps)

    @property
    def spoiled_steps(self) -> int:
        """How many overflow and are not skipped: infinity or NaN reaches the weights."""
        return sum(step.overflow and not step.skipped for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the replay as a JSON-ready dict; a scale that is infinite is "inf"."""
        shares = ("lost_percent", "underflow_percent", "overflow_steps", "skipped_steps",
                  "spoiled_steps")  # fmt: skip
        return {
            "scaler": self.scaler,
            "to": self.to,
            "kinds": list(self.kinds),
            "accumulate": self.accumulate,
            "layer": self.layer,
            **{share: getattr(self, share) for share in shares},
            "final_scale": _plain(self.final_scale),
            "stopped": self.stopped,
            "open_loop": self.open_loop,
            "note": self.note,
            "steps": [step.to_json() for step in self.steps],
            "layers": [part.to_json() for part in self.layers],
        }


def _plain(scale: float) -> float | str:
    return scale if math.isfinite(scale) else "inf"
