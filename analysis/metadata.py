"""Metadata: the facts of a run that a trace carries, and where it came from."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.records import check_name, json_text
from fpemu.errors import InputError, TraceError

__all__ = ["READ_BY_PRODUCTS", "Metadata", "start"]

#: Where `watch` notes what each matrix product was given: its result's name -> the names of
#: activations, "" for a tensor that is none, such as the model's own input.
READ_BY_PRODUCTS = "read_by_products"


class Metadata(MutableMapping[str, Any]):
    """A dict of text to JSON values that hands each change on to its trace.

    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace(metadata={"seed": 1})
    >>> trace.metadata["to"] = "e4m3fn"
    >>> trace.metadata["seed"], trace.metadata["to"], "versions" in trace.metadata
    (1, 'e4m3fn', True)

    A value that is read is a copy: to change what lies inside it, set the whole value again.
    Values that JSON cannot hold raise InputError; tuples come back as lists, numpy numbers as
    Python's; NaN and infinities are kept (as Python's json writes them).
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        change: Callable[[dict[str, str], str, str | None], None],
    ) -> None:
        self._texts = dict(texts)
        self._change = change  # under the lock of the trace, for any thread

    def __getitem__(self, key: str) -> Any:
        try:
            return json.loads(self._texts[key])
        except ValueError as error:
            raise TraceError(
                f"metadata {key!r} is damaged ({error}): the file was changed after it was "
                "written; restore it from a copy"
            ) from error

    def __setitem__(self, key: str, value: Any) -> None:
        self._change(self._texts, key, _text(key, value))

    def __delitem__(self, key: str) -> None:
        if key not in self._texts:
            raise KeyError(key)
        self._change(self._texts, key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._texts))

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return repr(dict(self))


def start(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return a new trace's metadata as JSON texts: what is known of every run, and what is given.

    Known are the versions of fpemu, numpy and Python, the date (UTC, ISO 8601) and the command.
    """
    if not isinstance(metadata, Mapping | None):
        raise InputError(f"metadata {metadata!r:.80}: must be a dict, such as {{'seed': 1}}")
    known = {
        "versions": {
            "fpemu": fpemu.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
    }
    return {key: _text(key, value) for key, value in (known | dict(metadata or {})).items()}


def _text(key: str, value: Any) -> str:
    return json_text(value, f"metadata {check_name(key, 'metadata key')!r}")
