"""Counting differences on the device: nothing but the count and the first place comes back."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cuda_target import Words, cuda, jit, launch, words_at
from fpemu.libraries.library import library_of

__all__ = ["Check", "Comparison", "words_in"]

U = np.uint32
L = np.uint64

_SIGNLESS = {1: 0x7F, 2: 0x7FFF, 4: 0x7FFFFFFF}


@dataclass(frozen=True)
class Check:
    """One comparison, finished."""

    what: str
    inputs: int
    differences: int
    first: str = ""  #: the first difference: input and both results in hex

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dict."""
        return asdict(self)


@cache
def differ_kernel() -> Any:
    """Return kernel(got, want, size, mask, limit, found): count what differs, find the first.

    Two words whose magnitudes are above `limit` are NaNs and count as equal. found: uint64, a
    count and an index.
    """

    def kernel(got, want, size, mask, limit, found):
        i = L(cuda.grid(1))
        while i < size:
            a, b = U(got[i]), U(want[i])
            if a != b and not (U(a & mask) > limit and U(b & mask) > limit):
                cuda.atomic.add(found, 0, L(1))
                cuda.atomic.min(found, 1, i)
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


def words_in(array: Any) -> Any:
    """Return the memory of a device array of any library, as `cuda_target.Words`."""
    library = library_of(array)
    assert library is not None, f"{type(array).__name__}: not on a device"
    pointer, stream, device = library.memory(array)
    width = library.dtype(array).itemsize
    return Words(pointer, math.prod(array.shape), np.dtype(f"u{width}"), stream, device)


class Comparison:
    """A comparison of two results over many chunks."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._inputs = self._differences = 0
        self._first = ""

    def add(self, inputs: Any, got: Any, want: Any, nan_above: int | None = None,
            mask: int | None = None) -> None:  # fmt: skip
        """Compare two device arrays of one size, of words of up to 32 bits.

        inputs: a device array of uint32, to be shown. nan_above: words of a larger magnitude
        (without the bits outside of mask: by default the sign bit of want's words) are NaNs,
        all equal; None compares every bit.
        """
        a, b = words_in(got), words_in(want)
        assert a.size == b.size, (a.size, b.size)
        mask = _SIGNLESS[b.dtype.itemsize] if mask is None else mask
        limit = mask if nan_above is None else nan_above
        found = cuda.to_device(np.array([0, a.size], np.uint64))
        launch(differ_kernel(), a.size, a, words_at(a), words_at(b), L(a.size), U(mask), U(limit),
               found)  # fmt: skip
        cuda.synchronize()
        count, first = (int(n) for n in found.copy_to_host())
        self._inputs += a.size
        if count and not self._first:
            shown = zip(("input", "got", "want"), (words_in(inputs), a, b), strict=True)
            self._first = ", ".join(f"{name} {_word(words, first)}" for name, words in shown)
        self._differences += count

    def check(self) -> Check:
        """Return the finished comparison."""
        return Check(self._what, self._inputs, self._differences, self._first)


def _word(words: Any, index: int) -> str:
    word = words_at(words.part(index, index + 1)).copy_to_host()[0]
    return f"0x{int(word):0{2 * words.dtype.itemsize}x}"
