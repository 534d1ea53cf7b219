"""Carried: the loss scale that a run's gradients were recorded times, step by step."""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from fpemu.analysis.records import GRADIENTS
from fpemu.errors import InputError
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["METADATA", "SCALAR", "Carried", "Dated", "carried"]

#: The scalar of a trace that holds the loss scale of a step.
SCALAR = "loss_scale"

#: The metadata that holds it where no step has one of its own.
METADATA = "recorded_loss_scale"


class Dated(Protocol):
    """What was recorded or counted of a tensor at a step: a Record, a Counted."""

    @property
    def kind(self) -> str:
        """One of `fpemu.analysis.trace.KINDS`."""

    @property
    def step(self) -> int:
        """The step."""


class Carried:
    """By step, the loss scale that recorded gradients carry; `carried(trace)` makes one."""

    def __init__(self, scales: Mapping[int, float], otherwise: float = 1.0) -> None:
        self._steps = sorted(scales)
        self._scales = [_checked(scales[step], f"step {step}: loss scale ") for step in self._steps]
        self._otherwise = _checked(otherwise, f"metadata {METADATA}=")

    @property
    def known(self) -> dict[int, float]:
        """The steps whose scale was recorded."""
        return dict(zip(self._steps, self._scales, strict=True))

    @property
    def none(self) -> bool:
        """Whether no gradient was multiplied by anything."""
        return all(scale == 1.0 for scale in self._scales or [self._otherwise])

    def at(self, step: int) -> float:
        """Return the scale at a step: its own, else the one before it, else the first after it."""
        if not self._steps:
            return self._otherwise
        return self._scales[max(0, bisect.bisect_right(self._steps, step) - 1)]

    def of(self, record: Dated) -> float:
        """Return the scale that a record's values were multiplied by: 1 for what is no gradient."""
        return self.at(record.step) if record.kind in GRADIENTS else 1.0

    def factor(self, record: Dated) -> float:
        """Return what gives a record's true values: `record.tally.outcome(to, factor * scale)`."""
        scale = self.of(record)
        try:
            return math.ldexp(1.0, -exponent_of(scale))
        except InputError:
            raise InputError(
                f"loss scale {scale!r} at step {record.step}: gradients are unscaled exactly by "
                "powers of two only; record the run with a loss scale that is one"
            ) from None


def carried(trace: Trace) -> Carried:
    """Return the loss scale that a trace's gradients were recorded times, by step.

    >>> import numpy as np
    >>> from fpemu.analysis.carried import carried
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> for step, scale in ((0, 1024.0), (1, 512.0)):
    ...     trace.scalar(step, "loss_scale", scale)
    ...     trace.record("fc1", "weight_gradient", np.float32([1e-9 * scale]), step)
    >>> scales = carried(trace)
    >>> scales.at(0), scales.at(1), scales.at(7)
    (1024.0, 512.0, 512.0)
    >>> [r.tally.outcome("float16", scales.factor(r)).underflow for r in trace.records()]
    [1, 1]

    A step's scale is the scalar "loss_scale", which `watch` records of PyTorch's GradScaler; a step
    without one has that of the step before it, or of the first that has one. A trace without any
    has the metadata "recorded_loss_scale" at each step, or 1. Only gradients carry a scale.
    Errors: InputError for a scale that is no positive finite number; from `factor` for one that
    is no power of two. A scale of 0, to which PyTorch's scaler can fall, is passed over: nothing
    is left of the gradients of that step.
    """
    scales = {scalar.step: scalar.value for scalar in trace.scalars(SCALAR) if scalar.value != 0}
    return Carried(scales, trace.metadata.get(METADATA) or 1.0)


def _checked(scale: object, what: str) -> float:
    top = sys.float_info.max  # JSON holds integers beyond it
    if isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale <= top:
        return float(scale)
    raise InputError(
        f"{what}{scale!r:.40}: must be the positive number that the recorded gradients were "
        "multiplied by"
    )
