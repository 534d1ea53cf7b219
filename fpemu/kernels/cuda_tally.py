"""The CUDA loop of the tally: counts in shared memory, merged on the device.

Each block counts in a window of 64 binades of both signs in its shared memory. The window ends a
little above the largest of the block's first numbers, so that few numbers of ordinary data fall
outside; those, and float32's subnormals, are counted in the device's memory at once. Zeros, half
of the numbers behind a ReLU, have a place in shared memory. A last kernel turns places into cells.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.bucket import FINE, ROWS, SLOT_OF_FINE, SLOTS, Bodies, build
from fpemu.kernels.cuda_intrinsics import float_bits, leading_zeros, load
from fpemu.kernels.cuda_target import Words, cuda, inner, jit, launch, on_device_of

__all__ = ["CELLS", "count", "finish_kernel", "tally_kernel"]

Array = np.ndarray[Any, Any]
Loop = Callable[..., Any]

U = np.uint32
L = np.uint64

_WINDOW = 64  # binades of a sign that a block counts in shared memory: 47 KiB of its 48
_ABOVE = 3  # of them above the largest number among the block's first
_HALF = _WINDOW * FINE + 1  # counters of a sign: the window's, and one for all outside
_COUNTS = 2 * _HALF
_ROWS = 512  # values of sign and exponent field
_SUBNORMAL = 23  # binades below the smallest normal
#: Places in the device's memory: each row's fine slots, then the subnormal binades' of each sign.
PLACES = (_ROWS + 2 * _SUBNORMAL) * FINE
#: What the finished tally holds: cells of both signs, then +0, -0, +inf, -inf, NaN.
CELLS = 2 * ROWS * SLOTS + 5

#: Elements of a launch: no uint32 counter can wrap.
_LAUNCH = 1 << 31
_THREADS, _BLOCKS = 512, 3  # of a block, and of a processor: its shared memory and registers


@cache
def bodies() -> Bodies:
    """Return the scalar bodies, compiled for CUDA."""
    return build(U, inner, leading_zeros(), float_bits())


@cache
def place_of() -> Loop:
    """Return place(x, shift) -> (place in the window, whether x lies outside of it).

    The window's rows are the exponent fields from 256 - shift on, and field 0 is never among
    them. What lies outside is counted in its sign's last place.
    """
    left, fine_of = bodies().left, bodies().fine_of
    fines, half, outside = U(FINE), U(_HALF), U(_HALF - 1)
    rows = U(_WINDOW)

    def place(x, shift):  # type: ignore[no-untyped-def]
        row = U(U(U(x >> U(23)) + shift) & U(0xFF))
        inside = row < rows
        found = U(U(row * fines) + fine_of(left(x)))
        found = found if inside else outside
        return U(found + U(U(x >> U(31)) * half)), not inside

    return inner(place)


@cache
def far_place() -> Loop:
    """Return far(x) -> the place in the device's memory of any number."""
    left, fine_of = bodies().left, bodies().fine_of
    normal, binade = bodies().normal, bodies().binade
    fines, rows, deep = U(FINE), U(_ROWS), U(_SUBNORMAL)

    def far(x):  # type: ignore[no-untyped-def]
        a = U(x & U(0x7FFFFFFF))
        row = U(x >> U(23))
        if U(0) < a and a < U(0x800000):
            row = U(U(rows + U(U(x >> U(31)) * deep)) + binade(a))
            a = normal(a)
        return U(U(row * fines) + fine_of(left(a)))

    return inner(far)


@cache
def _add() -> Loop:
    """Return add(counts, x, shift) -> whether x lies outside of the window."""
    place = place_of()

    def add(counts, x, shift):  # type: ignore[no-untyped-def]
        at, outside = place(x, shift)
        cuda.atomic.add(counts, at, U(1))
        return outside

    return inner(add)


@cache
def _add_far() -> Loop:
    """Return add(counts, counters, x, outside): move a number outside to its own counter.

    Zeros stay in the window's last place: they are all that is left there in the end.
    """
    far, half = far_place(), U(_HALF)

    def add(counts, counters, x, outside):  # type: ignore[no-untyped-def]
        if outside and U(x & U(0x7FFFFFFF)) != U(0):
            cuda.atomic.sub(counts, U(U(U(U(x >> U(31)) + U(1)) * half) - U(1)), U(1))
            cuda.atomic.add(counters, far(x), L(1))

    return inner(add)


@cache
def _add_group(group: int) -> Loop:
    """Return add(counts, counters, values, shift) for a wide access of 4, or for 1."""
    add, add_far = _add(), _add_far()

    def four(counts, counters, v, shift):  # type: ignore[no-untyped-def]
        a, b = add(counts, v[0], shift), add(counts, v[1], shift)
        c, d = add(counts, v[2], shift), add(counts, v[3], shift)
        if a or b or c or d:
            add_far(counts, counters, v[0], a)
            add_far(counts, counters, v[1], b)
            add_far(counts, counters, v[2], c)
            add_far(counts, counters, v[3], d)

    def one(counts, counters, v, shift):  # type: ignore[no-untyped-def]
        add_far(counts, counters, v[0], add(counts, v[0], shift))

    return inner({4: four, 1: one}[group])


@cache
def tally_kernel(group: int) -> Loop:
    """Return kernel(x, size, counters); group: elements of a wide access, 4 or 1.

    counters: uint64 of size PLACES; counts are added to it.
    """
    fetch, add, far = load(group), _add_group(group), far_place()
    G = L(group)
    fines, zero, half, last = U(FINE), U(FINE // 2), U(_HALF), U(_HALF - 1)

    def kernel(x, size, counters):  # type: ignore[no-untyped-def]
        counts = cuda.shared.array(_COUNTS, np.uint32)
        top = cuda.shared.array(1, np.uint32)
        step = L(cuda.gridsize(1))
        t = U(cuda.threadIdx.x)
        while t < U(_COUNTS):
            counts[t] = U(0)
            t = U(t + U(cuda.blockDim.x))
        if cuda.threadIdx.x == 0:
            top[0] = U(0)
        cuda.syncthreads()
        g = L(cuda.grid(1))
        groups = L(size // G)
        if g < groups:
            field = U(U(x[g * G] >> U(23)) & U(0xFF))
            cuda.atomic.max(top, 0, field if field < U(0xFF) else U(0))
        cuda.syncthreads()
        highest = U(top[0] + U(_ABOVE))
        highest = highest if highest > U(_WINDOW) else U(_WINDOW)
        highest = highest if highest < U(0xFF) else U(0xFF)
        first = U(highest - U(_WINDOW - 1))  # the window's lowest exponent field, 1 to 192
        shift = U(U(256) - first)
        while g < groups:
            add(counts, counters, fetch(x, g), shift)
            g = L(g + step)
        i = L(L(groups * G) + L(cuda.grid(1)))
        if i < size:
            cuda.atomic.add(counters, far(x[i]), L(1))
        cuda.syncthreads()
        t = U(cuda.threadIdx.x)
        while t < U(_COUNTS):
            n = counts[t]
            if n != U(0):
                sign = U(1) if t >= half else U(0)
                w = U(t - U(sign * half))
                to = zero if w == last else U(U(first * fines) + w)
                cuda.atomic.add(counters, U(to + U(U(sign * U(256)) * fines)), L(n))
            t = U(t + U(cuda.blockDim.x))

    return jit(kernel)


@cache
def clear_kernel() -> Loop:
    """Return kernel(counts, size): zeros."""

    def kernel(counts, size):  # type: ignore[no-untyped-def]
        i = L(cuda.grid(1))
        while i < size:
            counts[i] = L(0)
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def finish_kernel() -> Loop:
    """Return kernel(counters, slot_of, cells): add every place's count to its cell.

    cells: uint64 of size CELLS. slot_of: SLOT_OF_FINE.
    """
    places, fines, rows, slots = L(PLACES), L(FINE), L(ROWS), L(SLOTS)
    exact, specials = L(FINE // 2), L(CELLS - 5)
    deep, normal_rows = L(_SUBNORMAL), L(_ROWS)

    def kernel(counters, slot_of, cells):  # type: ignore[no-untyped-def]
        i = L(cuda.grid(1))
        while i < places:
            n = counters[i]
            if n != L(0):
                row, fine = L(i // fines), L(i % fines)
                sign, field = L(row // L(256)), L(row % L(256))
                to = L(L(L(sign * rows) + L(field + deep - L(1))) * slots)
                if row >= normal_rows:  # a subnormal binade
                    row = L(row - normal_rows)
                    to = L(L(L(L(row // deep) * rows) + L(row % deep)) * slots)
                to = L(to + L(slot_of[fine]))
                if row < normal_rows and field == L(0) and i < L(normal_rows * fines):
                    to = L(specials + sign)
                if field == L(255) and i < L(normal_rows * fines):
                    to = L(specials + (L(L(2) + sign) if fine == exact else L(4)))
                cuda.atomic.add(cells, to, n)
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


def count(x: Words) -> tuple[Array, int, tuple[int, ...]]:
    """Count uint32 words on a device; the result is that of `kernels.count.count`."""
    with on_device_of(x) as stream:
        counters = cuda.device_array(PLACES, np.uint64, stream=stream)
        cells = cuda.device_array(CELLS, np.uint64, stream=stream)
        slot_of = cuda.to_device(SLOT_OF_FINE, stream=stream)
        for array in (counters, cells):
            launch(clear_kernel(), array.size, x, array, L(array.size))
        for start in range(0, x.size, _LAUNCH):
            part = x.part(start, min(start + _LAUNCH, x.size))
            group = 4 if part.pointer % 16 == 0 else 1
            launch(tally_kernel(group), -(-part.size // group), x, part, L(part.size),
                   counters, threads=_THREADS, blocks_a_processor=_BLOCKS)  # fmt: skip
        launch(finish_kernel(), PLACES, x, counters, slot_of, cells)
        found = cells.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
    counts = found.astype(np.int64)
    return _trimmed(counts[:-5].reshape(2, ROWS, SLOTS), counts[-5:])


def _trimmed(cells: Array, specials: Array) -> tuple[Array, int, tuple[int, ...]]:
    used = np.flatnonzero(cells.any(axis=(0, 2)))
    first, end = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    return cells[:, first:end].copy(), first, tuple(specials.tolist())
