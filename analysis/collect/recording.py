"""Recording: one step being recorded; all that is attached for it, put in place and taken away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from fpemu.analysis.collect.backward import Gradients
from fpemu.analysis.collect.causes import Causes
from fpemu.analysis.collect.compiled import eager
from fpemu.analysis.collect.forward import Forward
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.labels import Labels
from fpemu.analysis.collect.names import Names
from fpemu.analysis.collect.places import Place
from fpemu.analysis.collect.sample import Sample
from fpemu.analysis.collect.settings import Settings
from fpemu.analysis.collect.weights import Weights
from fpemu.analysis.trace import Trace

__all__ = ["Recording"]


class Recording:
    """One step: its forward and backward pass, and what the optimizer does."""

    def __init__(
        self,
        step: int,
        settings: Settings,
        causes: Causes,
        names: Names,
        labels: Labels,
        *,
        own: bool,
        discover: bool,
        loss: Callable[[float], None],
    ) -> None:
        self._sample = Sample(step, settings, causes)
        self._gradients = Gradients(self._sample)
        self._weights = Weights(self._sample, names, self._gradients, own)
        self._forward = Forward(
            self._sample, names, labels, self._gradients, self._weights, discover, loss
        )
        self._eager = ExitStack()

    @property
    def unsupported(self) -> dict[str, str]:
        """The tensors that were left out, and why."""
        return self._sample.unsupported

    @property
    def inputs(self) -> dict[str, list[str]]:
        """The tensors that each matrix product was given, by the name of its result."""
        return self._sample.inputs

    def install(self, depth: int) -> None:
        """Attach everything; the function mode goes to a depth of the stack of modes."""
        self._eager.enter_context(eager())
        self._forward.install(depth)

    def remove(self) -> None:
        """Take everything away."""
        self._forward.remove()
        self._gradients.remove()
        self._weights.forget()
        self._eager.close()

    def pause(self) -> None:
        """Hear no operations for a while."""
        self._forward.pause()

    def resume(self) -> None:
        """Hear operations again."""
        self._forward.resume()

    def before(self, optimizer: torch.optim.Optimizer, place: Place) -> None:
        """An optimizer is about to step."""
        self._forward.pause()
        self._weights.before(optimizer, place)

    def after(self, optimizer: torch.optim.Optimizer, skipped: bool) -> None:
        """An optimizer has stepped."""
        self._forward.resume()
        if not skipped:
            self._weights.after(optimizer)

    def write(self, trace: Trace) -> None:
        """Hand what was recorded over to the trace."""
        self._sample.write(trace)
