"""Histogram: a narrow tensor by its codes: each counted, its tally and moments made of the counts.

Two to four times as fast as to decode every number: a 16-bit format has 65,536 values at most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.checkpoints.encodings import Encoding
from fpemu.kernels.cpu_codes import CODE_LANES, codes_loop
from fpemu.kernels.pool import run_chunks
from fpemu.moments import Moments
from fpemu.tallies import Tally, tally

__all__ = ["Histogram", "moments_of", "tally_of", "worth"]

Array = np.ndarray[Any, Any]

#: Numbers from which counting codes pays: a tally of a histogram takes some milliseconds.
_WORTH = 1 << 21
_FULL = 1 << 32  # what a counter of the loop holds


def worth(encoding: Encoding, values: int) -> bool:
    """Whether a tensor is better counted by its codes."""
    return encoding.bits <= 16 and values >= _WORTH


class Histogram:
    """How often each code of an encoding occurs in the pieces added so far."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self._together = 2 if encoding.bits < 8 else 1  # codes that are counted as one word
        self._counts = np.zeros(1 << self._together * encoding.bits, np.int64)
        self._idle: list[Array] = []  # counters, one for each thread that counts at a time
        self._waiting = 0

    def add(self, octets: Array, threads: int | None = None) -> None:
        """Count the codes that whole groups of bytes hold, fewer than 2^32 at a time."""
        words = _words(octets, self.encoding)
        if self._waiting + words.size >= _FULL:
            self._collect()
        self._waiting += words.size

        def chunk(start: int, stop: int) -> None:
            try:
                own = self._idle.pop()  # atomic, as append is
            except IndexError:
                own = np.zeros((len(self._counts), CODE_LANES), np.uint32)
            codes_loop()(words[start:stop], own)
            self._idle.append(own)

        run_chunks(chunk, words.size, threads)

    def _collect(self) -> None:
        for counters in self._idle:
            self._counts += counters.sum(axis=1, dtype=np.int64)
            counters[:] = 0
        self._waiting = 0

    def counts(self) -> tuple[Array, Array]:
        """Return the values of all codes as float32, and how often each occurs."""
        self._collect()
        values, bits = fpemu.values(self.encoding.format), self.encoding.bits
        if self._together == 1:
            return values, self._counts
        words = np.arange(len(self._counts))
        pairs = np.stack([values[words & (1 << bits) - 1], values[words >> bits]])
        return pairs.ravel(), np.tile(self._counts, 2)


def _words(octets: Array, encoding: Encoding) -> Array:
    """Whole groups of bytes as unsigned words: a code in each, or two that lie side by side."""
    if encoding.bits == 6:  # three bytes are two words of 12 bits
        groups = octets.reshape(-1, 3).astype(np.uint16)
        words = np.empty((len(groups), 2), np.uint16)
        words[:, 0] = groups[:, 0] | (groups[:, 1] & 15) << 8
        words[:, 1] = groups[:, 1] >> 4 | groups[:, 2] << 4
        return words.ravel()
    words = octets.view(f"u{max(encoding.bits // 8, 1)}")
    return words.byteswap() if encoding.swapped else words


def tally_of(values: Array, counts: Array) -> Tally:
    """Return the tally of values that occur so many times each.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.checkpoints.histogram import tally_of
    >>> tally_of(np.float32([1, 2]), np.array([3, 0])) == fpemu.tally(np.float32([1, 1, 1]))
    True

    Bit by bit of the counts, from the highest on: twice what was there, and each value whose count
    has the bit.
    """
    found = Tally()
    for bit in reversed(range(int(counts.max(initial=0)).bit_length())):
        found = found + found + tally(values[(counts >> bit & 1).astype(bool)], threads=1)
    return found


def moments_of(values: Array, counts: Array) -> Moments:
    """Return the moments of values that occur so many times each.

    >>> import numpy as np
    >>> from fpemu.analysis.checkpoints.histogram import moments_of
    >>> moments_of(np.float32([1, 2, np.nan]), np.array([3, 1, 5])).mean
    1.25
    """
    there = (counts > 0) & np.isfinite(values)
    x, n = values[there].astype(np.float64), counts[there]
    count = int(n.sum())
    if not count:
        return Moments()
    mean = math.fsum(x * n) / count
    d = x - mean
    m2, m3, m4 = (math.fsum(n * d**power) for power in (2, 3, 4))
    magnitudes = np.abs(x)
    smallest = min(magnitudes[magnitudes > 0].tolist(), default=0.0)
    return Moments(count, mean, m2, m3, m4, float(magnitudes.max()), smallest)
