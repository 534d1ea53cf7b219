"""Memory: what tensors take in the formats advised, beside float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fpemu.analysis.advice.rows import MemoryRow
from fpemu.analysis.records import KINDS

if TYPE_CHECKING:
    from fpemu.analysis.totals import Total

__all__ = ["bytes_of", "elements", "memory_rows"]


def elements(total: Total) -> int:
    """Return how many numbers a tensor has: those of its shape, once however often recorded."""
    return math.prod(total.shape)


def bytes_of(count: int, bits: float) -> int:
    """Return the bytes of so many numbers, packed; scales beside them only if `bits` has them."""
    return math.ceil(count * bits / 8)


def memory_rows(
    totals: Iterable[Total], bits: Mapping[tuple[str, str], tuple[str, float]], *, master: bool
) -> tuple[MemoryRow, ...]:
    """Return a row for each kind and format, and one for all.

    bits: (name, kind) -> (format, bits); tensors that are not there are float32, and updates,
    which nobody stores, are left out. master: whether narrow weights have a float32 copy.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for total in totals:
        if total.kind == "update":
            continue
        form, width = bits.get((total.name, total.kind), ("float32", 32))
        count = elements(total)
        _add(sums, (total.kind, form), bytes_of(count, width), 4 * count)
        if master and total.kind == "weight" and width < 32:
            _add(sums, ("master_weight", "float32"), 4 * count, 0)
    if not sums:
        return ()
    order = {kind: place for place, kind in enumerate((*KINDS, "master_weight"))}
    keys = sorted(sums, key=lambda key: order[key[0]])
    rows = [MemoryRow(kind, form, *sums[kind, form]) for kind, form in keys]
    whole = MemoryRow("model", "", sum(r.bytes for r in rows), sum(r.float32_bytes for r in rows))
    return (*rows, whole)


def _add(
    sums: dict[tuple[str, str], list[int]], key: tuple[str, str], size: int, wide: int
) -> None:
    there = sums.setdefault(key, [0, 0])
    there[0] += size
    there[1] += wide
