"""The CUDA kernels of small groups along an axis: codes packed in bytes, numbers rotated.

A group's members lie `inner` apart; groups are numbered so that neighbours lie side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cpu_packing import group_of
from fpemu.kernels.cuda_intrinsics import arithmetic
from fpemu.kernels.cuda_target import cuda, inner, jit
from fpemu.kernels.scale import float_word

__all__ = ["CHUNK", "pack_kernel", "rotate_kernel", "unpack_kernel"]

Loop = Callable[..., Any]

U = np.uint32
L = np.uint64

CHUNK = 1024  #: numbers that a block of threads rotates at a time, in shared memory


@cache
def _place_of() -> Loop:
    """Return place(group, size, inner): where a group of `size` numbers starts."""

    def place(group, size, step):  # type: ignore[no-untyped-def]
        if step == L(1):
            return L(group * size)
        row = L(group // step)
        return L(L(L(row * size) * step) + L(group - L(row * step)))

    return inner(place)


@cache
def pack_kernel(bits: int) -> Loop:
    """Return kernel(codes, octets, groups, inner): codes side by side, the first lowest."""
    count, size = group_of(bits)
    place_of, width = _place_of(), bits

    def kernel(codes, octets, groups, step):  # type: ignore[no-untyped-def]
        group = L(cuda.grid(1))
        while group < groups:
            at, to = place_of(group, L(count), step), place_of(group, L(size), step)
            word = L(0)
            for k in range(count):
                code = L(codes[L(at + L(L(k) * step))])
                word = L(word | L(code << L(width * k)))
            for k in range(size):
                octets[L(to + L(L(k) * step))] = U(L(word >> L(8 * k)) & L(0xFF))
            group = L(group + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def unpack_kernel(bits: int) -> Loop:
    """Return kernel(octets, codes, groups, inner): what `pack_kernel` put side by side."""
    count, size = group_of(bits)
    place_of, width, mask = _place_of(), bits, L((1 << bits) - 1)

    def kernel(octets, codes, groups, step):  # type: ignore[no-untyped-def]
        group = L(cuda.grid(1))
        while group < groups:
            at, to = place_of(group, L(size), step), place_of(group, L(count), step)
            word = L(0)
            for k in range(size):
                octet = L(octets[L(at + L(L(k) * step))])
                word = L(word | L(octet << L(8 * k)))
            for k in range(count):
                codes[L(to + L(L(k) * step))] = U(L(word >> L(width * k)) & mask)
            group = L(group + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def rotate_kernel(size: int, strided: bool, back: bool) -> Loop:
    """Return kernel(x, out, flips, groups, inner): each group times H / sqrt(size).

    flips: the sign bit of each number whose sign is flipped, before or, with back, after.
    strided: inner is not 1. x may be out. Sums and differences are those of
    `fpemu.scaling.hadamard`, in its order.
    """
    plus, minus, times = arithmetic().plus, arithmetic().minus, arithmetic().times
    place_of, together = _place_of(), CHUNK // size
    # neighbouring threads hold what lies side by side
    apart, beside = (together, 1) if strided else (1, size)
    rounds, factor = size.bit_length() - 1, float_word(1 / math.sqrt(size))

    def local(t):  # type: ignore[no-untyped-def]
        """(group, place in it) of a number in shared memory."""
        if strided:
            return U(t % U(together)), U(t // U(together))
        return U(t // U(beside)), U(t % U(beside))

    split = inner(local)

    def kernel(x, out, flips, groups, step):  # type: ignore[no-untyped-def]
        held = cuda.shared.array(CHUNK, np.uint32)
        base = L(L(cuda.blockIdx.x) * L(together))
        while base < groups:  # the same for all threads
            t = U(cuda.threadIdx.x)
            while t < U(CHUNK):
                group, k = split(t)
                if L(base + L(group)) < groups:
                    at = place_of(L(base + L(group)), L(size), step)
                    word = U(x[L(at + L(L(k) * step))])
                    held[t] = word if back else U(word ^ U(flips[k]))
                t = U(t + U(cuda.blockDim.x))
            cuda.syncthreads()
            half = U(apart)
            for _ in range(rounds):
                p = U(cuda.threadIdx.x)
                while p < U(CHUNK // 2):
                    low = U(p & U(half - U(1)))
                    first = U(U(U(p - low) * U(2)) + low)
                    a, b = U(held[first]), U(held[U(first + half)])
                    held[first] = plus(a, b)
                    held[U(first + half)] = minus(a, b)
                    p = U(p + U(cuda.blockDim.x))
                half = U(half * U(2))
                cuda.syncthreads()
            t = U(cuda.threadIdx.x)
            while t < U(CHUNK):
                group, k = split(t)
                if L(base + L(group)) < groups:
                    at = place_of(L(base + L(group)), L(size), step)
                    word = U(times(U(held[t]), factor))
                    out[L(at + L(L(k) * step))] = U(word ^ U(flips[k])) if back else word
                t = U(t + U(cuda.blockDim.x))
            cuda.syncthreads()
            base = L(base + L(L(cuda.gridDim.x) * L(together)))

    return jit(kernel)
