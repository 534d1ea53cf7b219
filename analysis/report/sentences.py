"""The sentences of a verdict, each from rows and each naming the threshold it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.records import GRADIENTS, JUDGED
from fpemu.analysis.report.numbers import (
    count,
    interval,
    kind_words,
    number,
    plain,
    power,
    scale_words,
    share,
    shorten,
)
from fpemu.analysis.report.sections.events import Incident
from fpemu.analysis.report.sections.tensors import TensorRow
from fpemu.analysis.report.sections.what_if import ScaleRow
from fpemu.analysis.report.status import Status
from fpemu.analysis.scales import SafeScales

__all__ = ["Recorded", "headline", "reasons", "worst_of"]


class Recorded(NamedTuple):
    """How a run's gradients were recorded: under which loss scales, and what became of steps."""

    scales: tuple[float, ...] = ()  #: loss scales of the recorded steps, rising; () or (1.0,): none
    steps: int = 0  #: recorded steps
    skipped: int = 0  #: of them, those that a loss scaler skipped
    worst: Incident | None = None  #: the gradient that was not finite at the most of them


def worst_of(rows: Sequence[TensorRow], cast: Target) -> TensorRow:
    """Return the tensor that a verdict names: the one that loses most; by recipe, the noisiest."""
    if isinstance(cast, ByRecipe):
        return min(rows, key=lambda row: row.rank)
    return max(rows, key=lambda row: (not row.safe, row.lost_percent))


def headline(
    status: Status,
    worst: TensorRow,
    first: Incident | None,
    loss_scale: SafeScales | None,
    cast: Target,
    limit: str,
) -> str:
    """Return the verdict in one sentence: the first hard event, else the worst tensor."""
    if status is Status.SAFE and isinstance(cast, ByRecipe):
        return f"{cast} is safe for these values: nothing overflows, and each tensor keeps {limit}."
    if status is Status.SAFE:
        return (
            f"{cast} is safe for these values: nothing overflows and no tensor loses more than "
            f"{limit} of its non-zero values."
        )
    if first is not None and first.hard:
        blame = f"at step {first.step}, {_what(first, cast)}"
    else:
        since = "" if first is None else f", first at step {first.step}"
        blame = f"{_said(worst)} loses {share(worst.lost_percent)} of its values{since}"
        if isinstance(cast, ByRecipe):
            blame = f"{_said(worst)} {_noisy(worst)}"
    if status is Status.BROKEN:
        return f"These values are broken as recorded: {blame}."
    if status is Status.SAFE_WITH_LOSS_SCALE and loss_scale is not None:
        scale = scale_words(loss_scale.best)
        return f"{cast} needs a loss scale, such as {scale}: without one, {blame}."
    return f"{cast} is not safe: {blame}."


def reasons(
    failing: Sequence[TensorRow],
    hard: Sequence[Incident],
    loss_scale: SafeScales | None,
    scale_rows: Sequence[ScaleRow],
    others: Sequence[TensorRow],
    cast: Target,
    limit: str,
    recorded: Recorded,
) -> list[str]:
    """Return the sentences below the headline.

    failing: the judged tensors that are not safe; hard: their NaN, infinity and overflow events;
    scale_rows: the judged tensors in each format; others: the tensors that are not judged.
    """
    return [
        *_first_cause(hard),
        *_skipped(recorded),
        *_carried(recorded),
        *_losing(failing, cast),
        *_gradients(failing, loss_scale, limit),
        *_beyond_loss_scale(failing, scale_rows, cast, limit),
        *_formats(failing, scale_rows, cast),
        *_range_only(failing, hard, cast),
        *_not_judged(others, cast),
    ]


def _range_only(
    failing: Sequence[TensorRow], hard: Sequence[Incident], cast: Target
) -> list[str]:
    """What "safe" does not say."""
    if isinstance(cast, ByRecipe) and not failing:
        return []  # the headline says it
    if isinstance(cast, ByRecipe):
        return [f"Judged by what was measured: a tensor is safe with {rule_of_recipes()}."]
    bits = cast.format.precision
    if failing or hard or bits >= 24:
        return []
    return [
        f"This speaks of range. Rounding to {bits} significant bit{'s' * (bits > 1)} is an error "
        "of its own, which is not judged here."
    ]


def _carried(recorded: Recorded) -> list[str]:
    """That the recorded gradients carried a loss scale, which was taken out."""
    if not recorded.scales or recorded.scales == (1.0,):
        return []
    low, high = recorded.scales[0], recorded.scales[-1]
    scales = scale_words(low) if low == high else f"{power(low)} to {power(high)}"
    return [
        f"The gradients were recorded times a loss scale of {scales}, step by step; here they are "
        "judged without it. Loss scales named here are to be used instead of it, not on top."
    ]


def _skipped(recorded: Recorded) -> list[str]:
    """That a loss scaler skipped steps, and what it found there."""
    if not recorded.skipped:
        return []
    steps = f"{count(recorded.skipped)} of {count(recorded.steps)} recorded steps"
    where = f", most often in {_said(recorded.worst)}" if recorded.worst else ""
    return [
        f"The loss scaler skipped {steps}, where scaled gradients were NaN or infinite{where}. "
        "That is the scaler at work, and is not held against the format."
    ]


def _what(event: Incident, cast: Target) -> str:
    """What a hard event is, in words, with its tensor."""
    name, n, s = _said(event), count(event.count), "" if event.count == 1 else "s"
    if event.what == "nan":
        return f"{name} holds {n} NaN{s}"
    if event.what == "inf":
        return f"{name} holds {n} infinite value{s}"
    if isinstance(cast, ByRecipe):
        verb = "comes" if event.count == 1 else "come"
        return f"{n} finite value{s} of {name} {verb} out NaN or infinite, with a block of theirs"
    verb = "overflows" if event.count == 1 else "overflow"
    return (
        f"{n} value{s} of {name} {verb} (largest {number(event.amax)}, "
        f"{cast.format.name} ends at {number(cast.format.max)})"
    )


def _first_cause(hard: Sequence[Incident]) -> list[str]:
    """What follows the first NaN, infinity or overflow, which the headline names."""
    if not hard:
        return []
    later = len({(event.name, event.kind) for event in hard[1:]} - {(hard[0].name, hard[0].kind)})
    if not later:
        return ["No other tensor holds NaN, infinite or overflowing values."]
    return [
        f"That is the first cause to look at: NaN, infinite or overflowing values come later in "
        f"{count(later)} more tensor{'s' * (later > 1)}."
    ]


def _losing(failing: Sequence[TensorRow], cast: Target) -> list[str]:
    """Name the three tensors that lose most, and how."""
    losing = sorted((row for row in failing if row.lost_percent), key=lambda r: -r.lost_percent)
    told = [f"{_said(row)}: {_how(row)}." for row in losing[:3]]
    if isinstance(cast, ByRecipe):
        losing = sorted(failing, key=lambda row: row.rank)
        told = [f"{_said(row)} {_noisy(row)}." for row in losing[:3]]
    more = len(losing) - 3
    if more > 0:
        told.append(f"{count(more)} more tensor{'s are' if more > 1 else ' is'} not safe.")
    return told


def _noisy(row: TensorRow) -> str:
    """What a recipe leaves of a tensor: 'keeps an SQNR of 9.1 dB, 3 % of its values become 0'."""
    if row.overflow_percent:
        return f"has {share(row.overflow_percent)} of its values come out NaN or infinite"
    kept = "is kept exactly" if row.sqnr_db is None else f"keeps an SQNR of {row.sqnr_db:.1f} dB"
    if row.broken and row.sqnr_db is None:
        kept = f"holds {count(row.broken)} NaN or infinite values"
    return f"{kept}, {share(row.underflow_percent)} of its values become 0"


def _how(row: TensorRow) -> str:
    """How a tensor loses values: '3 % of its non-zero values underflow'."""
    ways = {
        "underflow": row.underflow_percent,
        "overflow": row.overflow_percent,
        "are saturated": row.saturated_percent,
    }
    named = [f"{share(value)} {way}" for way, value in ways.items() if value]
    if not named and not row.lost_percent:
        return f"{count(row.broken)} of its values are NaN or infinite"
    if not named:
        return f"{share(row.lost_percent)} of its non-zero values have a sign that the format lacks"
    first = named[0].replace(" % ", " % of its non-zero values ", 1)
    return ", ".join([first, *named[1:]])


def _in_range_fails(row: TensorRow) -> bool:
    """Whether a tensor fails by its finite values, which a scale could move."""
    return row.lost_percent > 0 and not row.safe


def _gradients(
    failing: Sequence[TensorRow], loss_scale: SafeScales | None, limit: str
) -> list[str]:
    if loss_scale is None or not any(_in_range_fails(r) and r.kind in GRADIENTS for r in failing):
        return []
    if loss_scale.safe:
        return [
            f"A loss scale of {scale_words(loss_scale.best)} keeps every gradient tensor within "
            f"{limit} lost, without overflow. Safe loss scales: {interval(loss_scale)}."
        ]
    return [
        f"No loss scale tried keeps every gradient tensor within {limit} lost without overflow: "
        f"at the best, {power(loss_scale.best)}, one still loses {share(loss_scale.lost_percent)}."
    ]


def _beyond_loss_scale(
    failing: Sequence[TensorRow], scale_rows: Sequence[ScaleRow], cast: Target, limit: str
) -> list[str]:
    """What a loss scale cannot reach, and whether a scale of its own would help."""
    if isinstance(cast, ByRecipe):
        return []  # every tensor has scales of its own
    rows = [row for row in failing if row.kind not in GRADIENTS and _in_range_fails(row)]
    if not rows:
        return []
    safe = {(r.name, r.kind): r.safe for r in scale_rows if r.to == str(cast)}
    saved = [row for row in rows if safe[row.name, row.kind].safe]
    n = f"{count(len(rows))} unsafe tensor{'s' * (len(rows) > 1)}"
    kinds = ", ".join(dict.fromkeys(kind_words(row.kind) for row in rows))
    sentence = f"A loss scale reaches gradients only: it does nothing for {n} ({kinds})."
    if not saved:
        return [f"{sentence} No power-of-two scale of its own saves one of them either."]
    row = max(saved, key=lambda row: row.lost_percent)
    own = safe[row.name, row.kind]
    return [
        f"{sentence} A scale of its own, stored beside the tensor, would bring {len(saved)} of "
        f"{len(rows)} within {limit}: {power(own.best)} for {_said(row)} "
        f"(safe: {interval(own)})."
    ]


def _formats(
    failing: Sequence[TensorRow], scale_rows: Sequence[ScaleRow], cast: Target
) -> list[str]:
    """Which of the formats tried hold every tensor as it is."""
    tried = dict.fromkeys(row.to for row in scale_rows if row.to != str(cast))
    if not tried or not any(_in_range_fails(row) for row in failing):
        return []
    bad = {row.to for row in scale_rows if not row.safe.unscaled}
    holding = [to for to in tried if to not in bad]
    if not holding:
        return [f"No format tried holds every tensor unscaled (tried: {', '.join(tried)})."]
    return [f"In range, every tensor fits unscaled in {', '.join(holding)}."]


def _not_judged(rows: Sequence[TensorRow], cast: Target) -> list[str]:
    """What the verdict leaves out, and what the cast would do to it."""
    unsafe = [row for row in rows if not row.safe]
    if not unsafe:
        return []
    kinds = ", ".join(dict.fromkeys(kind_words(row.kind) for row in rows))
    worst = worst_of(unsafe, cast)
    why = "not asked for" if any(row.kind in JUDGED for row in rows) else (
        "mixed-precision training keeps these in float32"
    )
    return [
        f"Not judged: {kinds} ({why}). In {cast}, {count(len(unsafe))} of "
        f"{count(len(rows))} tensors would not be safe; worst, {_said(worst)}"
        + (f", which {_noisy(worst)}." if isinstance(cast, ByRecipe) else f": {_how(worst)}.")
    ]


def _said(row: TensorRow | Incident) -> str:
    """A tensor's name and kind, fit for a sentence."""
    return f"{shorten(plain(row.name), 64)} ({kind_words(row.kind)})"
