"""all_reduce: the sum of arrays over ranks as a ring or a tree sends and adds them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arithmetic.operands import read_operand
from fpemu.arithmetic.operations import add, divide
from fpemu.arithmetic.products import like_operands
from fpemu.cast import Cast, Rounding, make_cast
from fpemu.emulate import round
from fpemu.errors import InputError, short
from fpemu.format import Format

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Topology", "all_reduce"]

Array = np.ndarray[Any, Any]


class Topology(enum.Enum):
    """Which way partial sums take between ranks."""

    RING = "ring"  #: part c of the array starts at rank c and visits c+1, c+2, ...
    TREE = "tree"  #: neighbours' sums meet, then those, and so on


def all_reduce(
    arrays: Sequence[ArrayLike], wire: Cast | Format | str, *,
    accumulator: Cast | Format | str | None = None, topology: Topology | str = Topology.RING,
    average: bool = False, seed: int | None = None,
) -> Any:  # fmt: skip
    """Return what every rank has after the arrays of all ranks were added over a wire.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> gradients = [np.full(4, 0.1, np.float32)] * 8
    >>> arithmetic.all_reduce(gradients, "bf16", accumulator="float32", topology="tree")
    array([0.80078125, 0.80078125, 0.80078125, 0.80078125], dtype=float32)
    >>> arithmetic.all_reduce(gradients, "bf16")
    array([0.8046875, 0.8046875, 0.8046875, 0.8046875], dtype=float32)

    arrays: one a rank, float32 or narrower, of one shape. wire: what is sent is rounded by it.
    accumulator: what arrives plus the rank's own number is rounded by it; `wire` unless given.
    A rank's own numbers are rounded only when it sends them. ring: the array is cut into one part
    a rank; part c starts at rank c, each rank it visits adds its own, and the sum is sent round.
    tree: of two neighbours the right one sends to the left, then two sums meet, and so on; the
    last without a neighbour waits. The total is rounded to the wire once more as it is sent to
    all, and its owner keeps that too: all ranks have the same bits. average: the total is divided
    by the number of ranks first (rounded by the accumulator). seed: for stochastic casts.
    The result is float32, of the library of rank 0's array. Infinity, NaN and overflow follow the
    casts at each step.
    """
    sent, summed = make_cast(wire), make_cast(wire if accumulator is None else accumulator)
    try:
        way = Topology(topology)
    except ValueError:
        raise InputError(f"topology={short(topology)}: must be 'ring' or 'tree'") from None
    arrays, ranks = _read(arrays)
    hops = _Hops(sent, summed, seed, ranks[0].size)
    total = (_ring if way is Topology.RING else _tree)(ranks, hops)
    if average:
        total = divide(total, np.float32(len(ranks)), summed, **hops.draws(summed))
    return like_operands(arrays[:1], hops.send(total).reshape(np.shape(arrays[0])))


class _Hops:
    """Sending and adding, with random bits of its own for each."""

    def __init__(self, wire: Cast, accumulator: Cast, seed: int | None, size: int) -> None:
        self._wire, self._accumulator, self._seed = wire, accumulator, seed
        self._size, self._step = size, 0

    def draws(self, cast: Cast) -> dict[str, Any]:
        """The seed and the offset of one more rounding of up to the whole array."""
        if cast.rounding is not Rounding.STOCHASTIC:
            return {}
        self._step += 1
        return {"seed": self._seed, "offset": (self._step - 1) * self._size}

    def send(self, x: Array) -> Array:
        found: Array = round(x, self._wire, **self.draws(self._wire))
        return found

    def join(self, own: Array, arrived: Array) -> Array:
        found: Array = add(own, arrived, self._accumulator, **self.draws(self._accumulator))
        return found


def _ring(ranks: list[Array], hops: _Hops) -> Array:
    parts = [np.array_split(x, len(ranks)) for x in ranks]
    totals = []
    for c in range(len(ranks)):
        total = parts[c][c]
        for hop in range(1, len(ranks)):
            total = hops.join(parts[(c + hop) % len(ranks)][c], hops.send(total))
        totals.append(total)
    return np.concatenate(totals)


def _tree(ranks: list[Array], hops: _Hops) -> Array:
    while len(ranks) > 1:
        pairs = zip(ranks[::2], ranks[1::2], strict=False)
        sums = [hops.join(left, hops.send(right)) for left, right in pairs]
        ranks = sums + ranks[len(sums) * 2 :]
    return ranks[0]


def _read(arrays: Any) -> tuple[list[Any], list[Array]]:
    """The arrays as given, and flat ones of float32."""
    try:
        given = list(arrays)
    except TypeError:
        raise InputError(f"arrays={short(arrays)}: must be a list of one array a rank") from None
    found = [read_operand(x, "array")[0] for x in given]
    if not found:
        raise InputError("arrays is empty: give one array a rank")
    for rank, x in enumerate(found):
        if x.shape != found[0].shape or x.dtype != np.float32:
            raise InputError(
                f"array of rank {rank} is {x.dtype.name}{list(x.shape)}: all must be float32 or "
                f"narrower, of the shape of rank 0, {list(found[0].shape)}"
            )
    return given, [np.ravel(x) for x in found]
