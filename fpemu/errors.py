"""Every error of fpemu, as a tree.

    FpemuError (a ValueError)
    ├── UnknownFormatError   a format, cast or preset name that is not known, or is ambiguous
    ├── FormatError          a Format or Cast whose fields contradict each other
    ├── InputError           an array, code, seed or option that cannot be used
    ├── TraceError           a trace file that is broken, foreign, newer, or cannot be written
    └── MissingExtraError    an optional package is needed (also an ImportError)

Each message is one line: the value, the rule, the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "FormatError",
    "FpemuError",
    "InputError",
    "MissingExtraError",
    "TraceError",
    "UnknownFormatError",
    "did_you_mean",
    "short",
]


class FpemuError(ValueError):
    """Base of all errors that fpemu raises on purpose."""


class UnknownFormatError(FpemuError):
    """A name that no format, alias or preset carries, or that several could mean."""


class FormatError(FpemuError):
    """A Format or Cast whose fields contradict each other or leave float32."""


class InputError(FpemuError):
    """An array, code or option that cannot be used as given."""


class TraceError(FpemuError):
    """A trace file that is broken, foreign, of a newer schema, or cannot be written."""


class MissingExtraError(FpemuError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


def short(value: Any) -> str:
    """A value as a message shows it, in one line, cut where it is long."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**80 else "a huge number"
    text = " ".join(line.strip() for line in text.splitlines())
    return text if len(text) <= 80 else text[:77] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'x'? "`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""
