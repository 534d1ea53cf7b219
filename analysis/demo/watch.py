"""Watch: what of a training step goes into the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.skipped import SKIP

if TYPE_CHECKING:
    from fpemu.analysis.demo.training import Recipe, Step
    from fpemu.analysis.trace import Trace
    from fpemu.cast import Cast

__all__ = ["Recorder", "Reporter"]

Array = np.ndarray[Any, Any]


class Recorder:
    """Records the tensors of the float32 run: what the format would have been given.

    Every so many steps, at the last one, and at any step where a tensor leaves the format's
    range for the first time, so that no overflow falls between two recorded steps.
    """

    def __init__(self, trace: Trace, to: Cast, recipe: Recipe, recorded: int) -> None:
        self._trace, self._max, self._last = trace, to.format.max, recipe.steps - 1
        self.every = max(1, recipe.steps // recorded)
        self._left: set[tuple[str, str]] = set()  # tensors that have left the range

    def __call__(self, step: Step) -> None:
        self._trace.scalar(step.number, "loss, float32", step.loss)
        tensors = list(_tensors(step))
        # `not <=` rather than `>`: NaN leaves the range too
        beyond = {(n, kind) for n, kind, x in tensors if not np.abs(x).max() <= self._max}
        due = step.number % self.every == 0 or step.number == self._last
        if due or beyond - self._left:
            for name, kind, array in tensors:
                self._trace.record(name, kind, array, step.number)
        self._left |= beyond


def _tensors(step: Step) -> Iterator[tuple[str, str, Array]]:
    """The tensors of a step, in the order in which it meets them."""
    names, layers = step.network.names, range(len(step.network.names))
    for i in layers:
        yield names[i], "weight", step.signals.weights[i]
        yield names[i], "activation", step.signals.outputs[i]
    for i in reversed(layers):
        yield names[i], "activation_gradient", step.gradients.outputs[i]
        yield names[i], "weight_gradient", step.gradients.weights[i]
    for i, update in enumerate(step.updates):
        yield names[i], "update", update


class Reporter:
    """Notes the loss, skipped steps and the first value that is not finite of a rounded run."""

    def __init__(self, trace: Trace, run: str) -> None:
        self._trace, self._run, self._broken = trace, run, False

    def __call__(self, step: Step) -> None:
        self._trace.scalar(step.number, f"loss, {self._run}", step.loss)
        if step.skipped:
            message = f"{self._run}: gradients not finite, step skipped, loss scale halved"
            self._trace.event(step.number, "", SKIP, message, loss_scale=step.loss_scale / 2)
        broken = None if self._broken else next(_not_finite(step), None)
        if broken:
            self._broken = True
            message = f"{self._run}: first value that is not finite"
            self._trace.event(step.number, *broken, message)


def _not_finite(step: Step) -> Iterator[tuple[str, str]]:
    return (
        (name, kind) for name, kind, array in _tensors(step) if not np.isfinite(array).all()
    )
