"""How large updates are beside their weights, and what share of them a format loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fpemu.analysis.plots.compute.counts import Counts, Shares, freeze
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import UpdateTally, update_tally
from fpemu.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["UpdateRatio", "Updates", "update_ratio"]

#: A trace that counted its updates, the counts of some, or weights with their updates by name.
Updates: TypeAlias = (
    "Trace | UpdateTally | Mapping[str, UpdateTally | tuple[npt.ArrayLike, npt.ArrayLike]]"
)


_NONE = UpdateTally(0, 0, 0, (), (), (), 0, ())


@dataclass(frozen=True, eq=False)
class UpdateRatio:
    """|update| / |weight| by power of two, and what formats of the weight lose of the updates."""

    binades: range  #: of the columns: binade k holds 2^k <= |update| / |weight| < 2^(k + 1)
    counts: Counts = field(repr=False)  #: [binade]
    changed: int  #: updates that are not 0: all shares are of these
    zero: int  #: updates that are 0
    nonfinite: int  #: of a weight or an update that is not finite
    formats: tuple[str, ...]
    lost: tuple[float, ...]  #: by format, % of the updates lost with rounding to nearest
    lost_stochastic: tuple[float, ...]  #: the same with stochastic rounding, expected

    @property
    def share(self) -> Shares:
        """Fraction of the updates that are not 0; those of weights that are 0 are in no bin."""
        return self.counts / max(self.changed, 1)


def update_ratio(source: Updates, **selection: Any) -> UpdateRatio:
    """Count updates by their size beside their weight.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> weight = np.full(4, 0.5, np.float32)
    >>> found = compute.update_ratio({"fc1": (weight, weight * np.float32(2.0**-10))})
    >>> found.binades, found.counts.tolist(), dict(zip(found.formats, found.lost))["bfloat16"]
    (range(-10, -9), [4], 100.0)

    source: a Trace whose updates were counted, as `watch` does where it records updates; an
    UpdateTally; a dict of them, or of (weight, update), two float32 arrays of one shape.
    selection: name=, step= of a Trace. Lost: round(w + dw) == w though dw is not 0, w being the
    weight in that format; exact counts, while the ratio is only a guide.
    """
    tallies = list(_tallies(source, selection))
    total = sum(tallies[1:], tallies[0]) if tallies else _NONE
    low = total.low_ratio
    return UpdateRatio(
        range(low, low + len(total.ratios)),
        freeze(total.ratios),
        total.changed,
        total.total - total.changed - total.nonfinite,
        total.nonfinite,
        total.formats,
        tuple(total.lost_percent(form) for form in total.formats),
        tuple(total.lost_stochastic_percent(form) for form in total.formats),
    )


def _tallies(source: Any, selection: Mapping[str, Any]) -> Iterator[UpdateTally]:
    if isinstance(source, Trace):
        for counted in source.counted("updates", **selection):
            yield counted.value
    elif isinstance(source, UpdateTally):
        yield source
    elif isinstance(source, Mapping):
        for one in source.values():
            yield from _tallies(update_tally(*one) if isinstance(one, tuple) else one, {})
    else:
        raise InputError(
            f"cannot plot the updates of {type(source).__name__}: give a Trace, an UpdateTally, or "
            "a dict of name -> UpdateTally or (weight, update)"
        )
