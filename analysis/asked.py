"""Asked: what a question may be asked about, read into lists: one is as good as a list of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fpemu.analysis.by_recipe import ByRecipe, Target, check_cast, target
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["Asked", "casts", "known", "own_cast", "several", "targets"]

#: What may be asked about: names or texts of formats and recipes, or records of them.
Asked: TypeAlias = str | Format | Cast | Recipe | ByRecipe


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
    why = "its scales depend on the numbers, block by block; give formats"
    asked = several("formats", formats, str, Format, Cast, Recipe, ByRecipe)
    return _apart([check_cast("formats", one, why) for one in asked])


def targets(formats: Asked | Iterable[Asked]) -> list[Target]:
    """Return Casts and recipes, each once, as `casts`.

    >>> from fpemu.analysis.asked import targets
    >>> [str(one) for one in targets(["bf16", "mxfp8", "bfloat16"])]
    ['bfloat16', 'mxfp8']
    """
    return _apart(map(target, several("formats", formats, str, Format, Cast, Recipe, ByRecipe)))


_One = TypeVar("_One", bound=Target)


def _apart(made: Iterable[_One]) -> list[_One]:
    """Each once; two that print alike are refused."""
    found: dict[str, _One] = {}
    for one in made:
        if found.setdefault(str(one), one) != one:
            what = "casts" if isinstance(one, Cast) else "recipes"
            raise InputError(
                f"two different {what} are both called {str(one)!r}: rename one of their formats"
                if what == "casts" else f"two different {what} are both called {str(one)!r}"
            )
    return list(found.values())


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
