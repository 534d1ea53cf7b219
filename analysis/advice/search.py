"""Search: formats for layers along the front of memory against damage.

Damage adds up over layers, so the whole is a choice of one option from each layer. The greedy
search takes, step by step, the change of one layer that saves most memory for the damage it does;
it finds the corners of the front. The evolutionary one starts from those and finds points between
them that no single step reaches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Alternative", "Point", "evolve", "front", "greedy"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One format for one layer."""

    format: str
    memory: int  #: bytes
    damage: float


@dataclass(frozen=True, slots=True)
class Point:
    """One alternative for each layer, by number."""

    picks: tuple[int, ...]
    memory: int
    damage: float


Table = Sequence[Sequence[Alternative]]


def front(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other one beats in both, by memory, smallest first.

    >>> from fpemu.analysis.advice.search import Point, front
    >>> [p.memory for p in front([Point((0,), 4, 0.5), Point((1,), 2, 0.5), Point((2,), 8, 0.1)])]
    [2, 8]
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.memory, p.damage, p.picks)):
        if not kept or point.damage < kept[-1].damage:
            kept.append(point)
    return kept


def greedy(table: Table) -> list[Point]:
    """Return the front's corners: from the least damage down, the best single change each time.

    >>> from fpemu.analysis.advice.search import Alternative, greedy
    >>> layer = [Alternative("float32", 4, 0.0), Alternative("float16", 2, 0.1)]
    >>> [(p.memory, p.damage) for p in greedy([layer, layer])]
    [(4, 0.2), (6, 0.1), (8, 0.0)]
    """
    picks = [_least(row) for row in table]
    points = [_point(table, picks)]
    while (step := _next(table, picks)) is not None:
        layer, pick = step
        picks[layer] = pick
        points.append(_point(table, picks))
    return front(points)


def evolve(
    table: Table, *, seed: int = 0, generations: int = 60, population: int = 64
) -> list[Point]:
    """Return the front that a population of assignments has found; the same for the same seed.

    >>> from fpemu.analysis.advice.search import Alternative, evolve
    >>> layer = [Alternative("float32", 4, 0.0), Alternative("float16", 2, 0.1)]
    >>> [p.picks for p in evolve([layer, layer])]
    [(1, 1), (0, 1), (0, 0)]

    It starts from the greedy points. Each child has each layer's pick from one of two parents of
    the front, and one layer of it, on average, is changed.
    """
    draw = random.Random(seed)
    best = greedy(table)
    seen = {point.picks for point in best}
    for _ in range(generations):
        children = []
        for _ in range(population):
            picks = _child(table, draw.choice(best).picks, draw.choice(best).picks, draw)
            if picks not in seen:
                seen.add(picks)
                children.append(_point(table, picks))
        best = front([*best, *children])
    return best


def _child(
    table: Table, one: Sequence[int], other: Sequence[int], draw: random.Random
) -> tuple[int, ...]:
    rate = 1.0 / max(len(table), 1)
    mixed = (draw.choice(pair) for pair in zip(one, other, strict=True))
    return tuple(
        draw.randrange(len(row)) if draw.random() < rate else pick
        for row, pick in zip(table, mixed, strict=True)
    )


def _point(table: Table, picks: Sequence[int]) -> Point:
    chosen = [row[pick] for row, pick in zip(table, picks, strict=True)]
    damage = sum(sorted(one.damage for one in chosen))  # the same sum whatever layer has which
    return Point(tuple(picks), sum(one.memory for one in chosen), damage)


def _least(row: Sequence[Alternative]) -> int:
    return min(range(len(row)), key=lambda k: (row[k].damage, row[k].memory, k))


def _next(table: Table, picks: Sequence[int]) -> tuple[int, int] | None:
    """The change of one layer that adds the least damage for each byte saved."""
    best: tuple[float, int, int] | None = None
    for layer, (row, pick) in enumerate(zip(table, picks, strict=True)):
        for other, one in enumerate(row):
            saved = row[pick].memory - one.memory
            if saved > 0:
                cost = ((one.damage - row[pick].damage) / saved, layer, other)
                best = min(best, cost) if best is not None else cost
    return best[1:] if best is not None else None
