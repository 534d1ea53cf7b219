"""Advisor: from a trace to an advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fpemu.analysis.advice.choosing import Chosen, Options, choose
from fpemu.analysis.advice.fits import scales_itself
from fpemu.analysis.advice.flow import inputs_of
from fpemu.analysis.advice.fronts import Front, measure, memory_goal
from fpemu.analysis.advice.gathering import gather
from fpemu.analysis.advice.layer_rows import kept, layer_row, tensor_rows
from fpemu.analysis.advice.layers import layers_of
from fpemu.analysis.advice.lost_updates import LIMIT_PERCENT, update_rows
from fpemu.analysis.advice.memory import elements, memory_rows
from fpemu.analysis.advice.rows import Advice, Choice, UpdateAdvice
from fpemu.analysis.advice.sentences import headline, lines
from fpemu.analysis.asked import Asked, own_cast, targets
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.records import JUDGED
from fpemu.analysis.scales import TOLERANCE, check_tolerance
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.totals import Total
    from fpemu.analysis.trace import Trace
    from fpemu.policies import Policy

__all__ = ["advise", "can_advise", "usual_formats"]

#: What goes forward in FP8 training -> what goes backward beside it.
_PARTNERS = {"float8_e4m3fn": "float8_e5m2", "float8_e4m3fnuz": "float8_e5m2fnuz"}

Totals = Mapping[tuple[str, str], "Total"]


def advise(
    trace: Trace,
    *,
    formats: Asked | Iterable[Asked] | None = None,
    tolerance: float = TOLERANCE,
    memory: float | None = None,
    evaluate: Callable[[Policy], float] | None = None,
    seed: int = 0,
) -> Advice:
    """Return what to do so that a run keeps its values in small formats, and why.

    >>> import numpy as np
    >>> from fpemu.analysis import Trace, advise
    >>> trace = Trace()
    >>> trace.record("fc1", "activation", np.float32([0.5, 7e4]), step=0)
    >>> trace.record("fc2", "activation", np.float32([0.5, 2.0]), step=0)
    >>> trace.record("fc2", "activation_gradient", np.float32([1e-8, 1e-4]), step=0)
    >>> advice = advise(trace, formats=["fp16", "bf16"])
    >>> print(advice.headline)
    float16 needs a loss scale of 2^15 (32768) and 1 layer kept in another format (fc1 in bfloat16).
    >>> advice.keep[0].reason, advice.tensors[1].to
    ('in float16, 1 value of its activation fc1 overflows', 'float16')

    formats: those allowed, the one that is wanted first; float32 is the last resort. Unless given:
    the trace's own (metadata "to", else float16), E5M2 too beside E4M3, and bfloat16. Formats of 8
    bits and fewer are for matrix products, whose results are wide; each of their tensors may have
    a power-of-two scale of its own. In wider ones only gradients have a scale, the loss scale.
    Recipes (`fpemu.scaling`), by name, text or record, are for products too and bring their scales
    with them; the run has counted them (`watch(..., recipes=)`).
    tolerance: the share of its non-zero values that a tensor may lose in a format. memory: a goal
    for all tensors that the layers have, in bytes, or below 1 as a share of what float32 takes; the
    advice is then the assignment of least damage within it. evaluate: a function that takes a
    policy, runs the emulation with it and returns a number, smaller for better, such as the final
    loss: some points of the front are run, and the best is advised. seed: of the search.

    Each layer gets the first format in which every tensor of it is safe (`fpemu.analysis.scales`):
    nothing overflows, no more than the tolerance is lost; of a recipe, whose error is measured, an
    SQNR of 15 dB is kept and no more than half comes out 0 (`fpemu.analysis.parts`). Damage is, for
    a tensor, the larger of the share of values lost (in a recipe, rounded to 0) and the rounding
    error's share of the signal, 1 if one overflows to infinity or NaN; a layer's is the sum over
    its tensors, and so on. Counts are exact; the signal-to-noise ratio is predicted from the
    histogram, to about 0.6 dB while little is lost at either end; of recipes it is measured, and
    memory holds their scales. The advice speaks of the recorded steps.
    Gradients are judged without the loss scale that they were recorded times
    (`fpemu.analysis.carried`). NaN and infinity in what was recorded make the status "broken",
    unless a loss scaler skipped the step. A trace without values gives "no_data".
    Errors: InputError for options that cannot be used, stochastic casts, unsigned formats.
    """
    check_tolerance(tolerance)
    wanted = _wanted(trace, formats)
    totals = gather(trace, wanted)
    layers = layers_of({key: t for key, t in totals.items() if _judged(t)})
    options = Options(layers, wanted, tolerance, inputs_of(trace, layers, totals))
    goal = memory_goal(memory, 4 * sum(elements(t) for t in totals.values() if _judged(t)))
    chosen = choose(options)
    updates = update_rows(trace, totals, wanted)

    def advice(chosen: Chosen, choices: tuple[Choice, ...] = ()) -> Advice:
        return _advice(chosen, options, totals, updates, choices, goal)

    if not layers:
        return advice(chosen)
    front = Front(options, chosen, seed=seed, thorough=goal is not None or evaluate is not None)
    picked = front.advised if goal is None else front.within(goal)
    measured: dict[tuple[int, ...], float] = {}
    if evaluate is not None:
        picked, measured = measure(front, goal, lambda one: evaluate(advice(one).policy()))
    choices = front.choices(picked, measured)
    same = picked.picks == front.advised.picks
    return advice(chosen if same else front.chosen_of(picked), choices)


def usual_formats(first: Target) -> tuple[Target, ...]:
    """Return a format or recipe, its partner for what goes backward, and bfloat16.

    >>> import fpemu
    >>> from fpemu.analysis.advice.advisor import usual_formats
    >>> [str(cast) for cast in usual_formats(fpemu.Cast("e4m3fn"))]
    ['float8_e4m3fn', 'float8_e5m2', 'bfloat16']
    """
    partner = None if isinstance(first, ByRecipe) else _PARTNERS.get(first.format.name)
    return tuple(targets([first, *filter(None, (partner, "bfloat16"))]))


def _wanted(
    trace: Trace, formats: Asked | Iterable[Asked] | None
) -> tuple[Target, ...]:
    """The formats asked for; unless given, those that go with the trace's own."""
    if formats is None:
        return usual_formats(own_cast(trace))
    found = tuple(targets(formats))
    if not found:
        raise InputError("formats: at least one is needed, the one that is wanted first")
    for cast in found:
        if not can_advise(cast):
            name = str(cast).partition(":")[0]
            raise InputError(
                f"format {name!r}: advice is for signed formats that have a zero"
            )
    return found


def can_advise(cast: Target) -> bool:
    """Return whether training could run in a cast's format: it has both signs and a zero."""
    return isinstance(cast, ByRecipe) or (cast.format.signed and cast.format.zero)


def _judged(total: Total) -> bool:
    """Whether training would round a tensor: losses and other scalars stay float32."""
    return total.kind in JUDGED and not total.stays_wide


def _advice(
    chosen: Chosen,
    options: Options,
    totals: Totals,
    updates: tuple[UpdateAdvice, ...],
    choices: tuple[Choice, ...],
    goal: float | None,
) -> Advice:
    wanted, scale = options.formats[0], chosen.scale
    tensors, keep = tensor_rows(chosen, options), kept(chosen, options)
    layers = tuple(layer_row(option, scale) for option in chosen.options)
    bits = {(t.name, t.kind): (t.to, t.bits_per_value) for t in tensors}
    held = [total for total in totals.values() if total.shape]
    memory = memory_rows(held, bits, master=_needs_master(updates, wanted, totals))
    scales = sum(s != 1.0 for row in layers
                 for s in (row.activation_scale, row.weight_scale, row.gradient_scale))  # fmt: skip
    # nobody holds the weights that are trained in 8 bits
    casts = [to for to in options.formats if not isinstance(to, ByRecipe)]
    wide = {cast.format.name for cast in casts if not scales_itself(cast)}
    status = _status(totals.values(), bool(keep or scales), scale)
    return Advice(
        status=status,
        headline=headline(status, wanted, keep, scales, scale),
        lines=lines(
            status, wanted, options.tolerance, keep, layers, chosen.loss_scale, scale,
            [row for row in updates if row.format in wide], memory, choices, goal,
        ),
        tensors=tensors,
        layers=layers,
        keep=keep,
        loss_scale=chosen.loss_scale,
        loss_scale_advised=scale,
        updates=updates,
        memory=memory,
        pareto=choices,
        formats=options.formats if wanted == options.formats[-1] else options.formats[:-1],
        tolerance=options.tolerance,
    )  # fmt: skip


def _status(totals: Iterable[Total], changes: bool, scale: float) -> str:
    judged = [total for total in totals if total.kind in JUDGED]
    if any(sum(total.parts.apart[1:]) > total.skipped for total in judged):
        return "broken"
    if not any(total.moments.amax for total in judged):
        return "no_data"
    if changes:
        return "needs_changes"
    return "safe" if scale == 1.0 else "safe_with_loss_scale"


def _needs_master(
    updates: Sequence[UpdateAdvice], wanted: Target, totals: Iterable[tuple[str, str]]
) -> bool:
    """Whether weights held in the format asked for would lose updates; in a recipe all do."""
    if isinstance(wanted, ByRecipe):
        return any(kind == "update" for _, kind in totals)
    first = wanted.format.name
    return any(r.format == first and r.lost_percent > LIMIT_PERCENT for r in updates)
