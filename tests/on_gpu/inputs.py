"""Inputs made on the device: all 2**32 float32 patterns or every n-th, and given ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cuda_target import cuda, jit, launch, words_at
from on_gpu.compare import words_in

__all__ = ["ALL", "every", "fill", "given", "repeat"]

Array = np.ndarray[Any, Any]

U = np.uint32
L = np.uint64

ALL = 1 << 32


@cache
def fill_kernel() -> Any:
    """Return kernel(out, size, first, step): the patterns first, first + step, ..."""

    def kernel(out, size, first, step):
        i = L(cuda.grid(1))
        while i < size:
            out[i] = U(L(first + L(i * step)) & L(0xFFFFFFFF))
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


@cache
def repeat_kernel() -> Any:
    """Return kernel(out, size, block, period): a block over and over."""

    def kernel(out, size, block, period):
        i = L(cuda.grid(1))
        while i < size:
            out[i] = block[L(i % period)]
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


def fill(words: Any, first: int, step: int) -> None:
    """Write every step-th pattern from `first` on, a Words of uint32."""
    launch(fill_kernel(), words.size, words, words_at(words), L(words.size), L(first), L(step))


def repeat(words: Any, block: Array) -> None:
    """Fill a Words with copies of a host array."""
    launch(repeat_kernel(), words.size, words, words_at(words), L(words.size),
           cuda.to_device(block), L(block.size))  # fmt: skip


def every(step: int, chunk: int, count: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (index, uint32 device array) of the patterns 0, step, 2 * step, ... below 2**32.

    The array is written anew for each; count: no more than so many patterns.
    """
    total = -(-ALL // step) if count is None else count
    buffer = cuda.device_array(min(chunk, total), np.uint32)
    for start in range(0, total, chunk):
        piece = buffer[: min(chunk, total - start)]
        fill(words_in(piece), start * step, step)
        yield start, piece


def given(patterns: Array, chunk: int) -> Iterator[tuple[int, Any]]:
    """Yield (index, uint32 device array) of a host array's pieces."""
    for start in range(0, patterns.size, chunk):
        yield start, cuda.to_device(np.ascontiguousarray(patterns[start : start + chunk]))
