"""The CUDA loop that rounds and counts what became of each number, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cuda import general_body
from fpemu.kernels.cuda_target import Words, cuda, inner, jit, launch, on_device_of
from fpemu.kernels.outcome import LIMITS, OUTCOMES, build
from fpemu.kernels.params import WORDS, Shape
from fpemu.kernels.random import BLOCK

__all__ = ["count_kernel", "round_and_count"]

Array = np.ndarray[Any, Any]
Loop = Callable[..., Any]

U = np.uint32
L = np.uint64

_KINDS = len(OUTCOMES)
_BINS = 2 * _KINDS
#: Elements of a launch: no uint32 counter can wrap.
_LAUNCH = 1 << 31


@cache
def count_kernel(bits: int, shape: Shape, seen_shape: Shape) -> Loop:
    """Return kernel(x, out, size, first, keys, constants, seen, limits, counts).

    constants: of the cast that writes `out`; seen: of the cast whose results are counted, see
    `outcomes.visible`. limits: a tuple of LIMITS words for plus, then for minus. counts: uint64,
    OUTCOMES for plus, then for minus.
    """
    word = WORDS[bits]
    top, kinds = word.uint(bits - 1), U(_KINDS)
    one, look = general_body("round", bits, shape), general_body("round", bits, seen_shape)
    kind = build(word.uint, word.mantissa, inner)

    def kernel(x, out, size, first, keys, constants, seen, limits, counts):  # type: ignore[no-untyped-def]
        bins = cuda.shared.array(_BINS, np.uint32)
        if cuda.threadIdx.x == 0:
            for b in range(_BINS):
                bins[b] = U(0)
        cuda.syncthreads()
        step = L(cuda.gridsize(1))
        i = L(cuda.grid(1))
        while i < size:
            v = x[i]
            r = look(v, i, first, keys, seen)
            minus = (v >> top) != 0
            found = U(kind(
                v, r,
                limits[5] if minus else limits[0],
                limits[6] if minus else limits[1],
                limits[7] if minus else limits[2],
                limits[8] if minus else limits[3],
                limits[9] if minus else limits[4],
            ))  # fmt: skip
            out[i] = one(v, i, first, keys, constants)
            cuda.atomic.add(bins, U(found + kinds) if minus else found, U(1))
            i = L(i + step)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            for b in range(_BINS):
                cuda.atomic.add(counts, b, L(bins[b]))

    assert LIMITS == 5  # the tuple of limits is taken apart by hand
    return jit(kernel)


def round_and_count(
    x: Words, out: Words, shapes: tuple[Shape, Shape], constants: tuple[Array, Array],
    limits: Array, first: Any, keys: Any,
) -> Array:  # fmt: skip
    """Round words on a device; return int64 counts as `outcome_loop` of the CPU does.

    shapes and constants: of the cast, and of the one whose results are counted. x and out may be
    the same memory.
    """
    kernel = count_kernel(8 * x.dtype.itemsize, *shapes)
    with on_device_of(x) as stream:
        counts = cuda.to_device(np.zeros(_BINS, np.uint64), stream=stream)
        for start in range(0, x.size, _LAUNCH):
            stop = min(start + _LAUNCH, x.size)
            part, to = x.part(start, stop), out.part(start, stop)
            launch(kernel, part.size, x, part, to, L(part.size),
                   U((int(first) + start) % BLOCK), tuple(keys), *map(tuple, constants),
                   tuple(limits.ravel()), counts)  # fmt: skip
        found = counts.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
    return found.astype(np.int64).reshape(2, _KINDS)  # type: ignore[no-any-return]
