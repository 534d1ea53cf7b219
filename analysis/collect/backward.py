"""Backward: gradients, by hooks on the tensors they belong to.

A tensor's hook sees its gradient whatever is done to the tensor afterwards; full backward hooks
of modules raise where an output is changed in place.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from fpemu.analysis.collect.causes import Origin
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.sample import Sample, Site, glimpse

__all__ = ["Gradients", "in_backward"]


def in_backward() -> bool:
    """Say whether this thread is inside a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


class Gradients:
    """The gradient hooks of one step."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._handles: list[Any] = []  # they hold no tensors
        self._process = os.getpid()

    def hook(self, tensor: torch.Tensor, site: Site) -> None:
        """Watch the gradient of an operation's result."""
        self._hook(tensor, site, "activation_gradient")

    def hook_weight(self, weight: torch.Tensor, site: Site) -> None:
        """Watch a weight's gradient, as each backward pass gives it, before it is accumulated."""
        self._hook(weight, site, "weight_gradient")

    def _hook(self, tensor: torch.Tensor, site: Site, kind: str) -> None:
        if kind in self._sample.settings.kinds:
            with torch._C.DisableTorchFunction():
                arrived = partial(self._arrived, site, kind)
                self._handles.append(tensor.register_hook(arrived))  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Take the hooks away; those of a graph that is gone went with it."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _arrived(self, site: Site, kind: str, gradient: torch.Tensor) -> None:
        if os.getpid() != self._process:
            return
        numbers = self._sample.measure(site.name, gradient)
        if numbers is None:
            return
        # what `take` looks at it with may raise: the gradient is known before
        site.gradient = glimpse(site.name, kind, "backward", site.operation, numbers)
        self._sample.take(
            site.name, kind, gradient, numbers, "backward", site.operation, partial(_made, site)
        )


def _made(site: Site) -> Origin:
    """What made a gradient: the backward pass of the operations that took the tensor."""
    takers = list(dict.fromkeys(site.consumers))
    inputs = tuple(taker.gradient for taker in takers if taker.gradient)
    if not takers:
        return Origin(site.module, f"start of backward at {site.operation}", site.place, inputs)
    odd = next((t for t in takers if t.gradient and not t.gradient.normal), takers[-1])
    names = " + ".join(dict.fromkeys(taker.operation for taker in takers))
    return Origin(odd.module, f"backward of {names}", odd.place, inputs)


