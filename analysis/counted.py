"""Counted: what a trace keeps of a tensor beside its tally, as mergeable counts by topic."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from fpemu.errors import InputError, TraceError, did_you_mean

__all__ = ["TOPICS", "Counted", "Counts", "check_counts", "check_topic", "key_of", "pack", "unpack"]

#: Topic -> the class of its counts.
TOPICS = {
    "blocks": "fpemu.blocks:BlockTally",
    "recipes": "fpemu.scaling.tally:RecipeTally",
    "updates": "fpemu.analysis.updates:UpdateTally",
}


class Counts(Protocol):
    """Counts that add up: over steps, micro-batches, ranks and files.

    Those of which a tensor may have several at a step, such as one for each recipe, have a `part`
    too: text that tells them apart.
    """

    topic: ClassVar[str]  #: a key of TOPICS

    def __add__(self, other: Any, /) -> Any: ...

    def to_json(self) -> Mapping[str, Any]:
        """Return them as JSON values, from which the class's `from_json` makes them again."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted of one tensor at one step, under one topic."""

    name: str
    kind: str  #: one of `fpemu.analysis.trace.KINDS`
    step: int
    value: Any  #: the topic's counts: a `fpemu.blocks.BlockTally`, ...

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Name, kind, step and `key_of` the value: what tells them apart."""
        return self.name, self.kind, self.step, key_of(self.value)


def key_of(counts: Any) -> str:
    """Return what counts of a tensor are stored under: the topic, and their part of it if any.

    >>> import numpy as np
    >>> from fpemu.analysis.counted import key_of
    >>> from fpemu.blocks import block_tally
    >>> from fpemu.scaling.tally import recipe_tally
    >>> x = np.ones(32, np.float32)
    >>> key_of(block_tally(x)), key_of(recipe_tally(x, "1x8 exponent int8.6"))
    ('blocks', 'recipes/1x8 exponent int8.6')
    """
    part = getattr(counts, "part", "")
    return f"{counts.topic}/{part}" if part else str(counts.topic)


def check_topic(topic: object) -> str:
    """Return a topic that is one of TOPICS, or 'topic/part'."""
    if str(topic).partition("/")[0] not in TOPICS:
        hint = did_you_mean(str(topic), tuple(TOPICS))
        raise InputError(f"unknown topic {topic!r}; {hint}topics: {', '.join(TOPICS)}")
    return str(topic)


def check_counts(counts: Any) -> Any:
    """Return counts of a class that TOPICS knows."""
    topic = getattr(type(counts), "topic", None)
    if topic not in TOPICS or not isinstance(counts, _class_of(topic)):
        known = ", ".join(place.replace(":", ".") for place in TOPICS.values())
        raise InputError(f"{type(counts).__name__} is nothing that a trace counts; give a {known}")
    return counts


def pack(counts: Counts) -> str:
    """Return counts as they are stored."""
    return json.dumps(counts.to_json(), separators=(",", ":"))


def unpack(topic: str, text: str, what: str) -> Any:
    """Return stored counts; `what` names them in an error."""
    try:
        return _class_of(topic).from_json(json.loads(text))
    except Exception as error:  # whatever damaged text does to a decoder
        raise TraceError(
            f"{topic} of {what} are damaged ({error}): the file was changed after it was written; "
            "restore it from a copy"
        ) from error


def _class_of(topic: str) -> Any:
    module, _, name = TOPICS[topic].partition(":")
    return getattr(importlib.import_module(module), name)
