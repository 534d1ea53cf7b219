"""Notes: the sentences that say what a replay's figures stand on."""

from __future__ import annotations

from collections.abc import Sequence

from fpemu.analysis.lossscale.replayed import ReplayedStep
from fpemu.analysis.lossscale.seen import times

__all__ = ["is_open", "note"]

_ASSUMED = {
    "neighbours": "they overflow if their finite values do, or those of the nearest step before "
    "or after that was finite",
    "overflow": "they are taken to overflow",
    "fits": "they overflow only if their finite values do",
}


def is_open(steps: Sequence[ReplayedStep], *, scaled: bool) -> bool:
    """Say whether the recorded run went another way; scaled: whether it tells its loss scale.

    A run that tells none may have been in another format: then it went this way only if nothing
    is lost in this one.
    """
    return any(
        step.scale != step.recorded_scale
        or (step.overflow and not step.skipped)
        or not (scaled or step.lost_percent == 0.0)
        for step in steps
        if step.basis != "held"
    )


def note(steps: Sequence[ReplayedStep], *, unknown: str, stopped: int | None, scaled: bool) -> str:
    """Return what a replay's figures stand on."""
    recorded = [step for step in steps if step.basis != "held"]
    assumed = sum(step.basis == "assumed" for step in steps)
    held = len(steps) - len(recorded)
    between = sum(not times(step.scale, step.recorded_scale)[1] for step in steps)
    spoiled = sum(step.overflow and not step.skipped for step in steps)
    sentences = [_loop(steps, recorded, scaled)]
    if spoiled:
        sentences.append(
            f"This scaler skips no step: at {_steps(spoiled)} infinity or NaN would have reached "
            "the weights, and what follows is not of such a run."
        )
    if assumed:
        sentences.append(
            f"The gradients of {_steps(assumed)} were infinite or NaN as recorded, at a larger "
            f"loss scale, so their size is not known: {_ASSUMED[unknown]}."
        )
    if held:
        sentences.append(
            f"{_steps(held).capitalize()} between the recorded ones have the gradients of the last "
            "recorded one."
        )
    if between:
        sentences.append(
            f"At {_steps(between)} the scale is no power of two times the recorded one: overflow "
            "is exact, by the largest magnitude; losses are those of the power of two below."
        )
    if stopped is not None:
        sentences.append(
            f"The run ends at step {stopped:,}: an overflow at the scaler's smallest scale."
        )
    return " ".join(sentences)


def _loop(steps: Sequence[ReplayedStep], recorded: Sequence[ReplayedStep], scaled: bool) -> str:
    if not is_open(steps, scaled=scaled):
        return f"The loss scale is the recorded one at all {len(recorded):,} recorded steps."
    apart = sum(step.scale != step.recorded_scale for step in recorded)
    if apart:
        how = f"whose loss scale was another at {apart:,} of {len(recorded):,} recorded steps"
    elif any(step.overflow and not step.skipped for step in recorded):
        how = "in which these overflows did not reach the weights"
    else:
        how = "which lost nothing of this"
    return (
        f"Open loop, an estimate: the gradients are those of the recorded run, {how}; another run "
        "would have had others."
    )


def _steps(count: int) -> str:
    return f"{count:,} step" + "s" * (count != 1)
