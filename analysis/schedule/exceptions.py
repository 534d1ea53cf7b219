"""Exceptions: rows of when a precision is safe, as a policy's overrides by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fpemu.analysis.advice.policies import scaled_cast
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.schedule.first_safe import SafeFrom
from fpemu.analysis.schedule.places import Place
from fpemu.analysis.schedule.spans import shared
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.policies import Override, Policy, find_policy
from fpemu.policies.override import exactly

__all__ = ["overrides", "policy"]


def overrides(rows: Iterable[SafeFrom]) -> tuple[Override, ...]:
    """Return overrides that lower tensors at the steps at which rows say that it is safe.

    >>> import numpy as np
    >>> from fpemu.analysis import Trace, schedule
    >>> trace = Trace()
    >>> for step in range(0, 60, 10):
    ...     weight = np.float32([0.5, 2.0**-12 if step < 20 else 2.0**-6])
    ...     trace.record("fc1.weight", "weight", weight, step)
    >>> rows = schedule.first_safe(trace, formats=["bf16", "e4m3fn"])
    >>> for override in schedule.overrides(rows):
    ...     print(override.to, override.module, override.kind, override.first_step)
    bfloat16 fc1 weight 0
    float8_e4m3fn fc1 weight 20

    One for each module (and operation), kind, format and span of steps; where a policy has one
    format for several tensors (a weight and its bias), all of them have to be safe. Narrower
    formats come later, so that they win. Rows of kinds that policies have no format for
    (weight_gradient, update), and of tensors outside of modules, give none.
    The scale of gradients is the run's loss scale. Any other scale s becomes a part of the cast:
    x times s, rounded and divided by s again, is a format whose bias is larger by log2(s); it
    saturates.
    Errors: InputError for gradients at two scales, for two rows of one tensor and format, and for
    tensors that have one format but rows at two scales.
    """
    chosen = list(rows)
    _check_rows(chosen)
    groups: dict[tuple[Place, Cast], list[SafeFrom]] = {}
    for row in chosen:
        if row.place is not None and row.place.module:
            groups.setdefault((row.place, row.cast), []).append(row)
    for rows_of_one in groups.values():
        _check_scales(rows_of_one)
    narrowing = sorted(groups, key=lambda group: -group[1].format.bits)  # stable: else as given
    return tuple(
        Override(
            _own_cast(groups[at, cast][0]), operation=at.operation, module=exactly(at.module),
            kind=at.kind,
            first_step=span.first_step, last_step=span.last_step,
        )
        for at, cast in narrowing
        for span in shared(row.spans for row in groups[at, cast])
    )  # fmt: skip


def policy(rows: Iterable[SafeFrom], base: Policy | str) -> Policy:
    """Return a policy with the rows' overrides after its own.

    >>> import numpy as np
    >>> from fpemu.analysis import Trace, schedule
    >>> trace = Trace()
    >>> for step in range(3):
    ...     trace.record("fc1.weight", "weight", np.float32([0.5]), step)
    >>> rows = schedule.first_safe(trace, formats="e4m3fn")
    >>> made = schedule.policy(rows, "uniform:float32")
    >>> str(made.cast("weight", "linear", "fc1")), str(made.cast("activation", "linear", "fc1"))
    ('float8_e4m3fn', 'float32')

    base: what `fpemu.policies.find_policy` reads; its operations that lower are those whose
    tensors the overrides are about. Errors: as `overrides`.
    """
    found = find_policy(base)
    own = overrides(rows)
    return found.replace(name=f"{found.name}, by step", overrides=(*found.overrides, *own))


def _own_cast(row: SafeFrom) -> Cast:
    """A row's cast with its scale in it, but for gradients, which the loss scale multiplies."""
    if row.kind in GRADIENTS or row.scale == 1.0:
        return row.cast
    return scaled_cast(row.cast, row.scale)


def _check_scales(rows: Sequence[SafeFrom]) -> None:
    one = rows[0]
    for row in rows[1:]:
        if row.scale != one.scale:
            raise InputError(
                f"{row.name!r} at scale {row.scale:g} and {one.name!r} at {one.scale:g}: a policy "
                "has one cast for both; choose rows of one scale"
            )


def _check_rows(rows: Sequence[SafeFrom]) -> None:
    seen: dict[tuple[str, str, Cast], float] = {}
    scales: dict[float, SafeFrom] = {}
    for row in rows:
        if not isinstance(row, SafeFrom):
            raise InputError(f"{type(row).__name__} is no row: give those of first_safe(trace)")
        if row.kind in GRADIENTS:
            scales.setdefault(row.scale, row)
        key = row.name, row.kind, row.cast
        if key in seen:
            raise InputError(
                f"{row.name!r} ({row.kind}) in {row.to} comes twice, at scales {seen[key]:g} and "
                f"{row.scale:g}: choose one of them"
            )
        seen[key] = row.scale
    if len(scales) > 1:
        one, other = list(scales)[:2]
        raise InputError(
            f"gradients at scales {one:g} and {other:g}: a run has one loss scale; choose the rows "
            "of one"
        )
