"""Ingoing: what went into an operation, found out only if something came out wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from fpemu.analysis.collect.arrays import check_tensor, measure
from fpemu.analysis.collect.causes import Origin
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.names import Names
from fpemu.analysis.collect.sample import Numbers, Sample, Site, glimpse
from fpemu.analysis.first_cause import Glimpse
from fpemu.errors import InputError

__all__ = ["Facts", "ingoing", "origin_of"]

Facts: TypeAlias = Callable[[], tuple[Glimpse, ...]]


def ingoing(sample: Sample, names: Names, inputs: Iterable[torch.Tensor]) -> Facts:
    """Return what tells, if it is asked, what the inputs were.

    What is known of them now is kept: an operation in place has overwritten its input.
    """
    given = list(inputs)
    before = [sample.entry(tensor) for tensor in given]

    def facts() -> tuple[Glimpse, ...]:
        seen = []
        for tensor, entry in zip(given, before, strict=True):
            if entry and entry.site.value:
                seen.append(entry.site.value)
            elif not (entry and entry.site.masked):
                name = entry.site.name if entry else names.weight(tensor) or "input"
                if numbers := _counted(name, tensor):
                    seen.append(glimpse(name, "input", "forward", "", numbers))
        return tuple(seen)

    return facts


def origin_of(site: Site, facts: Facts) -> Origin:
    """Return where a tensor comes from, with what went in."""
    return Origin(site.module, site.operation, site.place, facts())


def _counted(name: str, tensor: torch.Tensor) -> Numbers | None:
    try:
        check_tensor(tensor, name)
        return Numbers(*measure(tensor)) if tensor.numel() else None
    except InputError:  # not of a kind that is counted
        return None
