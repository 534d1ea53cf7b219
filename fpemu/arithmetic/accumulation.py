"""Accumulation: in which formats and in which order a sum of products is taken."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, short
from fpemu.format import Format

__all__ = ["Accumulation", "Order", "read_accumulation"]


class Order(enum.Enum):
    """In which order the terms of a sum meet."""

    SEQUENTIAL = "sequential"  #: one after the other, from +0
    PAIRWISE = "pairwise"  #: neighbours, then their sums, and so on: a tree
    KAHAN = "kahan"  #: one after the other, what each rounding lost is put into the next term


@dataclass(frozen=True)
class Accumulation:
    """How a sum of products is rounded: the Cast of its partial sums, and all the rest.

    >>> from fpemu.arithmetic import Accumulation
    >>> hopper = Accumulation("tf32:toward_zero", block=128, outer="float32")
    >>> hopper.order.value, hopper.outer.format.name
    ('sequential', 'float32')

    Fields (names are accepted for casts and the order)
        cast: every partial sum is rounded by it.
        product: every product is rounded by it first (unfused: two roundings a term); "exact", or
            None, leaves it exact (fused: one rounding a term, as an FMA does).
        order: see `Order`.
        block: the sum starts anew every so many terms; the blocks' sums are added in order.
        splits: the terms are cut into so many blocks of equal length (the last may be shorter).
        outer: the Cast of the sum of the blocks, `cast` unless given: with a wider one, partial
            sums are promoted to it every `block` terms.
    Blocks are for the sequential order. A sum starts at +0 (pairwise: with its terms).
    """

    cast: Cast
    product: Cast | None = None
    order: Order = Order.SEQUENTIAL
    block: int | None = None
    splits: int | None = None
    outer: Cast | None = None

    def __init__(
        self, cast: Cast | Format | str, product: Cast | Format | str | None = None,
        order: Order | str = Order.SEQUENTIAL, block: int | None = None,
        splits: int | None = None, outer: Cast | Format | str | None = None,
    ) -> None:  # fmt: skip
        try:
            found = Order(order)
        except ValueError:
            choices = [member.value for member in Order]
            raise InputError(f"order={short(order)}: must be one of {choices}") from None
        made = {
            "cast": make_cast(cast),
            "product": None if product in (None, "exact") else make_cast(product),
            "order": found,
            "block": _count("block", block),
            "splits": _count("splits", splits),
            "outer": None if outer is None else make_cast(outer),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)
        cut = block is not None or splits is not None
        if block is not None and splits is not None:
            raise InputError(f"block={block} and splits={splits}: give one of them")
        if cut and found is not Order.SEQUENTIAL:
            raise InputError(f"order={found.value!r}: blocks are for the sequential order")
        if outer is not None and not cut:
            raise InputError(f"outer={outer!s}: adds blocks; give block= or splits= too")

    def length(self, terms: int) -> int:
        """Return how many of so many terms a block has; 0 without blocks."""
        if self.splits is not None:
            return max(1, -(-terms // self.splits))
        return min(self.block, max(terms, 1)) if self.block else 0

    @property
    def total(self) -> Cast:
        """The Cast that the result went through last."""
        return self.cast if self.outer is None else self.outer

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict that `from_json` reads back.

        >>> from fpemu.arithmetic import Accumulation
        >>> split = Accumulation("fp16", splits=4, outer="float32")
        >>> Accumulation.from_json(split.to_json()) == split
        True
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Accumulation:
        """Make an Accumulation from `to_json`'s dict."""
        known = [f.name for f in fields(cls)]
        if not isinstance(facts, Mapping) or "cast" not in facts or set(facts) - set(known):
            raise InputError(f"accumulation {short(facts)}: must have 'cast', of the keys {known}")
        casts = {n: Cast.from_json(v) for n, v in facts.items() if isinstance(v, Mapping)}
        return cls(**{**facts, **casts})


def _plain(value: Any) -> Any:
    if isinstance(value, Cast):
        return value.to_json()
    return value.value if isinstance(value, Order) else value


def _count(name: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{name}={short(value)}: must be an int, 1 or more")


def read_accumulation(
    to: Accumulation | Cast | Format | str, changes: Mapping[str, Any]
) -> Accumulation:
    """Return the Accumulation that `to` is or names, with what is given in place of its own."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not isinstance(to, Accumulation):
        return Accumulation(to, **given)
    return replace(to, **given) if given else to
