"""What becomes zero, tensor by tensor and step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.asked import Asked
from fpemu.analysis.by_recipe import Target, target
from fpemu.analysis.plots.compute.counts import Counts, Shares, divide, freeze
from fpemu.analysis.plots.source import cells, row_labels
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source
    from fpemu.tallies import Outcome

__all__ = ["UnderflowHeatmap", "underflow_heatmap", "underflow_of"]


@dataclass(frozen=True, eq=False)
class UnderflowHeatmap:
    """Non-zero values that a cast would turn to zero, by tensor and step."""

    labels: tuple[str, ...]
    steps: tuple[int, ...]
    underflow: Counts = field(repr=False)  #: [tensor, step]
    nonzero: Counts = field(repr=False)  #: [tensor, step]; -1 where nothing was recorded
    to: str
    scale: float

    @property
    def share(self) -> Shares:
        """Fraction of the finite non-zero values; NaN where there is none or no record."""
        return divide(self.underflow, self.nonzero)


def underflow_heatmap(
    source: Source, *, to: Asked, scale: float = 1.0, **selection: Any
) -> UnderflowHeatmap:
    """Count what would underflow in each tensor at each step.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> steps = {0: np.float32([1, 1e-8]), 10: np.float32([1e-9, 1e-8])}
    >>> compute.underflow_heatmap({"layer": steps}, to="fp16").share.tolist()
    [[0.5, 1.0]]

    to: a cast, or a recipe that a Trace has counted. scale: the power of two that the values are
    multiplied by before the cast; a recipe takes every scale alike. A mapping without
    steps is one column. selection: name=, kind=, step= of a Trace, whose gradients are counted
    without the loss scale that they were recorded times unless unscaled=False.
    """
    cast = target(to)
    exponent_of(scale)
    counted = (
        ((cell.name, cell.kind), cell.step, cell.parts.outcomes(cast, [scale])[0])
        for cell in cells(source, tried=[cast], **selection)
    )
    return underflow_of(counted, cast, scale)


def underflow_of(
    counted: Iterable[tuple[tuple[str, str], int, Outcome]], to: Target, scale: float = 1.0
) -> UnderflowHeatmap:
    """Return `underflow_heatmap` of outcomes already counted, each with (name, kind) and step."""
    found: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for key, step, outcome in counted:
        steps = found.setdefault(key, {})
        underflow, nonzero = steps.get(step, (0, 0))
        steps[step] = (underflow + outcome.underflow, nonzero + outcome.nonzero)
    columns = sorted({step for steps in found.values() for step in steps})
    table = [[steps.get(column, (0, -1)) for column in columns] for steps in found.values()]
    both = np.array(table, np.int64).reshape(len(found), len(columns), 2)
    underflow_counts, nonzero_counts = freeze(both[..., 0]), freeze(both[..., 1])
    return UnderflowHeatmap(
        row_labels(found), tuple(columns), underflow_counts, nonzero_counts, str(to), float(scale)
    )
