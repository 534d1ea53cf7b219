"""The CUDA kernels of scaled blocks: largest magnitudes, scales and elements.

An array of any shape and axis is rows of numbers that lie `inner` apart, one row beside the next;
each row is cut into segments, and a segment lies in one block. Where inner is 1, a few threads
share a segment, and each reads whole groups of numbers beside those of its neighbour; else a
thread has a segment of its own, and its neighbours those of the rows beside.

Where a segment is a block, one pass does all: the largest magnitude, through shared memory, the
scale, and the elements from what is still in the first cache. Otherwise one kernel finds the
blocks' magnitudes, one makes their scales, and one rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cuda_intrinsics import load, store
from fpemu.kernels.cuda_numbers import Work, group_body, kept_body, scale_body
from fpemu.kernels.cuda_segments import Segments, make_block_of, make_number_of, make_place_of
from fpemu.kernels.cuda_target import THREADS, cuda, inner, jit
from fpemu.kernels.scale import ScaleFacts

__all__ = [
    "amax_kernel",
    "apply_kernel",
    "block_kernel",
    "clear_kernel",
    "kept_kernel",
    "scale_kernel",
    "top_kernel",
]

Loop = Callable[..., Any]

U = np.uint32
L = np.uint64

_TOPS = 2 * THREADS
_MAGNITUDE = U(0x7FFFFFFF)


# --- the largest magnitude ---------------------------------------------------------------------


@cache
def _largest(group: int) -> Loop:
    """Return largest(values, top): of top and a group's magnitudes."""

    def larger(v, top):  # type: ignore[no-untyped-def]
        a = U(v & _MAGNITUDE)
        return a if a > top else top

    one = inner(larger)

    def four(v, top):  # type: ignore[no-untyped-def]
        return one(v[3], one(v[2], one(v[1], one(v[0], top))))

    def single(v, top):  # type: ignore[no-untyped-def]
        return one(v[0], top)

    return inner({4: four, 1: single}[group])


@cache
def _segment_top(segments: Segments) -> Loop:
    """Return top(x, origin, segment, lane, layout): the largest of a thread's share."""
    fetch, largest = load(segments.group), _largest(segments.group)
    size, lanes, G = L(segments.size // segments.group), segments.lanes, L(segments.group)
    strided, rounds = segments.strided, segments.rounds

    def top_of(x, origin, segment, lane, layout):  # type: ignore[no-untyped-def]
        top = U(0)
        start = L(segment * size)
        rest = L(L(layout[1] // G) - start)
        left = U(rest if rest < size else size)
        first = L(L(L(origin // G) + start) + L(lane))
        if strided:
            first = L(L(start * layout[2]) + origin)
        for k in range(rounds):  # a constant: a while loop is unrolled for thousands
            if U(lane + U(k * lanes)) < left:
                further = L(L(k * lanes) * layout[2]) if strided else L(k * lanes)
                top = largest(fetch(x, L(first + further)), top)
        return top

    return inner(top_of)


@cache
def _shared_top(lanes: int) -> Loop:
    """Return shared(tops, half, top): the largest of the threads that share a segment.

    tops: two halves of shared memory, taken in turn: while one is still read, the other is
    written to, so that one barrier in each round is enough.
    """
    mask = U(THREADS - lanes)

    def shared(tops, half, top):  # type: ignore[no-untyped-def]
        t = U(cuda.threadIdx.x)
        tops[U(half + t)] = top
        cuda.syncthreads()
        first = U(half + U(t & mask))
        for k in range(lanes):
            other = U(tops[U(first + U(k))])
            top = other if other > top else top
        return top

    def alone(tops, half, top):  # type: ignore[no-untyped-def]
        return top

    return inner(shared if lanes > 1 else alone)


# --- elements ----------------------------------------------------------------------------------


@cache
def _segment_apply(work: Work, segments: Segments) -> Loop:
    """Return apply(x, out, origin, segment, lane, layout, number, encode, decode, table)."""
    fetch, put = load(segments.group), store(segments.group)
    many = group_body(work, segments.group)
    size, lanes, G = L(segments.size // segments.group), segments.lanes, L(segments.group)
    strided, rounds = segments.strided, segments.rounds

    def apply(x, out, origin, segment, lane, layout, number, encode, decode, table):  # type: ignore[no-untyped-def]
        start = L(segment * size)
        rest = L(L(layout[1] // G) - start)
        left = U(rest if rest < size else size)
        first = L(L(L(origin // G) + start) + L(lane))
        counted = L(number + L(L(start + L(lane)) * G))
        if strided:
            first = L(L(start * layout[2]) + origin)
        for k in range(rounds):
            if U(lane + U(k * lanes)) < left:
                further = L(L(k * lanes) * layout[2]) if strided else L(k * lanes)
                place = L(first + further)
                n = L(counted + L(L(k * lanes) * G))
                put(out, place, many(fetch(x, place), n, encode, decode, table))

    return inner(apply)


# --- kernels -----------------------------------------------------------------------------------


@cache
def block_kernel(scale: ScaleFacts, work: Work, segments: Segments) -> Loop:
    """Return kernel(x, out, stored, table, whole, layout): one pass, a block a segment.

    stored: what is kept of each scale, by "encode" alone. table: of the element, or of random
    keys. whole: the tensor's scale, as bits. x may be out.
    """
    scale_of = scale_body(scale)
    place_of, number_of = make_place_of(segments.strided), make_number_of(segments)
    top_of, apply = _segment_top(segments), _segment_apply(work, segments)
    shared_top = _shared_top(segments.lanes)
    lanes, keeps = U(segments.lanes), work.verb == "encode"
    half_size = U(THREADS)

    def kernel(x, out, stored, table, whole, layout):  # type: ignore[no-untyped-def]
        tops = cuda.shared.array(_TOPS, np.uint32)
        lane = U(U(cuda.threadIdx.x) % lanes)
        own = U(U(cuda.threadIdx.x) // lanes)
        units = U(U(cuda.blockDim.x) // lanes)  # of the block, at a time
        base = L(L(cuda.blockIdx.x) * L(units))
        step = L(L(cuda.gridDim.x) * L(units))
        half = U(0)
        while base < layout[0]:  # the same for all threads: there is a barrier inside
            unit = L(base + L(own))
            live = unit < layout[0]
            row, segment, origin = place_of(unit if live else L(0), layout)
            top = top_of(x, origin, segment, lane, layout) if live else U(0)
            top = shared_top(tops, half, top)
            if live:
                encode, decode, kept = scale_of(top, whole)
                number = number_of(row, layout)
                apply(x, out, origin, segment, lane, layout, number, encode, decode, table)
                if keeps and lane == U(0):
                    stored[L(L(row * layout[3]) + segment)] = kept
            half = U(half_size - half)
            base = L(base + step)

    return jit(kernel)


@cache
def amax_kernel(segments: Segments) -> Loop:
    """Return kernel(x, amax, layout): raise each block's entry to its largest magnitude."""
    place_of, block_of = make_place_of(segments.strided), make_block_of(segments)
    top_of, shared_top = _segment_top(segments), _shared_top(segments.lanes)
    lanes, half_size = U(segments.lanes), U(THREADS)

    def kernel(x, amax, layout):  # type: ignore[no-untyped-def]
        tops = cuda.shared.array(_TOPS, np.uint32)
        lane = U(U(cuda.threadIdx.x) % lanes)
        own = U(U(cuda.threadIdx.x) // lanes)
        units = U(U(cuda.blockDim.x) // lanes)  # of the block, at a time
        base = L(L(cuda.blockIdx.x) * L(units))
        step = L(L(cuda.gridDim.x) * L(units))
        half = U(0)
        while base < layout[0]:
            unit = L(base + L(own))
            live = unit < layout[0]
            row, segment, origin = place_of(unit if live else L(0), layout)
            top = top_of(x, origin, segment, lane, layout) if live else U(0)
            top = shared_top(tops, half, top)
            if live and lane == U(0):
                cuda.atomic.max(amax, block_of(row, segment, layout), top)
            half = U(half_size - half)
            base = L(base + step)

    return jit(kernel)


@cache
def top_kernel(group: int) -> Loop:
    """Return kernel(x, size, amax): raise amax[0] to the largest magnitude of all."""
    fetch, largest = load(group), _largest(group)
    G = L(group)

    def kernel(x, size, amax):  # type: ignore[no-untyped-def]
        shared = cuda.shared.array(1, np.uint32)
        if cuda.threadIdx.x == 0:
            shared[0] = U(0)
        cuda.syncthreads()
        step, g = L(cuda.gridsize(1)), L(cuda.grid(1))
        groups = L(size // G)
        top = U(0)
        while g < groups:
            top = largest(fetch(x, g), top)
            g = L(g + step)
        i = L(L(groups * G) + L(cuda.grid(1)))
        if i < size:
            a = U(U(x[i]) & _MAGNITUDE)
            top = a if a > top else top
        cuda.atomic.max(shared, 0, top)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            cuda.atomic.max(amax, 0, shared[0])

    return jit(kernel)


@cache
def clear_kernel() -> Loop:
    """Return kernel(words, size): zeros."""

    def kernel(words, size):  # type: ignore[no-untyped-def]
        i = L(cuda.grid(1))
        while i < size:
            words[i] = U(0)
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def scale_kernel(scale: ScaleFacts) -> Loop:
    """Return kernel(amax, encode, decode, stored, size, whole): the scales of blocks."""
    scale_of = scale_body(scale)

    def kernel(amax, encode, decode, stored, size, whole):  # type: ignore[no-untyped-def]
        i = L(cuda.grid(1))
        while i < size:
            before, after, kept = scale_of(U(amax[i]), whole)
            encode[i] = before
            decode[i] = after
            stored[i] = kept
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def kept_kernel(scale: ScaleFacts) -> Loop:
    """Return kernel(stored, decode, size, whole): factors from scales as stored."""
    kept_of = kept_body(scale)

    def kernel(stored, decode, size, whole):  # type: ignore[no-untyped-def]
        i = L(cuda.grid(1))
        while i < size:
            decode[i] = kept_of(U(stored[i]), whole)
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def apply_kernel(work: Work, segments: Segments) -> Loop:
    """Return kernel(x, out, encode, decode, table, layout): elements, by their blocks' factors."""
    place_of, block_of = make_place_of(segments.strided), make_block_of(segments)
    number_of, apply = make_number_of(segments), _segment_apply(work, segments)
    lanes = L(segments.lanes)

    def kernel(x, out, encode, decode, table, layout):  # type: ignore[no-untyped-def]
        lane = U(U(cuda.threadIdx.x) % U(lanes))
        unit = L(L(cuda.grid(1)) // lanes)
        step = L(L(cuda.gridsize(1)) // lanes)
        while unit < layout[0]:
            row, segment, origin = place_of(unit, layout)
            block = block_of(row, segment, layout)
            number = number_of(row, layout)
            before, after = U(encode[block]), U(decode[block])
            apply(x, out, origin, segment, lane, layout, number, before, after, table)
            unit = L(unit + step)

    return jit(kernel)
