"""The CPU loops that scale, round and scale back in one pass, each row by factors of its own.

The makers are those of cpu.py: a special loop has a Cast's constants built in, a general one takes
them at run time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fpemu.kernels.compile import jit, source_stamp
from fpemu.kernels.cpu import bodies_of, once, unpack_of
from fpemu.kernels.cpu_intrinsics import bits_of, float_of
from fpemu.kernels.params import Grid, Results, Shape

__all__ = ["general_loop", "special_loop"]

_STAMP = source_stamp()

Loop = Callable[..., None]
U = np.uint32


@once
def special_loop(verb: str, bits: int, grid: Grid, results: Results, shape: Shape) -> Loop:
    """Return loop(x, out, encode, decode): float32 rows times `encode`, through a Cast.

    "round": times `decode` again, as float32, apart from x. "encode": codes.
    """
    body, stamp = getattr(bodies_of(bits), verb), _STAMP
    word, number = bits_of(), float_of()

    def rounded(x, out, encode, decode):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            first, then = encode[row], decode[row]
            for column in range(x.shape[1]):
                scaled = word(x[row, column] * first)
                out[row, column] = number(body(scaled, U(0), grid, results, shape)) * then

    def encoded(x, out, encode, decode):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            first = encode[row]
            for column in range(x.shape[1]):
                scaled = word(x[row, column] * first)
                out[row, column] = body(scaled, U(0), grid, results, shape)

    return jit(rounded if verb == "round" else encoded)


@once
def general_loop(verb: str, bits: int, shape: Shape) -> Loop:
    """Return the same loops with one more argument: the grid and the results as an array."""
    body, stamp = getattr(bodies_of(bits), verb), _STAMP
    word, number, unpack = bits_of(), float_of(), unpack_of(bits)

    def rounded(x, out, encode, decode, constants):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        grid, results = unpack(constants)
        for row in range(x.shape[0]):
            first, then = encode[row], decode[row]
            for column in range(x.shape[1]):
                scaled = word(x[row, column] * first)
                out[row, column] = number(body(scaled, U(0), grid, results, shape)) * then

    def encoded(x, out, encode, decode, constants):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        grid, results = unpack(constants)
        for row in range(x.shape[0]):
            first = encode[row]
            for column in range(x.shape[1]):
                scaled = word(x[row, column] * first)
                out[row, column] = body(scaled, U(0), grid, results, shape)

    return jit(rounded if verb == "round" else encoded)
