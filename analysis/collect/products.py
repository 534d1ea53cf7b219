"""Products: what matrix products are given, where only that is watched."""

from __future__ import annotations

from functools import partial

from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.given import is_mask
from fpemu.analysis.collect.ingoing import ingoing, origin_of
from fpemu.analysis.collect.names import Names
from fpemu.analysis.collect.sample import Sample, Site
from fpemu.analysis.collect.weights import Weights

__all__ = ["take_inputs"]


def take_inputs(
    sample: Sample, names: Names, weights: Weights, label: str, inputs: list[torch.Tensor]
) -> None:
    """Take the weights and activations that a matrix product is given, each once in a step."""
    for tensor in inputs:
        weights.used(tensor)
    activations = [tensor for tensor in inputs if names.weight(tensor) is None]
    if "activation" in sample.settings.kinds:
        for place, tensor in enumerate(activations):
            number = place if len(activations) > 1 else ""
            _take(sample, names, f"{label}.input{number}", tensor)


def _take(sample: Sample, names: Names, name: str, tensor: torch.Tensor) -> None:
    entry = sample.current(tensor)
    if entry and entry.site.value:
        return
    numbers = sample.measure(name, tensor)
    constant = entry is None and not tensor.requires_grad
    if numbers is None or (constant and is_mask(numbers)):
        return
    made = entry.site if entry else Site(name, "input", "", None)
    site = Site(name, made.operation, made.module, made.place)
    site.consumers, site.inputs = made.consumers, made.inputs
    alive = [one for ref in made.inputs if (one := ref()) is not None]
    origin = partial(origin_of, site, ingoing(sample, names, alive))
    site.value = sample.take(
        name, "activation", tensor, numbers, "forward", made.operation, origin
    )
    sample.remember(tensor, site)
