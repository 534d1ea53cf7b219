"""The CPU loops around the scalar bodies: one loop a verb, built per Cast or once per shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.bits import Bodies, build
from fpemu.kernels.compile import jit, source_stamp
from fpemu.kernels.params import WORDS, Codes, Grid, Results, Shape
from fpemu.kernels.random import build_draw

__all__ = ["decode_loop", "general_loop", "special_loop"]

# Every loop closes over the stamp, so that the disk cache sees a change in any kernel source.
_STAMP = source_stamp()


@cache
def _bodies(bits: int) -> Bodies:
    word = WORDS[bits]
    return build(word.uint, word.mantissa, _inner)


@cache
def _draw(bits: int) -> Callable[..., Any]:
    return build_draw(WORDS[bits].uint, _inner)


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    return jit(function, disk_cache=False)


@cache
def special_loop(
    verb: str, bits: int, grid: Grid, results: Results, shape: Shape
) -> Callable[..., None]:
    """Return loop(x, out, seed, offset) with a Cast's constants built in: as fast as memory."""
    body = getattr(_bodies(bits), verb)
    draw, U, random_bits = _draw(bits), WORDS[bits].uint, int(grid.random_bits)
    stamp = _STAMP

    def loop(x, out, seed, offset):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(x.size):
            r = draw(seed, offset + i, random_bits) if shape.stochastic else U(0)
            out[i] = body(x[i], r, grid, results, shape)

    return jit(loop)


@cache
def general_loop(verb: str, bits: int, shape: Shape) -> Callable[..., None]:
    """Return loop(x, out, seed, offset, constants): any Cast of a shape, constants at run time.

    `constants` is the grid's and the results' fields in one array.
    """
    body = getattr(_bodies(bits), verb)
    draw, U = _draw(bits), WORDS[bits].uint
    n_grid, n_all = len(Grid._fields), len(Grid._fields) + len(Results._fields)
    stamp = _STAMP

    def loop(x, out, seed, offset, constants):  # type: ignore[no-untyped-def]
        pass

    return jit(loop)
