"""The largest magnitude of each tensor at each step, against the largest that a format has."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.plots.source import cells, row_labels
from fpemu.cast import Cast
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.plots.compute.counts import Shares
    from fpemu.analysis.plots.source import Source
    from fpemu.format import Format

__all__ = ["AmaxByStep", "amax_by_step"]


@dataclass(frozen=True, eq=False)
class AmaxByStep:
    """The largest finite magnitude by tensor and step, and where there were others."""

    labels: tuple[str, ...]
    steps: tuple[int, ...]
    amax: Shares = field(repr=False)  #: [tensor, step]; NaN where nothing finite was recorded
    nonfinite: npt.NDArray[np.bool] = field(repr=False)  #: [tensor, step]: infinities or NaNs
    to: str
    limit: float  #: the largest magnitude that fits: the format's largest value / scale
    scale: float
    unscaled: bool  #: whether a loss scale was taken out of any

    @property
    def headroom(self) -> Shares:
        """Bits between each tensor's largest magnitude over all steps and the limit."""
        top = np.nanmax(np.where(self.amax > 0, self.amax, 0.0), axis=1, initial=0.0)
        room = np.full(top.shape, math.inf)
        np.log2(np.divide(self.limit, top, out=room, where=top > 0), out=room, where=top > 0)
        return np.where(self.nonfinite.any(1), -math.inf, room)


def amax_by_step(
    source: Source, *, to: Cast | Format | str = "float16", scale: float = 1.0, **selection: Any
) -> AmaxByStep:
    """Return the largest magnitude of each tensor at each step.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> run = {"layer": {0: np.float32([1, -3]), 5: np.float32([60000, np.inf])}}
    >>> found = compute.amax_by_step(run, to="fp16")
    >>> found.amax.tolist(), found.nonfinite.tolist(), found.limit
    ([[3.0, 60000.0]], [[False, True]], 65504.0)

    scale: the power of two that the values would be multiplied by before the cast. A Tally has no
    amax: an InputError says what to give. selection: name=, kind=, step= of a Trace, whose
    gradients are taken without the loss scale that they were recorded times unless unscaled=False.
    """
    exponent_of(scale)
    why = "its scales go with the numbers, so it has no largest value to draw; give a format"
    cast = check_cast("amax_by_step", to, why)
    found: dict[tuple[str, str], dict[int, tuple[float, bool]]] = {}
    unscaled = False
    for cell in cells(source, **selection):
        steps = found.setdefault((cell.name, cell.kind), {})
        amax, other = steps.get(cell.step, (math.nan, False))
        if cell.moments.count:
            amax = max(cell.moments.amax / cell.loss_scale, 0.0 if math.isnan(amax) else amax)
        steps[cell.step] = (amax, other or cell.nonfinite)
        unscaled |= cell.scaled
    columns = sorted({step for steps in found.values() for step in steps})
    table = [
        [steps.get(column, (math.nan, False)) for column in columns] for steps in found.values()
    ]
    amax_table = np.array([[amax for amax, _ in row] for row in table], np.float64)
    others = np.array([[other for _, other in row] for row in table], np.bool)
    shape = len(found), len(columns)
    for array in (amax_table, others):
        array.setflags(write=False)
    return AmaxByStep(
        row_labels(found),
        tuple(columns),
        amax_table.reshape(shape),
        others.reshape(shape),
        str(cast),
        cast.format.max / scale,
        float(scale),
        unscaled,
    )
