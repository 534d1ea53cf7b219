"""Plan: which loop serves a verb and a Cast, given how much work it has seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fpemu.cast import Cast
from fpemu.format import Format
from fpemu.kernels.params import WORDS, codes_of, general_shape, params_of

__all__ = ["Plan", "decode_plan", "forget", "new_plan", "plan"]

#: Elements after which a Cast gets a loop of its own. Compiling one costs about 0.2 s, the
#: general loop about 0.3 ns an element more than a special one; see docs/performance.md.
HOT = 1 << 28

#: The same on a CUDA device: compiling costs more there, and an element less.
HOT_CUDA = 1 << 32

#: The general loop looks codes of so many bits up in a table: one load takes a third of the
#: arithmetic. Tables of 16 bits (256 KiB) still fit the second cache.
_TABLED = 16


class Plan:
    """The loops of one verb and one Cast: general at first, its own once that pays."""

    def __init__(self, special: Any, general: Any, constants: Any, hot: int = HOT) -> None:
        self._hot = hot
        self._make_special = special
        self._make_general = general
        self._constants = constants
        self._special: Any = None
        self._general: Any = None
        self._seen = 0
        #: Applies the verb: (x, out, *draws), flat arrays; on the CPU out=None is x.
        self.run: Callable[..., None] = self._count

    def _count(self, x: Any, out: Any, *draws: Any) -> None:
        if self._special is None:
            self._seen += x.size
            if self._seen < self._hot:
                if self._general is None:
                    self._general = self._make_general()
                self._general(x, out, *draws, self._constants)
                return
            self.specialise()
        self._special(x, out, *draws)

    def specialise(self) -> None:
        """Build the Cast's own loop now."""
        if self._special is None:
            self._special = self.run = self._make_special()


_PLANS: dict[tuple[str, int, int, int, str], tuple[Cast, Plan]] = {}


def plan(verb: str, cast: Cast, bits: int, random_bits: int, target: str = "cpu") -> Plan:
    """Return the plan for "round" or "encode" under a cast, for float32 or float64 words.

    target: "cpu"; "cuda" for loops over a device's memory; "scaled" for those of cpu_scaled.py.

    Looked up by the cast's identity first, as hashing and comparing it takes half a microsecond
    of every small call; equal casts share their plan.
    """
    key = (verb, id(cast), bits, random_bits, target)
    found = _PLANS.get(key)
    if found is None:
        if len(_PLANS) >= 4096:  # of casts made in a loop; their loops stay compiled
            _PLANS.clear()
        found = _PLANS[key] = (cast, _shared_plan(verb, cast, bits, random_bits, target))
    return found[1]  # the cast is kept beside it, so that its identity is not given away


def forget() -> None:
    """Drop every plan, and so what each has seen."""
    _PLANS.clear()
    _shared_plan.cache_clear()
    decode_plan.cache_clear()


def _loops(target: str) -> tuple[Any, int]:
    """The module that makes a target's loops, and when a Cast gets its own there."""
    if target == "cuda":
        from fpemu.kernels import cuda

        return cuda, HOT_CUDA
    if target == "scaled":
        from fpemu.kernels import cpu_scaled

        return cpu_scaled, HOT
    from fpemu.kernels import cpu

    return cpu, HOT


def new_plan(verb: str, cast: Cast, bits: int, random_bits: int, target: str = "cpu") -> Plan:
    """Return a plan that has seen nothing yet."""
    loops, hot = _loops(target)
    p = params_of(cast, bits, random_bits)
    results = p.values if verb == "round" else p.codes
    return Plan(
        lambda: loops.special_loop(verb, bits, p.grid, results, p.shape),
        lambda: loops.general_loop(verb, bits, general_shape(p.shape)),
        np.array([*p.grid, *results], WORDS[bits].uint),
        hot,
    )


_shared_plan = lru_cache(maxsize=1024)(new_plan)


@lru_cache(maxsize=256)
def decode_plan(form: Format, bits: int, target: str = "cpu") -> Plan:
    """Return the plan that decodes a format's codes to float32 or float64 words."""
    loops, hot = _loops(target)
    facts = codes_of(form, bits)
    constants = np.array([*facts], WORDS[bits].uint)
    if target == "cpu" and form.bits <= _TABLED:
        general, constants = loops.lookup_loop(), _table(loops, form, bits, constants)
    else:
        general = loops.decode_loop(bits, None)
    return Plan(lambda: loops.decode_loop(bits, facts), lambda: general, constants, hot)


def _table(loops: Any, form: Format, bits: int, constants: Any) -> Any:
    table = np.empty(1 << form.bits, WORDS[bits].uint)
    loops.decode_loop(bits, None)(np.arange(table.size, dtype=np.uint16), table, constants)
    return table
