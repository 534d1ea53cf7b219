"""Held: which of two formats a layer has, and how long its statistics have asked for the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fpemu.analysis.schedule.lines import Line

__all__ = ["Held", "Seen"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A statistic of one tensor at one step, with the line that it is measured by."""

    line: Line
    value: float  #: in percent
    tensor: str
    kind: str  #: the tensor's, one of `fpemu.analysis.trace.KINDS`

    @property
    def side(self) -> int:
        """Where the value lies: -1, 0 or 1, see `Line.side`."""
        return self.line.side(self.value)


@dataclass(frozen=True, slots=True)
class Held:
    """A layer's state; `after` gives the next.

    >>> from fpemu.analysis.schedule.held import Held, Seen
    >>> from fpemu.analysis.schedule.lines import Line
    >>> line, held, formats = Line("lost_percent", down=0.1, up=1.0), Held(), []
    >>> for value in (0.0, 0.5, 0.0, 0.0, 0.5, 3.0):
    ...     held = held.after([Seen(line, value, "fc1", "weight")], patience=2)
    ...     formats.append("narrow" if held.narrow else "wide")
    >>> formats
    ['wide', 'wide', 'wide', 'narrow', 'narrow', 'wide']
    """

    narrow: bool = False
    calm: int = 0  #: observed steps in a row with every statistic at or below its line's `down`
    loud: int = 0  #: observed steps in a row with some statistic above its line's `up`

    def after(self, seen: Iterable[Seen], patience: int = 1, patience_up: int = 1) -> Held:
        """Return the state after one more observed step; without statistics, the same."""
        sides = [one.side for one in seen]
        if not sides:
            return self
        calm = self.calm + 1 if all(side < 0 for side in sides) else 0
        loud = self.loud + 1 if any(side > 0 for side in sides) else 0
        crossed = loud >= patience_up if self.narrow else calm >= patience
        if crossed:
            return Held(not self.narrow)
        return replace(self, calm=calm, loud=loud)
