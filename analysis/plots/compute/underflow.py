"""What becomes zero, tensor by tensor and step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots.compute.counts import Counts, Shares, divide, freeze, log2_scale
from fpemu.analysis.plots.source import cells, row_labels
from fpemu.cast import Cast, make_cast

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source
    from fpemu.format import Format

__all__ = ["UnderflowHeatmap", "underflow_heatmap"]


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
    source: Source, *, to: Cast | Format | str, scale: float = 1.0, **selection: Any
) -> UnderflowHeatmap:
    """Count what would underflow in each tensor at each step.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> steps = {0: np.float32([1, 1e-8]), 10: np.float32([1e-9, 1e-8])}
    >>> compute.underflow_heatmap({"layer": steps}, to="fp16").share.tolist()
    [[0.5, 1.0]]

    scale: the power of two that the values are multiplied by before the cast. A mapping without
    steps is one column. selection: name=, kind=, step= of a Trace.
    """
    cast = make_cast(to)
    log2_scale(scale)
    found: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for cell in cells(source, **selection):
        outcome = cell.tally.outcome(cast, scale)
        steps = found.setdefault((cell.name, cell.kind), {})
        underflow, nonzero = steps.get(cell.step, (0, 0))
        steps[cell.step] = (underflow + outcome.underflow, nonzero + outcome.nonzero)
    columns = sorted({step for steps in found.values() for step in steps})
    table = [[steps.get(column, (0, -1)) for column in columns] for steps in found.values()]
    both = np.array(table, np.int64).reshape(len(found), len(columns), 2)
    underflow_counts, nonzero_counts = freeze(both[..., 0]), freeze(both[..., 1])
    return UnderflowHeatmap(
        row_labels(found), tuple(columns), underflow_counts, nonzero_counts, str(cast), float(scale)
    )
