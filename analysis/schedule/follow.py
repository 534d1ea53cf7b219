"""Follow: change an emulated policy while it runs, when a layer's statistics cross a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

from fpemu.analysis.asked import several
from fpemu.analysis.schedule.decisions import Decision
from fpemu.analysis.schedule.held import Held, Seen
from fpemu.analysis.schedule.lines import LINES, STATISTICS, Line
from fpemu.analysis.schedule.places import POLICY_KINDS, is_of_products, place
from fpemu.analysis.schedule.spans import check_patience
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.policies import Override, Policy
from fpemu.policies.override import exactly

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["Emulated", "Follower", "follow"]

#: The kinds that one format for all is for; a policy's "state" has to be named.
_KINDS = ("activation", "weight", "gradient")


class Emulated(Protocol):
    """What is asked of an emulation; `fpemu.torch.emulate` returns one."""

    policy: Policy

    @property
    def step(self) -> int:
        """The step whose overrides hold."""

    def change(self, policy: Policy) -> None:
        """Go on under a policy with other overrides."""


def follow(
    emulation: Emulated,
    watched: Any,
    narrow: str | Format | Cast | Mapping[str, str | Format | Cast],
    *,
    layers: str | Iterable[str] = "*",
    lines: Line | Iterable[Line] = LINES,
    patience: int = 3,
    patience_up: int = 1,
) -> Follower:
    """Return a callback that lowers layers whose numbers allow it, and raises them again.

    >>> import torch
    >>> from fpemu.analysis import schedule, watch
    >>> from fpemu.torch import emulate
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    >>> with emulate("uniform:float32; result: float32", model=model) as emulation, \
            watch(model, optimizer, tensors="matmul") as run:
    ...     callback = schedule.follow(emulation, run, "bf16", patience=2)
    ...     for step in range(3):
    ...         model(torch.ones(3, 4)).square().mean().backward()
    ...         optimizer.step()
    ...         decisions = callback()
    >>> [(d.step, d.layer, d.before, d.after, d.first_step) for d in callback.log]
    [(1, '0', 'float32', 'bfloat16', 2), (1, '2', 'float32', 'bfloat16', 2)]

    emulation: what `fpemu.torch.emulate` returned, entered; its policy's formats are the wide ones.
    watched: the `watch` of the same run (or its trace), entered inside the emulation. With
    tensors="matmul" it sees what matrix products are given before that is rounded.
    narrow: the other format, of inputs, weights and gradients; or a dict of formats by the kinds
    of policies ("activation", "weight", "gradient", "state").
    layers: patterns of module names. lines: a layer goes down when for `patience` recorded steps in
    a row all of its tensors were at or below `down` of every line, and up when for `patience_up`
    steps one of them was above the `up` of a line. All layers begin wide.
    Values are counted as recorded, gradients times the run's loss scale: these are the numbers
    that would be rounded. NaN and infinities are in "nonfinite_percent" alone, zeros in none.
    Errors: InputError for a policy without a format for results, whose narrow results would be
    recorded rounded, so that a layer's loss could not be seen; when it is called, where no
    recorded tensor is in one of the layers.
    """
    return Follower(
        emulation, watched, _by_kind(narrow), several("layers", layers, str),
        _checked_lines(lines), check_patience(patience), check_patience(patience_up),
    )  # fmt: skip


class Follower:
    """What `follow` returns: call it after each step of the optimizer."""

    def __init__(
        self,
        emulation: Emulated,
        watched: Any,
        narrow: dict[str, Cast],
        layers: list[str],
        lines: list[Line],
        patience: int,
        patience_up: int,
    ) -> None:
        _check_result(emulation.policy, narrow)
        self._emulation, self._base = emulation, emulation.policy
        self._trace: Trace = getattr(watched, "trace", watched)
        self._writes = watched is not self._trace  # a watch's own trace is being written
        self._narrow, self._layers, self._lines = narrow, layers, lines
        self._patience, self._patience_up = patience, patience_up
        self._held: dict[str, Held] = {}
        self._overrides: tuple[Override, ...] = ()
        self._read_to = -1
        self.log: tuple[Decision, ...] = ()  #: every decision so far

    def __call__(self) -> tuple[Decision, ...]:
        """Read the steps recorded since the last call; return what was decided on them.

        The policy changes from the next operation on: call it between steps.
        """
        made: list[Decision] = []
        for step in self._trace.steps():
            if step > self._read_to:
                self._read_to = step
                made += self._decide(step)
        if made:
            self.log += tuple(made)
            self._emulation.change(self.policy)
        if self._read_to >= 0 and not self._held:
            raise InputError(
                f"layers {', '.join(self._layers)}: nothing that was recorded is in one; recorded: "
                f"{', '.join(self._trace.names()[:20])}"
            )
        return tuple(made)

    @property
    def policy(self) -> Policy:
        """The policy with all that was decided as overrides by step: it repeats this run."""
        own = (*self._base.overrides, *self._overrides)
        return self._base.replace(overrides=own)

    @property
    def narrow_layers(self) -> list[str]:
        """The layers that have the narrow format now."""
        return [layer for layer, held in self._held.items() if held.narrow]

    # --- one step ------------------------------------------------------------------------------

    def _decide(self, step: int) -> list[Decision]:
        made = []
        for layer, seen in self._seen(step).items():
            before = self._held.get(layer, Held())
            after = before.after(seen, self._patience, self._patience_up)
            self._held[layer] = after
            if after.narrow is not before.narrow:
                made.append(self._changed(step, layer, seen, after.narrow))
        return made

    def _seen(self, step: int) -> dict[str, list[Seen]]:
        """The statistics of each layer's tensors at a step."""
        found: dict[str, list[Seen]] = {}
        products = is_of_products(self._trace)
        for record in self._trace.records(step=step):
            at = place(record.name, record.kind, products=products)
            if at is None or at.kind not in self._narrow or not self._is_layer(at.module):
                continue
            outcome = record.tally.outcome(self._narrow[at.kind])
            found.setdefault(at.module, []).extend(
                Seen(line, STATISTICS[line.statistic](outcome), record.name, record.kind)
                for line in self._lines
            )
        return found

    def _is_layer(self, module: str) -> bool:
        return bool(module) and any(fnmatchcase(module, pattern) for pattern in self._layers)

    def _changed(self, step: int, layer: str, seen: list[Seen], narrow: bool) -> Decision:
        if narrow:
            worst = max(seen, key=lambda one: one.value)
        else:
            worst = max((one for one in seen if one.side > 0), key=lambda one: one.value)
        first = self._emulation.step
        self._override(layer, first, narrow)
        before, after = self._texts(layer)[:: 1 if narrow else -1]
        line = worst.line.down if narrow else worst.line.up
        decision = Decision(
            step, layer, worst.line.statistic, worst.value, line, before, after,
            worst.tensor, worst.kind, first,
        )  # fmt: skip
        if self._writes:
            self._trace.event(
                step, layer, "format", f"format changed from {before} to {after}",
                statistic=decision.statistic, value=decision.value, line=line,
                tensor=worst.tensor, first_step=first,
            )  # fmt: skip
        return decision

    def _override(self, layer: str, first: int, narrow: bool) -> None:
        """Open overrides of a layer, or end those that are open."""
        pattern = exactly(layer)
        if narrow:
            self._overrides += tuple(
                Override(cast, module=pattern, kind=kind, first_step=first)
                for kind, cast in self._narrow.items()
            )
            return
        ended = (
            _ended(one, first) if one.module == pattern and one.last_step is None else one
            for one in self._overrides
        )
        self._overrides = tuple(one for one in ended if one is not None)

    def _texts(self, layer: str) -> tuple[str, str]:
        """The formats of a layer as text: wide, narrow."""
        step = self._emulation.step
        wide = {
            kind: self._base.cast(kind, None, layer, step) or Cast("float32")
            for kind in self._narrow
        }
        return _text(wide), _text(self._narrow)


def _ended(override: Override, first: int) -> Override | None:
    """An override that holds until before a step; None if it never held."""
    if override.first_step >= first:
        return None
    return Override(
        override.to, module=override.module, kind=override.kind,
        first_step=override.first_step, last_step=first - 1,
    )  # fmt: skip


def _text(casts: Mapping[str, Cast]) -> str:
    """The first kind's cast, and the kinds that have another."""
    first = next(iter(casts.values()))
    others = (f"{kind} {cast}" for kind, cast in casts.items() if cast != first)
    return ", ".join([str(first), *others])


def _by_kind(narrow: Any) -> dict[str, Cast]:
    if not isinstance(narrow, Mapping):
        return dict.fromkeys(_KINDS, make_cast(narrow))
    kinds = list(POLICY_KINDS.values())
    for kind in narrow:
        if kind not in kinds:
            hint = did_you_mean(str(kind)[:64], kinds)
            raise InputError(f"narrow kind {kind!r:.80}: {hint}choose of {', '.join(kinds)}")
    if not narrow:
        raise InputError("narrow {}: give a format, or one for each kind of tensor")
    return {kind: make_cast(to) for kind, to in narrow.items()}


def _checked_lines(lines: Line | Iterable[Line]) -> list[Line]:
    found = several("lines", lines, Line)
    if not found:
        raise InputError("lines []: give at least one, or leave it out for the usual ones")
    for line in found:
        if not isinstance(line, Line):
            raise InputError(f"{line!r:.80} is no Line: give schedule.Line(statistic, ...)")
    return found


def _check_result(policy: Policy, narrow: Mapping[str, Cast]) -> None:
    if policy.result is None and "activation" in narrow:
        raise InputError(
            f"policy {policy.name!r} has no format for results: those of narrow layers would be "
            "recorded rounded and their loss not be seen; give it one, such as "
            f"'{policy.name}; result: float32'"
        )
