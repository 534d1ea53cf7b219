"""The CUDA loops around the scalar bodies; the makers are those of cpu.py.

Each thread takes whole groups of elements, one wide load and one wide store each, and steps over
the grid; what is left after the last whole group is taken singly, and so is everything where a
pointer is not aligned for a group. Sizes and indices have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.bits import Bodies, build
from fpemu.kernels.cuda_intrinsics import leading_zeros, load, store
from fpemu.kernels.cuda_target import Words, cuda, inner, jit, launch
from fpemu.kernels.params import WORDS, Codes, Grid, Results, Shape, build_unpack
from fpemu.kernels.random import build_draw

__all__ = ["decode_loop", "elementwise_kernel", "general_loop", "special_loop"]

Loop = Callable[..., Any]

_NO_KEYS = (np.uint64(0),) * 6
_NONE = np.uint32(0)


@cache
def bodies(bits: int) -> Bodies:
    """Return the scalar bodies, compiled for CUDA."""
    return build(WORDS[bits].uint, WORDS[bits].mantissa, inner, leading_zeros())


@cache
def special_loop(verb: str, bits: int, grid: Grid, results: Results, shape: Shape) -> Loop:
    """Return loop(x, out), or loop(x, out, first, keys) for stochastic casts, over Words."""
    return _loop(special_body(verb, bits, grid, results, shape), bits)


@cache
def general_loop(verb: str, bits: int, shape: Shape) -> Loop:
    """Return the same loops with one more argument: the grid and the results as an array."""
    return _loop(general_body(verb, bits, shape), bits)


@cache
def decode_loop(bits: int, codes: Codes | None) -> Loop:
    """Return loop(codes, out) for one format, or loop(codes, out, constants) for any."""
    return _loop(decode_body(bits, codes), bits)


# --- what is done to one element ---------------------------------------------------------------

# Every body takes (element, its index, first, keys, constants) and leaves unused what it does not
# need, so that one kernel serves all; arguments that are not read cost nothing.


@cache
def special_body(verb: str, bits: int, grid: Grid, results: Results, shape: Shape) -> Loop:
    """Return one(x, i, first, keys, constants), a Cast's constants built in."""
    body, spare_of = getattr(bodies(bits), verb), _spare_of(bits, shape)
    shift = np.uint32(bits - int(grid.random_bits))

    def one(x, i, first, keys, constants):  # type: ignore[no-untyped-def]
        return body(x, spare_of(i, first, keys, shift), grid, results, shape)

    return inner(one)


@cache
def general_body(verb: str, bits: int, shape: Shape) -> Loop:
    """Return the same with the grid and the results from the constants."""
    body, spare_of = getattr(bodies(bits), verb), _spare_of(bits, shape)
    unpack, width, U = build_unpack(bits, inner), WORDS[bits].uint(bits), WORDS[bits].uint

    def one(x, i, first, keys, constants):  # type: ignore[no-untyped-def]
        grid, results = unpack(constants)
        shift = U(width - grid.random_bits)
        return body(x, spare_of(i, first, keys, shift), grid, results, shape)

    return inner(one)


@cache
def decode_body(bits: int, codes: Codes | None) -> Loop:
    """Return one(code, ...) -> word, for one format or by the constants.

    Codes come unchecked: bits above the format's own are masked.
    """
    body, U = bodies(bits).decode, WORDS[bits].uint
    facts = codes
    narrow = True if codes is None else bool(codes.lowest > WORDS[bits].mantissa)
    mask = U(0) if codes is None else _mask(codes)

    def special(code, i, first, keys, constants):  # type: ignore[no-untyped-def]
        return body(U(U(code) & mask), facts, narrow)

    def general(code, i, first, keys, c):  # type: ignore[no-untyped-def]
        given = Codes(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9])
        own = U(given.code_mask | U(given.signed << given.sign_shift))
        return body(U(U(code) & own), given, True)

    return inner(general if codes is None else special)


def _mask(codes: Codes) -> Any:
    return codes.code_mask | (codes.signed << codes.sign_shift)


@cache
def _spare_of(bits: int, shape: Shape) -> Loop:
    """Return spare_of(i, first, keys, shift): the random word of an element, or 0."""
    U, H = WORDS[bits].uint, np.uint32
    draw = build_draw(bits, inner)

    def drawn(i, first, keys, shift):  # type: ignore[no-untyped-def]
        return draw(H(first + H(i)), keys, shift)

    def none(i, first, keys, shift):  # type: ignore[no-untyped-def]
        return U(0)

    return inner(drawn if shape.stochastic else none)


# --- the loop over elements --------------------------------------------------------------------


@cache
def elementwise_kernel(one: Loop, group: int) -> Loop:
    """Return kernel(x, out, size, first, keys, constants); group: elements of a wide access."""
    fetch, put, many = load(group), store(group), _many(one, group)
    G = np.uint64(group)

    def kernel(x, out, size, first, keys, constants):  # type: ignore[no-untyped-def]
        step = np.uint64(cuda.gridsize(1))
        g = np.uint64(cuda.grid(1))
        groups = np.uint64(size // G)
        while g < groups:
            put(out, g, many(fetch(x, g), np.uint64(g * G), first, keys, constants))
            g = np.uint64(g + step)
        i = np.uint64(np.uint64(groups * G) + np.uint64(cuda.grid(1)))
        while i < size:
            out[i] = one(x[i], i, first, keys, constants)
            i = np.uint64(i + step)

    return jit(kernel)


@cache
def _many(one: Loop, group: int) -> Loop:
    """Return many(values, i, first, keys, constants): `one` of each value of a group at i."""
    L = np.uint64

    def four(v, i, first, keys, constants):  # type: ignore[no-untyped-def]
        return (
            one(v[0], i, first, keys, constants),
            one(v[1], L(i + L(1)), first, keys, constants),
            one(v[2], L(i + L(2)), first, keys, constants),
            one(v[3], L(i + L(3)), first, keys, constants),
        )

    def two(v, i, first, keys, constants):  # type: ignore[no-untyped-def]
        return (
            one(v[0], i, first, keys, constants),
            one(v[1], L(i + L(1)), first, keys, constants),
        )

    return inner({4: four, 2: two}[group])


@cache
def single_kernel(one: Loop) -> Loop:
    """Return the same kernel, one element an access, for pointers that are not aligned."""

    def kernel(x, out, size, first, keys, constants):  # type: ignore[no-untyped-def]
        step = np.uint64(cuda.gridsize(1))
        i = np.uint64(cuda.grid(1))
        while i < size:
            out[i] = one(x[i], i, first, keys, constants)
            i = np.uint64(i + step)

    return jit(kernel)


def _loop(one: Loop, bits: int) -> Loop:
    group = 128 // bits

    def loop(x: Words, out: Words, *more: Any) -> None:
        if not x.size:
            return
        first, keys, constants = _arguments(more)
        wide = all(w.pointer % (group * w.dtype.itemsize) == 0 for w in (x, out))
        kernel = elementwise_kernel(one, group) if wide else single_kernel(one)
        work = -(-x.size // group) if wide else x.size
        launch(kernel, work, x, x, out, np.uint64(x.size), first, keys,
               constants)  # fmt: skip

    return loop


def _arguments(more: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """first, keys, constants of a loop's arguments: (), (constants), (first, keys), or all."""
    drawn, constants = divmod(len(more), 2)
    first, keys = more[:2] if drawn else (_NONE, _NO_KEYS)
    return first, tuple(keys), tuple(more[-1]) if constants else (_NONE,)
