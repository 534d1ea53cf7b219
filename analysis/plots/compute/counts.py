"""Counts: read-only integer arrays, their shares, and what plots agree on."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fpemu.errors import InputError

__all__ = ["FORMATS", "Counts", "Shares", "check_count", "divide", "freeze"]

Counts: TypeAlias = npt.NDArray[np.int64]
Shares: TypeAlias = npt.NDArray[np.float64]

#: What a plot compares unless told otherwise.
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def freeze(rows: Any, width: int | None = None) -> Counts:
    """Return read-only int64 counts, of `width` columns even if there is no row."""
    array = np.array(rows, np.int64)
    array = array if width is None else array.reshape(-1, width)
    array.setflags(write=False)
    return array


def divide(part: Counts, whole: Counts) -> Shares:
    share = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    np.divide(part, whole, out=share, where=whole > 0)
    return share


def check_count(value: Any, what: str) -> int:
    """Return a positive integer, or refuse it."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0:
        return int(value)
    raise InputError(f"{what}={value!r}: must be an integer from 1 on")
