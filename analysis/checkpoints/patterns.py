"""Patterns: names of tensors chosen as a shell chooses files, each pattern held to fit one."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from fpemu.analysis.asked import several
from fpemu.analysis.shown import plain, shorten
from fpemu.errors import InputError

__all__ = ["Patterns", "clean"]

_NAME_LIMIT = 1000


class Patterns:
    """Patterns that were asked for, and which of them have fitted a name.

    >>> from fpemu.analysis.checkpoints.patterns import Patterns
    >>> asked = Patterns("names", ["*.weight", "*.bias"])
    >>> asked.fits("fc1.weight"), asked.fits("ids")
    (True, False)
    """

    def __init__(self, what: str, patterns: str | Iterable[str]) -> None:
        given = several(what, patterns, str)
        for pattern in given:
            if not isinstance(pattern, str):
                raise InputError(f"{what} {pattern!r:.60}: give patterns, such as '*.weight'")
        self._used = dict.fromkeys(given, False)
        self._seen: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._used)

    def fits(self, name: str) -> bool:
        """Whether a pattern fits a name."""
        if len(self._seen) < 8:
            self._seen.append(name)
        fitting = [pattern for pattern in self._used if fnmatchcase(name, pattern)]
        self._used.update(dict.fromkeys(fitting, True))
        return bool(fitting)

    def check(self) -> None:
        """Refuse a pattern that no name has fitted: it is a slip."""
        for pattern, used in self._used.items():
            if not used and pattern != "*":
                there = ", ".join(map(shorten, self._seen)) or "nothing"
                raise InputError(
                    f"name {shorten(repr(pattern))}: no tensor is called so; there are {there}"
                )


def clean(name: str) -> str:
    """Return a name that a trace can hold and a terminal can show: hostile ones are spelled out."""
    text = shorten(plain(name), _NAME_LIMIT)
    return text if text.strip() else repr(text)
