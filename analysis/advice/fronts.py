"""Fronts: the assignments of formats to layers between least memory and least damage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fpemu.analysis.advice.choosing import Chosen, Option, Options, loss_scale_for
from fpemu.analysis.advice.layer_rows import memory_of
from fpemu.analysis.advice.rows import Choice
from fpemu.analysis.advice.search import Alternative, Point, evolve, greedy
from fpemu.errors import InputError

__all__ = ["Front", "measure", "memory_goal"]

_SHOWN = 24  # points of a front that an advice keeps
_MEASURED = 8  # points that are really run


class Front:
    """The front of one trace's options at a loss scale."""

    def __init__(self, options: Options, chosen: Chosen, *, seed: int, thorough: bool) -> None:
        self.options, self.chosen = options, chosen
        self.rows = [self._alternatives(option.layer.name) for option in chosen.options]
        table = [[one for one, _ in row] for row in self.rows]
        self.points = evolve(table, seed=seed) if thorough else greedy(table)
        picks = tuple(
            next(k for k, (_, option) in enumerate(row) if option.to == picked.to)
            for row, picked in zip(self.rows, chosen.options, strict=True)
        )
        self.advised = Point(
            picks,
            sum(table[i][k].memory for i, k in enumerate(picks)),
            sum(sorted(table[i][k].damage for i, k in enumerate(picks))),
        )

    def _alternatives(self, name: str) -> list[tuple[Alternative, Option]]:
        layer = next(layer for layer in self.options.layers if layer.name == name)
        found = [self.options.option(layer, to) for to in self.options.formats_for(layer)]
        return [
            (Alternative(str(o.to), memory_of(o), o.damage(self.chosen.scale)), o)
            for o in found
            if o.known
        ]

    def within(self, goal: float) -> Point:
        """Return the point of least damage that takes no more than `goal` bytes, else the smallest.

        Layers that need more in any format are not helped by a goal.
        """
        fitting = [point for point in self.points if point.memory <= goal]
        return fitting[-1] if fitting else self.points[0]

    def chosen_of(self, point: Point) -> Chosen:
        """Return a point's formats, and the loss scale that they need."""
        found = tuple(
            row[pick][1] for row, pick in zip(self.rows, point.picks, strict=True)
        )
        safe = loss_scale_for(found, self.options.tolerance)
        return Chosen(found, safe, safe.best if safe else 1.0)

    def finalists(self, goal: float | None) -> list[Point]:
        """Return what is worth running: the advised point and some of the front."""
        known = {p.picks: p for p in (self.advised, *self.points)}
        fitting = [p for p in known.values() if goal is None or p.memory <= goal]
        own = fitting[:1] if self.advised in fitting else []
        rest = sorted(fitting[len(own) :], key=lambda p: p.memory)
        return [*own, *_thinned(rest, _MEASURED - len(own))] or self.points[:1]

    def choices(self, picked: Point, measured: dict[tuple[int, ...], float]) -> tuple[Choice, ...]:
        """Return the front as rows, thinned, with the point picked and those measured in it."""
        must = {picked.picks, *measured}
        shown = {p.picks: p for p in _thinned(self.points, _SHOWN)}
        shown |= {p.picks: p for p in (*self.points, self.advised, picked) if p.picks in must}
        return tuple(
            Choice(
                tuple(
                    (row[pick][1].layer.name, row[pick][0].format)
                    for row, pick in zip(self.rows, point.picks, strict=True)
                ),
                point.memory,
                point.damage,
                measured.get(point.picks),
                point.picks == picked.picks,
            )
            for point in sorted(shown.values(), key=lambda p: (p.memory, p.damage))
        )


def measure(
    front: Front, goal: float | None, run: Callable[[Chosen], float]
) -> tuple[Point, dict[tuple[int, ...], float]]:
    """Run the finalists; return the best of them and what each came to.

    Without a goal it is the best of those that take no more memory than the advised one.
    """
    points = front.finalists(goal)
    measured = {p.picks: _number(run(front.chosen_of(p))) for p in points}
    limit = front.advised.memory if goal is None else math.inf
    fitting = [p for p in points if p.memory <= limit] or points
    return min(fitting, key=lambda p: (measured[p.picks], p.memory)), measured


def memory_goal(memory: float | None, whole: int) -> float | None:
    """Return a memory goal in bytes; below 1 it is a share of what float32 takes."""
    if memory is None:
        return None
    try:
        good = math.isfinite(memory) and memory > 0 and not isinstance(memory, bool)
    except TypeError:
        good = False
    if not good:
        raise InputError(
            f"memory={memory!r}: must be bytes, or below 1 the share of what float32 takes"
        )
    return memory * whole if memory < 1 else float(memory)


def _number(value: object) -> float:
    """What `evaluate` returned; NaN, from a run that broke, is the worst."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(
            f"evaluate returned {value!r:.40}: it must return a number, smaller for better"
        ) from None
    return math.inf if math.isnan(number) else number


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of the points, both ends among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / max(most - 1, 1)
    return [points[round(k * step)] for k in range(most)]
