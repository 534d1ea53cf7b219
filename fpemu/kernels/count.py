"""Count words into a tally's cells: which loop, in which chunks, on which threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fpemu.kernels.cpu_tally import (
    Scratch,
    block_loop,
    direct_loop,
    flush_loop,
    new_cells,
    span_loop,
    subnormal_loop,
)
from fpemu.kernels.pool import run_chunks, thread_count

__all__ = ["CAPACITY", "DIRECT", "count"]

Array = np.ndarray[Any, Any]

#: Numbers that uint32 counters take before they must be flushed: none can wrap.
CAPACITY = (1 << 32) - 1

#: Elements below which the plain loop is faster: making and flushing counters costs 40
#: microseconds.
DIRECT = 6 * 1024


class _Counters:
    """What one thread counts in, with where the counts go in the end."""

    def __init__(self, flush: Callable[[Array], None]) -> None:
        self._scratch = Scratch.make()
        self._held = 0
        self._flush = flush
        self._loop = block_loop()

    def add(self, words: Array) -> None:
        for start in range(0, words.size, CAPACITY):
            part = words[start : start + CAPACITY]
            if self._held + part.size > CAPACITY:
                self.flush()
            self._loop(part, *self._scratch)
            self._held += part.size

    def flush(self) -> None:
        self._flush(self._scratch.counters)
        self._held = 0


def count(words: Array, threads: int | None = None) -> tuple[Array, int, tuple[int, ...]]:
    """Return int64 cells (2 signs, rows, SLOTS), the rows in use alone, the index of the first
    one, and the counts of +0, -0, +inf, -inf, NaN."""
    thread_count(threads)  # a wrong value is refused for small arrays too
    cells, specials = new_cells(), np.zeros(5, np.int64)
    if words.size < DIRECT:
        direct_loop()(words, cells, specials)
    else:
        _count_large(words, threads, cells, specials)
    first, end = span_loop()(cells)
    return cells[:, first:end].copy(), first, tuple(specials.tolist())


def _count_large(words: Array, threads: int | None, cells: Array, specials: Array) -> None:
    lock = threading.Lock()
    idle: list[_Counters] = []  # those that no thread counts in at the moment
    subnormals = 0

    def flush(counters: Array) -> None:
        nonlocal subnormals
        with lock:
            subnormals += flush_loop()(counters, cells, specials)

    def chunk(start: int, stop: int) -> None:
        with lock:
            own = idle.pop() if idle else None
        own = own or _Counters(flush)
        own.add(words[start:stop])
        with lock:
            idle.append(own)

    run_chunks(chunk, words.size, threads)
    for counters in idle:
        counters.flush()
    if subnormals:
        _add_subnormals(words, threads, cells)


def _add_subnormals(words: Array, threads: int | None, cells: Array) -> None:
    lock = threading.Lock()

    def chunk(start: int, stop: int) -> None:
        part = new_cells()
        subnormal_loop()(words[start:stop], part)
        with lock:
            np.add(cells, part, out=cells)

    run_chunks(chunk, words.size, threads)
