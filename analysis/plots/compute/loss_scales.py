"""The loss scale at each step: as it was, and as other scalers would have had it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fpemu.analysis.carried import SCALAR, carried
from fpemu.analysis.skipped import skipped_steps
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.plots.compute.counts import Shares

__all__ = ["LossScaleTrajectory", "Replays", "Trajectory", "loss_scale_trajectory"]

#: Anything with .scaler, .open_loop and .steps of (step, scale, recorded_scale, skipped), such as
#: `fpemu.analysis.lossscale.replay` returns.
Replays: TypeAlias = "Any | Iterable[Any] | Mapping[str, Any]"



@dataclass(frozen=True)
class Trajectory:
    """One scaler's scale by step."""

    label: str
    steps: tuple[int, ...]
    scales: tuple[float, ...]  #: in use at each step
    skipped: tuple[bool, ...]
    recorded: bool  #: what the run itself had, not a replay
    open_loop: bool = False  #: an estimate: other scales would have given other gradients

    @property
    def exponents(self) -> Shares:
        """log2 of the scales; -inf where a scale fell to 0, inf where one grew beyond float32."""
        with np.errstate(divide="ignore"):
            return np.log2(np.array(self.scales, np.float64))


@dataclass(frozen=True)
class LossScaleTrajectory:
    """The recorded trajectory, if there is one, then the replayed ones."""

    lines: tuple[Trajectory, ...]


def loss_scale_trajectory(
    source: Trace | Replays = (), *, replays: Replays = ()
) -> LossScaleTrajectory:
    """Collect the loss scale by step, recorded and replayed.

    >>> from fpemu.analysis.plots import compute
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> for step, scale in enumerate((1024.0, 512.0, 512.0)):
    ...     trace.scalar(step, "loss_scale", scale)
    >>> trace.event(0, "", "skip", "gradients not finite")
    >>> [line] = compute.loss_scale_trajectory(trace).lines
    >>> line.scales, line.skipped
    ((1024.0, 512.0, 512.0), (True, False, False))

    source: a Trace (its scalars "loss_scale" and its "skip" events), a replay of
    `fpemu.analysis.lossscale`, several, or a dict of label -> replay. replays: more of those, to
    stand beside a trace; those that go the same way are one line. Without a trace, the recorded
    scale is taken from the first replay.
    """
    lines = [_recorded(source)] if isinstance(source, Trace) else []
    others = [] if isinstance(source, Trace) else _replays(source)
    others += _replays(replays)
    if not lines and others:
        lines = [_as_recorded(others[0][1])]
    lines = [line for line in lines if line.steps]
    return LossScaleTrajectory((*lines, *_joined(_replayed(*one) for one in others)))


def _joined(lines: Iterable[Trajectory]) -> list[Trajectory]:
    """Lines that are the same but for their label, as one: many scalers differ in name alone."""
    found: dict[Trajectory, list[str]] = {}
    for line in lines:
        found.setdefault(replace(line, label=""), []).append(line.label)
    return [replace(line, label=", ".join(labels)) for line, labels in found.items()]


def _recorded(trace: Trace) -> Trajectory:
    scales = {scalar.step: scalar.value for scalar in trace.scalars(SCALAR)}
    skips = skipped_steps(trace)
    known = carried(trace)
    scales.update((step, known.at(step)) for step in skips - scales.keys())
    steps = sorted(scales)
    return Trajectory(
        "recorded",
        tuple(steps),
        tuple(scales[step] for step in steps),
        tuple(step in skips for step in steps),
        recorded=True,
    )


def _as_recorded(replay: Any) -> Trajectory:
    """What the run had, as a replay knows it."""
    known = [s for s in replay.steps if s.recorded_scale is not None and s.recorded_scale > 0]
    return Trajectory(
        "recorded",
        tuple(s.step for s in known),
        tuple(float(s.recorded_scale) for s in known),
        (False,) * len(known),
        recorded=True,
    )


def _replayed(label: str, replay: Any) -> Trajectory:
    return Trajectory(
        label,
        tuple(s.step for s in replay.steps),
        tuple(float(s.scale) for s in replay.steps),
        tuple(bool(s.skipped) for s in replay.steps),
        recorded=False,
        open_loop=bool(replay.open_loop),
    )


def _replays(given: Any) -> list[tuple[str, Any]]:
    if isinstance(given, Mapping):
        pairs = [(str(label), replay) for label, replay in given.items()]
    else:
        several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        pairs = [(str(getattr(replay, "scaler", "")), replay) for replay in several]
    for _, replay in pairs:
        if not hasattr(replay, "steps") or not hasattr(replay, "open_loop"):
            raise InputError(
                f"cannot plot the loss scales of {type(replay).__name__}: give a Trace, or what "
                "fpemu.analysis.lossscale.replay returns (one, several, or a dict by label)"
            )
    return pairs
