"""By step: of each tensor at each step what the plots over time need, and nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.plots.compute import AmaxByStep, UnderflowHeatmap
from fpemu.analysis.plots.compute.counts import freeze
from fpemu.analysis.plots.source import row_labels

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.moments import Moments
    from fpemu.tallies import Outcome

__all__ = ["ByStep"]

_MISSING = (0, -1, math.nan, False)


class ByStep:
    """Counts and largest magnitudes by tensor and step, added one after another."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[int, tuple[int, int, float, bool]]] = {}

    def add(
        self, key: tuple[str, str], step: int, outcome: Outcome, moments: Moments, factor: float
    ) -> None:
        """Take one record's outcome in the judged cast, and its moments as recorded."""
        amax = moments.amax * factor if moments.count else math.nan
        self._found.setdefault(key, {})[step] = (
            outcome.underflow, outcome.nonzero, amax, bool(outcome.nan or outcome.inf)
        )  # fmt: skip

    @property
    def steps(self) -> tuple[int, ...]:
        """All steps at which anything was recorded, in order."""
        return tuple(sorted({step for steps in self._found.values() for step in steps}))

    def underflow(self, to: Target) -> UnderflowHeatmap:
        """Return what becomes zero."""
        counts, nonzero = (freeze(self._column(place, np.int64)) for place in (0, 1))
        labels = row_labels(self._found)
        return UnderflowHeatmap(labels, self.steps, counts, nonzero, str(to), 1.0)

    def amax(self, to: Target, unscaled: bool) -> AmaxByStep:
        """Return the largest magnitudes; unscaled: a loss scale was taken out of some.

        A recipe's scales go with them: it has no limit.
        """
        limit = math.inf if isinstance(to, ByRecipe) else to.format.max
        amax, nonfinite = self._column(2, np.float64), self._column(3, np.bool)
        for array in (amax, nonfinite):
            array.flags.writeable = False
        return AmaxByStep(
            row_labels(self._found), self.steps, amax, nonfinite, str(to), limit, 1.0,
            unscaled,
        )  # fmt: skip

    def _column(self, place: int, dtype: Any) -> np.ndarray[Any, Any]:
        steps = self.steps
        rows = [[row.get(step, _MISSING)[place] for step in steps] for row in self._found.values()]
        return np.array(rows, dtype).reshape(len(self._found), len(steps))
