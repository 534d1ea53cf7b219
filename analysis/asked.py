"""Asked: what a question may be asked about, read into lists: one is as good as a list of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["casts", "known", "own_cast", "several"]


def several(what: str, asked: Any, *single: type) -> list[Any]:
    """Return what was asked for as a list; a value of one of the types `single` is one.

    >>> from fpemu.analysis.asked import several
    >>> several("kinds", "weight", str), several("kinds", ("weight", "update"), str)
    (['weight'], ['weight', 'update'])
    """
    if isinstance(asked, single):
        return [asked]
    if not isinstance(asked, Iterable):
        raise InputError(f"{what} {asked!r}: give one or a list of them")
    return list(asked)


def casts(formats: str | Format | Cast | Iterable[str | Format | Cast]) -> list[Cast]:
    """Return Casts, each once; two that print alike are refused: rows name a Cast by its text."""
    made = dict.fromkeys(map(make_cast, several("formats", formats, str, Format, Cast)))
    texts: set[str] = set()
    for cast in made:
        if str(cast) in texts:
            raise InputError(
                f"two different casts are both called {str(cast)!r}: rename one of their formats"
            )
        texts.add(str(cast))
    return list(made)


def own_cast(trace: Trace) -> Cast:
    """Return the cast that a trace was recorded for: its metadata "to", else float16.

    >>> from fpemu.analysis.asked import own_cast
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.metadata["to"] = "e4m3fn"
    >>> str(own_cast(trace)), str(own_cast(Trace()))
    ('float8_e4m3fn', 'float16')
    """
    to = trace.metadata.get("to") or "float16"
    return Cast.from_json(to) if isinstance(to, Mapping) else make_cast(to)


def known(
    what: str, asked: str | Iterable[str] | None, recorded: Iterable[str], trace: str | None
) -> set[str]:
    """Return the names asked for (None: all), each checked against the recorded ones.

    what: "name" or "kind"; trace: the path of the trace, None in memory.
    """
    there = list(recorded)
    names = there if asked is None else several(f"{what}s", asked, str)
    for name in names:
        if name not in there:
            hint = did_you_mean(str(name), there)
            raise InputError(
                f"{what} {name!r} is not in trace {trace or 'in memory'!r}; {hint}"
                f"recorded: {', '.join(there[:20]) or 'nothing'}"
            )
    return set(names)
