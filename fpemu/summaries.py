"""Summaries: an array's tally and moments in one walk over it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpemu.arrays import float32_words
from fpemu.kernels.bucket import SLOTS
from fpemu.kernels.cpu_moments import BLOCK, COLUMNS
from fpemu.kernels.cpu_summary import collect_loop, extent_loop, finish_loop
from fpemu.kernels.cpu_tally import Scratch, block_loop
from fpemu.kernels.pool import run_chunks
from fpemu.moments import Moments, magnitude_of, moments
from fpemu.tallies import Tally, tally

__all__ = ["summarize"]

Array = np.ndarray[Any, Any]

_SUBNORMAL = 1 << 23  # magnitudes below are subnormal: their binades take a pass of their own
_CAPACITY = (1 << 32) - 1  # numbers that uint32 counters take
_PIECE = 32  # blocks between the two loops: the second one finds them in the second cache


def summarize(x: Any, *, threads: int | None = None) -> tuple[Tally, Moments]:
    """Return `tally(x)` and `moments(x)`, in about two thirds of the time.

    >>> import numpy as np
    >>> from fpemu.summaries import summarize
    >>> tally, moments = summarize(np.float32([1, 2, 4, np.inf]))
    >>> tally.total, tally.inf, moments.amax, moments.count
    (4, 1, 4.0, 3)

    x, threads, errors: as in `fpemu.tally`. The tally is the same to the bit. The moments are the
    same but for their last digits (a relative 1e-12): sums are taken in another order.
    float32 subnormals, which training hardly ever has, cost the two functions' own time.
    """
    words = float32_words(x)
    if words.size == 0 or words.size >= _CAPACITY:
        return tally(x, threads=threads), moments(x, threads=threads)
    rows, extremes, used = _walk(words, threads)
    *sums, high, low = finish_loop()(rows, extremes)
    if 0 < low < _SUBNORMAL:
        for scratch in used:
            scratch.counters[:] = 0
        _idle.extend(used)
        return tally(x, threads=threads), moments(x, threads=threads)
    return _tally(used, low, high), _moments(sums, low, high)


_idle: list[Scratch] = []  # appending and popping are atomic


def _scratch() -> Scratch:
    try:
        return _idle.pop()
    except IndexError:
        return Scratch.make()


def _walk(words: Array, threads: int | None) -> tuple[Array, Array, list[Scratch]]:
    """Count all words; return moments and extremes of each block, and what counted the words."""
    blocks = -(-words.size // BLOCK)
    rows, extremes = np.zeros((blocks, len(COLUMNS))), np.zeros((blocks, 3), np.uint32)
    numbers, used = words.view(np.float32), list[Scratch]()
    count, measure = block_loop(), extent_loop()

    def chunk(start: int, stop: int) -> None:
        first, end = -(-start // BLOCK), -(-stop // BLOCK)  # the blocks that begin in it
        own = _scratch()
        for block in range(first, end, _PIECE):
            part = slice(block * BLOCK, min(block + _PIECE, end) * BLOCK)
            count(words[part], *own)
            measure(numbers[part], words[part], block, rows, extremes)
        used.append(own)  # atomic

    run_chunks(chunk, words.size, threads)
    return rows, extremes, used


def _tally(used: list[Scratch], low: int, high: int) -> Tally:
    """The tally of numbers whose magnitudes go from `low` to `high`, as bits."""
    field = low >> 23
    binades = (high >> 23) - field + 1 if low else 0
    cells = np.zeros((2, binades, SLOTS), np.int64)
    specials = np.zeros(5, np.int64)
    for scratch in used:
        collect_loop()(scratch.counters, field, cells, specials)
    _idle.extend(used)
    return Tally._make(cells, field + 22 if low else 0, tuple(specials.tolist()))


def _moments(sums: list[float], low: int, high: int) -> Moments:
    count, mean, m2, m3, m4 = sums
    # even powers of exact equals may come out a rounding below zero
    return Moments(
        int(count), mean if count else math.nan, max(m2, 0.0), m3, max(m4, 0.0),
        magnitude_of(high), magnitude_of(low),
    )  # fmt: skip
