"""Lost updates: whether a weight can be held in a narrow format and still learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.advice.fits import FLOAT32
from fpemu.analysis.advice.rows import UpdateAdvice
from fpemu.analysis.totals import add_to
from fpemu.analysis.updates import UpdateTally
from fpemu.cast import Cast
from fpemu.tallies import Tally

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.totals import Total
    from fpemu.analysis.trace import Trace
    from fpemu.format import Format

__all__ = ["LIMIT_PERCENT", "MASTER", "STOCHASTIC", "update_rows"]

Array = np.ndarray[Any, Any]

#: Updates that a weight may lose and still be held in a format without more ado.
LIMIT_PERCENT = 1.0

#: Below this chance that a draw changes a weight at all, its updates come as rare, large jumps.
_RARE_PERCENT = 99.0

STOCHASTIC = "stochastic rounding, or a float32 master copy"
MASTER = "a float32 master copy"
_FINE = "can be held in it"


def update_rows(
    trace: Trace, totals: Mapping[tuple[str, str], Total], formats: Iterable[Target]
) -> tuple[UpdateAdvice, ...]:
    """Return what each format asked for would do to the updates of each weight held in it.

    Nobody holds the weights that are trained in a recipe.
    """
    counted: dict[str, UpdateTally] = {}
    for one in trace.counted("updates"):
        add_to(counted, one.name, one.value)
    casts = [cast for cast in formats if isinstance(cast, Cast) and cast != FLOAT32]
    forms = [cast.format for cast in casts if cast.format.signed]
    names = [name for name, kind in totals if kind == "update"]
    return tuple(row for name in dict.fromkeys((*names, *counted))
                 for row in _rows(name, counted.get(name), totals, forms))  # fmt: skip


def _rows(
    name: str,
    counted: UpdateTally | None,
    totals: Mapping[tuple[str, str], Total],
    forms: Sequence[Format],
) -> Iterator[UpdateAdvice]:
    weight, update = totals.get((name, "weight")), totals.get((name, "update"))
    for form in forms:
        if counted is not None and form.name in counted.formats:
            lost = counted.lost_percent(form.name)
            drawn, estimated = counted.lost_stochastic_percent(form.name), False
        elif weight is not None and update is not None:
            lost, drawn = _estimate(weight, update, form)
            estimated = True
        else:
            continue
        yield UpdateAdvice(name, form.name, lost, drawn, _advice(lost, drawn), estimated)


def _advice(lost: float, drawn: float) -> str:
    if lost <= LIMIT_PERCENT:
        return _FINE
    return STOCHASTIC if drawn <= _RARE_PERCENT else MASTER


def _estimate(weight: Total, update: Total, form: Format) -> tuple[float, float]:
    """Percent lost to nearest and to stochastic rounding, as if each update met each weight.

    The histograms do not say which update belongs to which weight; they are taken as independent.
    Within a binade, updates are spread evenly.
    """
    weights, updates = _binades(weight), _binades(update)
    zeros = sum(tally.zero for tally in weight.parts.by_exponent.values())
    some, moves = sum(weights.values()) + zeros, sum(updates.values())
    if not some or not moves:
        return 0.0, 0.0
    lost = drawn = 0.0
    gaps: dict[int, float] = {form.emin - form.mantissa_bits: float(zeros)}
    for exponent, count in weights.items():
        add_to(gaps, max(exponent, form.emin) - form.mantissa_bits, float(count))
    for gap, held in gaps.items():
        for exponent, count in updates.items():
            share = held / some * count / moves
            lost += share * (exponent < gap - 1)
            drawn += share * (1.0 - min(1.0, 1.5 * 2.0 ** (exponent - gap)))
    return 100.0 * lost, 100.0 * drawn


def _binades(total: Total) -> dict[int, int]:
    """How many finite non-zero values have floor(log2|x|) = k."""
    found: dict[int, int] = {}
    for exponent, tally in total.parts.by_exponent.items():
        shift = exponent + Tally.EXPONENTS.start
        counts = tally.exponents()
        for row in np.flatnonzero(counts):
            add_to(found, int(row) + shift, int(counts[row]))
    return found
