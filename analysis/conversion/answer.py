"""Answer: what a conversion comes to, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.report.numbers import count, decibels
from fpemu.analysis.shown import plain, shorten

if TYPE_CHECKING:
    from fpemu.analysis.conversion.result import Converted
    from fpemu.analysis.conversion.rows import TensorRow

__all__ = ["ratio", "sentences"]


def ratio(sqnr: float) -> str:
    """Return a signal-to-noise ratio as people read it.

    >>> from fpemu.analysis.conversion.answer import ratio
    >>> ratio(31.42), ratio(float("inf"))
    ('31.4 dB', 'exact')
    """
    return "exact" if sqnr == math.inf else decibels(sqnr)


def sentences(done: Converted) -> Iterator[str]:
    """Yield the answer: what is left, what broke, what else became of tensors."""
    if not done.tensors:
        yield f"No tensor was converted; {_tensors(len(done.kept))} copied as they are."
        return
    found, worst = done.total, done.worst[0]
    what = "codes and scales" if done.codes else "values"
    most = f", {ratio(worst.measured.sqnr)} in the worst ({_name(worst)})"
    yield (
        f"{_tensors(len(done.tensors))} written as {what} of {shorten(plain(done.to), 60)}: "
        f"{ratio(found.sqnr)} signal to noise{most if len(done.tensors) > 1 else ''}; "
        f"{size(done.octets)} before, {size(done.to_octets)} after."
    )
    if found.broken:
        rows = [row for row in done.worst if row.measured.broken]
        yield (
            f"{_values(found.broken, 'finite ')} became infinite or NaN, in "
            f"{_tensors(len(rows))}: {', '.join(map(_name, rows[:3]))}."
        )
    if found.nonfinite:
        were = "was" if found.nonfinite == 1 else "were"
        yield f"{_values(found.nonfinite)} {were} infinite or NaN already: not measured."
    if widened := [row for row in done.tensors if row.widened]:
        dtypes = ", ".join(dict.fromkeys(plain(row.dtype) for row in widened))
        yield (
            f"{_tensors(len(widened))} of {dtypes} became F32, as {dtypes} does not hold every "
            "result exactly (--inexact)."
        )
    if again := [row for row in done.tensors if row.rounded_again]:
        yield f"{_tensors(len(again))} rounded a second time, to the dtype, as asked for."


def _name(row: TensorRow) -> str:
    return shorten(plain(row.name))


def _values(n: int, sort: str = "") -> str:
    return f"{count(n)} {sort}value{'s' * (n != 1)}"


def _tensors(n: int) -> str:
    return f"{count(n)} tensor{'s' * (n != 1)}"
