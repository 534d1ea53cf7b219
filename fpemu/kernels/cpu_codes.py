"""The CPU loop that counts how often each code occurs: all there is to know of a narrow tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from fpemu.kernels.compile import jit, source_stamp

__all__ = ["CODE_LANES", "codes_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]

#: Counters of a code: neighbours that are equal would wait for each other's store.
CODE_LANES = 4


@cache
def codes_loop() -> Loop:
    """Return loop(codes, counters): counters[code, lane] += 1 for each code of a flat array.

    codes: uint8 or uint16; counters: uint32 of shape (2**bits, CODE_LANES). The sum over the lanes
    is the count; the caller moves counts on before one of them can wrap.
    """
    lanes, stamp = CODE_LANES, _STAMP

    def loop(codes, counters):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(codes.size // lanes):
            for lane in range(lanes):
                counters[codes[lanes * i + lane], lane] += 1
        for i in range(codes.size // lanes * lanes, codes.size):
            counters[codes[i], 0] += 1

    return jit(loop)
