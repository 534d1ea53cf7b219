"""Sentences: the answer first, then what to do and why, each line from rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fpemu.analysis.advice.lost_updates import LIMIT_PERCENT
from fpemu.analysis.advice.rows import (
    Choice,
    Keep,
    LayerAdvice,
    Line,
    MemoryRow,
    UpdateAdvice,
)
from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.report.numbers import (
    count,
    interval,
    number,
    plain,
    power,
    scale_words,
    share,
    shorten,
)

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.scales import SafeScales

__all__ = ["headline", "lines"]


def headline(
    status: str, wanted: Target, keep: Sequence[Keep], scales: int, loss_scale: float
) -> str:
    """Return the advice in one sentence; scales: how many casts have one of their own."""
    if status == "no_data":
        return f"No advice on {wanted}: the trace holds no values that training would round."
    if status == "broken":
        return (
            "The run was broken as it was recorded: NaN or infinite values are in it, which no "
            "format and no scale mends."
        )
    if status == "safe":
        return f"{wanted} is safe for this run as it is: change nothing."
    if status == "safe_with_loss_scale":
        return f"{wanted} is safe for this run with a loss scale of {scale_words(loss_scale)}."
    parts = []
    if loss_scale != 1.0:
        parts.append(f"a loss scale of {scale_words(loss_scale)}")
    if scales:
        parts.append(f"scales of their own for {_many(scales, 'tensor')}")
    if keep:
        parts.append(f"{_many(len(keep), 'layer')} kept in another format ({_names(keep)})")
    return f"{wanted} needs {_list(parts)}."


def lines(
    status: str,
    wanted: Target,
    tolerance: float,
    keep: Sequence[Keep],
    layers: Sequence[LayerAdvice],
    loss_scale: SafeScales | None,
    scale: float,
    updates: Sequence[UpdateAdvice],
    memory: Sequence[MemoryRow],
    choices: Sequence[Choice],
    goal: float | None,
) -> tuple[Line, ...]:
    """Return the lines of an advice, by rank."""
    if status == "no_data":
        return ()
    limit = share(100 * tolerance)
    found = [
        *_verdict(status, wanted, limit),
        *_loss_scale(loss_scale, scale, limit, bool(keep)),
        *_keep(keep),
        *_scales(layers, limit),
        *_search(choices, goal),
        *_updates(updates),
        *_memory(memory),
        *_range(status),
    ]
    return tuple(sorted(found, key=lambda line: line.rank))


def _range(status: str) -> Iterator[Line]:
    if status != "broken":
        yield Line(
            "range",
            "Record more steps, or advise again, once the run has gone on.",
            "the advice speaks of the recorded steps: gradients shrink and weights grow",
            6,
        )


def _search(choices: Sequence[Choice], goal: float | None) -> Iterator[Line]:
    picked = next((one for one in choices if one.chosen), None)
    if picked is None:
        return
    ran = [one for one in choices if one.measured is not None]
    if goal is not None and picked.memory_bytes > goal:
        yield Line(
            "search",
            f"The memory goal of {count(int(goal))} bytes cannot be reached: the formats allowed "
            f"take at least {count(picked.memory_bytes)}.",
            "every layer is in the smallest format that it may have",
            3,
        )
    elif goal is not None:
        yield Line(
            "search",
            f"Within {count(int(goal))} bytes, take {count(picked.memory_bytes)}.",
            f"of the assignments found that fit it does the least damage, {picked.damage:.2g}",
            3,
        )
    if ran and picked.measured is not None:
        yield Line(
            "search",
            f"Of {_many(len(ran), 'assignment')} that were run, take the one that came to "
            f"{number(picked.measured)}.",
            "the best that was measured, the others up to "
            f"{number(max(one.measured or 0.0 for one in ran))}",
            3,
        )


def _verdict(status: str, wanted: Target, limit: str) -> Iterator[Line]:
    if status == "safe" and isinstance(wanted, ByRecipe):
        yield Line(
            "verdict",
            f"Nothing needs to change for {wanted}: no layer kept.",
            f"no recorded value overflows and each tensor keeps {rule_of_recipes()}",
            0,
        )
    elif status == "safe":
        yield Line(
            "verdict",
            f"Nothing needs to change for {wanted}: no loss scale, no layer kept.",
            f"no recorded value overflows and no tensor loses more than {limit} of its non-zero "
            "values at scale 1",
            0,
        )
    elif status == "broken":
        yield Line(
            "verdict",
            "Find where the first NaN or infinity came from: see the report's first cause.",
            "values that are not finite as recorded stay so in any format",
            0,
        )


def _loss_scale(safe: SafeScales | None, scale: float, limit: str, kept: bool) -> Iterator[Line]:
    if safe is None or scale == 1.0:
        return
    whose = " without the layers kept" if kept else ""
    yield Line(
        "loss_scale",
        f"Multiply the loss by {scale_words(scale)}, and divide the gradients by it in float32 "
        f"before the update. Safe loss scales{whose}: {interval(safe)}.",
        f"without it gradients lose more than {limit} of their non-zero values, and at the middle "
        "of the safe scales they are as far from underflow as from overflow",
        1,
    )


def _keep(keep: Sequence[Keep]) -> Iterator[Line]:
    for one in keep[:5]:
        text = f"Keep layer {shorten(plain(one.layer), 64)} in {one.to}."
        yield Line("keep", text, plain(one.reason), 2)
    if len(keep) > 5:
        rest = keep[5:]
        yield Line(
            "keep",
            f"Keep {_many(len(rest), 'more layer')} out of {rest[0].wanted}: see the list.",
            f"each would be damaged less than those above, {keep[4].damage:.2g} or less",
            2,
        )


def _scales(layers: Sequence[LayerAdvice], limit: str) -> Iterator[Line]:
    own = [row for row in layers if _own(row)]
    if not own:
        return
    row = max(own, key=lambda row: sum(abs(math.log2(scale)) for scale in _own(row).values()))
    named = _list([f"{what} by {power(scale)}" for what, scale in _own(row).items()])
    yield Line(
        "scales",
        f"Multiply the tensors of {_many(len(own), 'layer')} by powers of two of their own before "
        f"they are rounded: of {shorten(plain(row.layer))}, {named}.",
        f"so few bits hold few binades: at its scale each tensor loses at most {limit}, with a "
        "binade to spare at either end where that can be had, and its error is least",
        3,
    )


def _own(row: LayerAdvice) -> dict[str, float]:
    form = "" if row.gradient_to == row.to else f", in {plain(row.gradient_to)},"
    scales = {"what it reads": row.activation_scale, "its weights": row.weight_scale,
              f"the gradients of its results{form}": row.gradient_scale}  # fmt: skip
    return {what: scale for what, scale in scales.items() if scale != 1.0}


def _updates(updates: Sequence[UpdateAdvice]) -> Iterator[Line]:
    for form in dict.fromkeys(row.format for row in updates):
        rows = [row for row in updates if row.format == form]
        bad = [row for row in rows if row.lost_percent > LIMIT_PERCENT]
        if not bad:
            continue
        worst = max(bad, key=lambda row: row.lost_percent)
        how = "estimated from the histograms" if worst.estimated else "counted"
        yield Line(
            "updates",
            f"Do not hold the weights in {form} alone: use {worst.advice}.",
            f"{_many(len(bad), 'weight')} of {len(rows)} would lose more than "
            f"{share(LIMIT_PERCENT)} of their updates to rounding to nearest ({how}); worst, "
            f"{shorten(plain(worst.name))}: {share(worst.lost_percent)}. Stochastic "
            f"rounding would leave {share(worst.lost_stochastic_percent)} undone, but take larger "
            "steps with the others, so that the mean is right",
            4,
        )


def _memory(memory: Sequence[MemoryRow]) -> Iterator[Line]:
    if not memory or memory[-1].bytes >= memory[-1].float32_bytes:
        return
    whole = memory[-1]
    master = sum(row.bytes for row in memory if row.kind == "master_weight")
    among = f", {count(master)} of them for float32 master weights" if master else ""
    yield Line(
        "memory",
        f"What was recorded then takes {count(whole.bytes)} bytes{among}.",
        f"in float32 it takes {count(whole.float32_bytes)}: "
        f"{whole.float32_bytes / max(whole.bytes, 1):.3g} times as much",
        5,
    )


def _many(n: int, what: str) -> str:
    return f"{count(n)} {what}{'s' * (n != 1)}"


def _names(keep: Sequence[Keep]) -> str:
    named = [f"{shorten(plain(one.layer))} in {one.to}" for one in keep[:2]]
    return ", ".join([*named, "..."] if len(keep) > 2 else named)


def _list(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
