"""Decisions: when a layer's format was changed, and for which statistic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fpemu.analysis.schedule.lines import STATISTICS
from fpemu.errors import InputError

__all__ = ["Decision", "from_json", "to_json"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One change of one layer's format.

    >>> from fpemu.analysis.schedule import Decision
    >>> Decision(40, "fc1", "lost_percent", 2.5, 1.0, "float8_e4m3fn", "float32", "fc1.weight",
    ...          "weight", 41).to_json()["after"]
    'float32'
    """

    step: int  #: the recorded step whose statistics decided
    layer: str  #: the module's name
    statistic: str  #: one of `schedule.STATISTICS`
    value: float  #: in percent, of the worst tensor
    line: float  #: what it was measured against: at or below it to go down, above it to go up
    before: str  #: the format until then
    after: str  #: the format from then on
    tensor: str  #: the name of the worst tensor
    kind: str  #: its kind
    first_step: int  #: the emulation's step from which the new format holds

    def to_json(self) -> dict[str, Any]:
        """Return the decision as a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Decision:
        """Make a Decision from `to_json`'s dict."""
        names = [field.name for field in fields(cls)]
        if not isinstance(facts, Mapping) or sorted(map(str, facts)) != sorted(names):
            raise InputError(
                f"decision facts {repr(facts)[:80]}: must be a dict of {', '.join(names)}"
            )
        if facts["statistic"] not in STATISTICS:
            raise InputError(
                f"decision statistic {facts['statistic']!r:.80}: known are {', '.join(STATISTICS)}"
            )
        return cls(**facts)


def to_json(log: Iterable[Decision]) -> str:
    """Return a log as JSON text, one decision a line.

    >>> from fpemu.analysis.schedule import decisions
    >>> decisions.from_json(decisions.to_json([])) == ()
    True
    """
    lines = ",\n".join(json.dumps(decision.to_json()) for decision in log)
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def from_json(text: str) -> tuple[Decision, ...]:
    """Return the log that `to_json` wrote."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"log of decisions {text!r:.40}: is no JSON ({error})") from None
    if not isinstance(found, list):
        raise InputError(f"log of decisions {text!r:.40}: must be a list, as to_json gives it")
    return tuple(map(Decision.from_json, found))
