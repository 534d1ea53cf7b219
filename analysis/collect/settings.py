"""Settings: what of a training run is watched, checked once."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.analysis.asked import several
from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.records import KINDS, check_kind
from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.scaling.catalog import find_recipe
from fpemu.scaling.recipe import Recipe
from fpemu.scaling.tally import recipe_tally

__all__ = ["STOPS", "Settings", "read_settings"]

#: What `stop_on` may name -> what of a first cause it stands for.
STOPS = {"overflow": ("inf", "overflow", "saturated"), "nan": ("nan",)}

_TENSORS = ("all", "matmul")
_UNSUPPORTED = ("raise", "skip")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is recorded, at which steps, and what is looked out for."""

    every: int
    kinds: frozenset[str]
    matmul: bool  #: only what matrix products take, and the gradients of what they give
    to: Cast | None
    stop_on: frozenset[str]  #: of first_cause.WHATS
    lead_up: int
    skip: tuple[str, ...]  #: patterns of names
    skip_unsupported: bool
    evaluation: bool
    blocks: int | None  #: numbers that share a scale, along the last axis; None: not counted
    recipes: tuple[Recipe, ...]  #: counted along the last axis

    def skipped(self, name: str) -> bool:
        """Whether a name was asked to be left out."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.skip)

    def recorded(self, step: int) -> bool:
        """Whether a step is one of those recorded."""
        return step % self.every == 0


def read_settings(
    *,
    every: int,
    kinds: str | Iterable[str] | None,
    tensors: str,
    to: str | Format | Cast | None,
    stop_on: str | Iterable[str],
    lead_up: int,
    skip: str | Iterable[str],
    unsupported: str,
    evaluation: bool,
    blocks: int | None,
    recipes: str | Recipe | Iterable[str | Recipe],
) -> Settings:
    """Return the settings that a caller asked for, or an InputError."""
    stops = several("stop_on", stop_on, str) if stop_on else []
    for stop in stops:
        _choice("stop_on", stop, tuple(STOPS))
    return Settings(
        every=_count("every", every, 1),
        kinds=frozenset(KINDS if kinds is None else _kinds(kinds)),
        matmul=_choice("tensors", tensors, _TENSORS) == "matmul",
        to=None if to is None else _cast(to),
        stop_on=frozenset(what for stop in stops for what in STOPS[stop]),
        lead_up=_count("lead_up", lead_up, 0),
        skip=_patterns(skip),
        skip_unsupported=_choice("unsupported", unsupported, _UNSUPPORTED) == "skip",
        evaluation=_flag("evaluation", evaluation),
        blocks=None if blocks is None else _count("blocks", blocks, 1),
        recipes=_recipes(recipes),
    )


def _cast(to: Any) -> Cast:
    return check_cast("to", to, "count it with recipes=, and give a format to look out for")


def _recipes(recipes: Any) -> tuple[Recipe, ...]:
    """Recipes, each once, whatever its name."""
    found: dict[str, Recipe] = {}
    for one in map(find_recipe, several("recipes", recipes, str, Recipe)):
        if one.rotation is not None:
            raise InputError(
                f"recipes: {one.name!r:.60} rotates groups of {one.rotation.size} numbers, into "
                "which not every tensor of a run can be cut; count it of your arrays with "
                "fpemu.scaling.tally.recipe_tally"
            )
        recipe_tally(np.zeros((1, 1), np.float32), one)  # what cannot be counted is refused here
        found.setdefault(str(one), one)
    return tuple(found.values())


def _kinds(kinds: str | Iterable[str]) -> list[str]:
    asked = [check_kind(kind) for kind in several("kinds", kinds, str)]
    if not asked:
        raise InputError(f"kinds={kinds!r}: names no kind; give one at least, or None for all")
    return asked


def _patterns(skip: Any) -> tuple[str, ...]:
    patterns = several("skip", skip, str)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InputError(f"skip={pattern!r:.40}: must be text, such as '*.norm*'")
    return tuple(patterns)


def _flag(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what}={value!r:.40}: must be True or False")
    return value


def _choice(what: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise InputError(f"{what}={value!r}: {hint}give one of {', '.join(choices)}")
    return str(value)


def _count(what: str, value: Any, least: int) -> int:
    most = sys.maxsize
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what}={value!r:.40}: must be an int from {least} to {most}")
    return value
