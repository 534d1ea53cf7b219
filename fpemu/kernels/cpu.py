"""The CPU loops around the scalar bodies, built twice from one source.

`special_loop` has a Cast's constants built in and runs as fast as memory; `general_loop` takes
them at run time and serves every Cast of a shape, so that it compiles only a few times.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import Any

import numpy as np

from fpemu.kernels.bits import Bodies, build
from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.params import WORDS, Codes, Grid, Results, Shape, build_unpack
from fpemu.kernels.random import build_draw

__all__ = [
    "bodies_of",
    "decode_loop",
    "general_loop",
    "lookup_loop",
    "once",
    "special_loop",
    "unpack_of",
]

# Every loop closes over the stamp, so that the disk cache sees a change in any kernel source.
_STAMP = source_stamp()

Loop = Callable[..., None]
H = WORDS[32].uint  # indices inside a block of 2**32 elements


_building = RLock()
if hasattr(os, "register_at_fork"):  # a child must not find it held by a thread it does not have
    os.register_at_fork(
        before=_building.acquire,
        after_in_parent=_building.release,
        after_in_child=_building.release,
    )


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache what is made, and let threads that ask together wait for one making."""
    made = cache(make)

    @wraps(make)
    def ask(*key: Any) -> Any:
        with _building:
            return made(*key)

    return ask


@cache
def bodies_of(bits: int) -> Bodies:
    """Return the scalar bodies of a word, to be compiled into loops."""
    return build(WORDS[bits].uint, WORDS[bits].mantissa, inner)


@cache
def unpack_of(bits: int) -> Callable[..., Any]:
    """Return what reads the constants of a general loop."""
    return build_unpack(bits, inner)


@cache
def _words() -> Callable[..., Any]:
    """Return array -> a float array's memory as words, and words as they are.

    Inside the loop it costs nothing; a view made in Python takes 0.4 microseconds.
    """
    from numba import types
    from numba.extending import overload

    def words(array):  # type: ignore[no-untyped-def]
        word = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}
        return array.view(word.get(array.dtype, array.dtype))

    @overload(words, inline="always")
    def typed(array):  # type: ignore[no-untyped-def]
        if array.dtype == types.float32:
            return lambda array: array.view(np.uint32)
        if array.dtype == types.float64:
            return lambda array: array.view(np.uint64)
        return lambda array: array

    return words


@cache
def _target() -> Callable[..., Any]:
    """Return (x, out) -> where to write: out's words, or x for None."""
    from numba import types
    from numba.extending import overload

    words = _words()

    def target(x, out):  # type: ignore[no-untyped-def]
        return x if out is None else words(out)

    @overload(target, inline="always")
    def typed(x, out):  # type: ignore[no-untyped-def]
        if isinstance(out, types.NoneType):
            return lambda x, out: x
        return lambda x, out: words(out)

    return target


@once
def special_loop(verb: str, bits: int, grid: Grid, results: Results, shape: Shape) -> Loop:
    """Return loop(x, out), or loop(x, out, first, keys) for stochastic casts.

    out=None is x itself: of one array LLVM knows that no element is read after it was written; of
    two that may be the same it finds out at run time, and then does not vectorise.
    """
    body, U, stamp = getattr(bodies_of(bits), verb), WORDS[bits].uint, _STAMP
    words, target = _words(), _target()
    if shape.stochastic:
        draw = build_draw(bits, inner)
        shift = bits - int(grid.random_bits)

        def stochastic(x, out, first, keys):  # type: ignore[no-untyped-def]
            stamp  # noqa: B018
            k = (keys[0], keys[1], keys[2], keys[3], keys[4], keys[5])  # out of the loop
            x = words(x)
            out = target(x, out)
            for i in range(x.size):
                spare = draw(H(first + H(i)), k, shift)
                out[i] = body(x[i], spare, grid, results, shape)

        return jit(stochastic)

    def loop(x, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        x = words(x)
        out = target(x, out)
        for i in range(x.size):
            out[i] = body(x[i], U(0), grid, results, shape)

    return jit(loop)


@once
def general_loop(verb: str, bits: int, shape: Shape) -> Loop:
    """Return the same loops with one more argument: the grid and the results as an array."""
    body, U, stamp = getattr(bodies_of(bits), verb), WORDS[bits].uint, _STAMP
    words, target = _words(), _target()
    unpack = unpack_of(bits)
    if shape.stochastic:
        draw = build_draw(bits, inner)

        def stochastic(x, out, first, keys, constants):  # type: ignore[no-untyped-def]
            stamp  # noqa: B018
            grid, results = unpack(constants)
            shift = U(bits) - grid.random_bits
            k = (keys[0], keys[1], keys[2], keys[3], keys[4], keys[5])  # out of the loop
            x = words(x)
            out = target(x, out)
            for i in range(x.size):
                spare = draw(H(first + H(i)), k, shift)
                out[i] = body(x[i], spare, grid, results, shape)

        return jit(stochastic)

    def loop(x, out, constants):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        grid, results = unpack(constants)
        x = words(x)
        out = target(x, out)
        for i in range(x.size):
            out[i] = body(x[i], U(0), grid, results, shape)

    return jit(loop)


@once
def decode_loop(bits: int, codes: Codes | None) -> Loop:
    """Return loop(codes, out) for one format, or loop(codes, out, constants) for any."""
    body, U, stamp = bodies_of(bits).decode, WORDS[bits].uint, _STAMP
    words = _words()
    if codes is not None:
        facts = codes
        narrow = bool(codes.lowest > WORDS[bits].mantissa)

        def special(x, out):  # type: ignore[no-untyped-def]
            stamp  # noqa: B018
            out = words(out)
            for i in range(x.size):
                out[i] = body(U(x[i]), facts, narrow)

        return jit(special)

    def general(x, out, c):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        facts = Codes(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9])
        out = words(out)
        for i in range(x.size):
            out[i] = body(U(x[i]), facts, True)

    return jit(general)


@once
def lookup_loop() -> Loop:
    """Return loop(codes, out, table): the word of each code, from a table of all."""
    words, stamp = _words(), _STAMP

    def lookup(codes, out, table):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        out = words(out)
        for i in range(codes.size):
            out[i] = table[codes[i]]

    return jit(lookup)
