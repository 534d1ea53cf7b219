"""Weights: the parameters as a step finds them, and what an optimizer makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fpemu.analysis.collect.arrays import array_of
from fpemu.analysis.collect.backward import Gradients
from fpemu.analysis.collect.causes import Origin
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.names import Names
from fpemu.analysis.collect.places import Place
from fpemu.analysis.collect.sample import Sample, Site, glimpse
from fpemu.analysis.first_cause import Glimpse
from fpemu.analysis.updates import update_tally

__all__ = ["Weights"]


class Weights:
    """The parameters of one step.

    own: whether this process is the one of several with the same weights that records them.
    """

    def __init__(self, sample: Sample, names: Names, gradients: Gradients, own: bool) -> None:
        self._sample, self._names, self._gradients = sample, names, gradients
        self._own, self._settings = own, sample.settings
        self._sites: dict[int, Site] = {}
        self._old: dict[int, torch.Tensor] = {}
        self._place: Place | None = None

    def start(self) -> None:
        """Take the parameters that have not been taken in this step."""
        if not self._settings.matmul:
            for weight, name in self._names.parameters().items():
                self._take(weight, name)

    def used(self, tensor: torch.Tensor) -> None:
        """Take a parameter that a matrix product was given; biases are added afterwards."""
        if tensor.ndim > 1 and (name := self._names.weight(tensor)) is not None:
            self._take(tensor, name)

    def _take(self, weight: torch.Tensor, name: str) -> None:
        if id(weight) in self._sites:
            return
        self._sites[id(weight)] = site = Site(name, "weight", "", None)
        if self._own and "weight" in self._settings.kinds:
            numbers = self._sample.measure(name, weight)
            if numbers:
                origin = partial(Origin, "", "weight", None, ())
                site.value = self._sample.take(
                    name, "weight", weight, numbers, "forward", "weight", origin
                )
        self._sample.remember(weight, site)
        if weight.requires_grad:
            self._gradients.hook_weight(weight, site)

    # --- the optimizer's step ----------------------------------------------------------------

    def before(self, optimizer: torch.optim.Optimizer, place: Place) -> None:
        """Keep the weights as they are before an optimizer's step, to see the update."""
        self._place = place
        self.start()  # it may be about to call the model for the first time in the step
        if self._own and "update" in self._settings.kinds:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for weight, _ in self._watched(optimizer):
                    self._old[id(weight)] = weight.detach().clone()

    def after(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the updates and the optimizer's state after its step."""
        operation = f"{type(optimizer).__name__}.step"
        for weight, site in self._watched(optimizer):
            if weight.grad is None:
                continue
            old = self._old.pop(id(weight), None)
            if old is not None and weight.shape == old.shape:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    update = weight.detach() - old
                if self._stepped_to(site.name, "update", update, operation, site, weight):
                    lost = update_tally(array_of(old), array_of(update))
                    self._sample.count(site.name, "update", lost)
            if self._own and "optimizer_state" in self._settings.kinds:
                for name, state in _states(optimizer.state.get(weight, {})):
                    full = f"{site.name}.{name}"
                    self._stepped_to(full, "optimizer_state", state, operation, site, weight)
        self._old.clear()

    def forget(self) -> None:
        """Let go of all tensors."""
        self._old.clear()
        self._sites.clear()

    def _watched(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, Site]]:
        """The parameters of an optimizer that are watched."""
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if (site := self._sites.get(id(weight))) is not None:
                    yield weight, site

    def _stepped_to(
        self,
        name: str,
        kind: str,
        tensor: torch.Tensor,
        operation: str,
        site: Site,
        weight: torch.Tensor,
    ) -> bool:
        """Take a tensor after the step; say whether its numbers are counted."""
        numbers = self._sample.measure(name, tensor)
        if numbers is not None:
            origin = partial(self._origin, operation, site, weight)
            self._sample.take(name, kind, tensor, numbers, "optimizer", operation, origin)
        return numbers is not None

    def _origin(self, operation: str, site: Site, weight: torch.Tensor) -> Origin:
        inputs: list[Glimpse] = [site.value] if site.value else []
        if weight.grad is not None:
            numbers = self._sample.measure(site.name, weight.grad)
            if numbers:
                inputs.append(
                    glimpse(site.name, "weight_gradient", "optimizer", operation, numbers)
                )
        return Origin(site.name, operation, self._place, tuple(inputs))


def _states(state: Mapping[Any, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of one parameter's state, but counters of steps."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.ndim:
            yield str(name), value
