"""What the rows of all sections share: how a row is named, and how it becomes JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fpemu.analysis.report.numbers import kind_words

__all__ = ["json_value", "label", "record_json"]


def label(name: str, kind: str) -> str:
    """Return name and kind, as sentences name a tensor."""
    return f"{name} ({kind_words(kind)})"


def record_json(record: Any) -> dict[str, Any]:
    """A record's fields; a number that JSON cannot hold is null."""
    return {field.name: json_value(getattr(record, field.name)) for field in fields(record)}


def json_value(value: Any) -> Any:
    """A value as JSON holds it: no NaN, no infinity, no tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple | list):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    return value.to_json() if hasattr(value, "to_json") else value
