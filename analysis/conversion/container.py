"""Container: a safetensors file written as its tensors become known, its header last.

Source: https://huggingface.co/docs/safetensors, "Format": eight bytes of the header's length, the
header in JSON, which spaces may fill up, and the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from fpemu.analysis.checkpoints.safetensors import DTYPES, HEADER_LIMIT
from fpemu.errors import InputError

__all__ = ["Container", "Entry"]

_WIDER = "F32"  #: what an entry may become


class Entry(NamedTuple):
    """A tensor of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def octets(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * DTYPES[self.dtype].bits // 8


class Container:
    """A file that is being written: places are given out one after the other, then filled.

    entries: all that there will be, some perhaps as float32; room for the header is kept for them.
    """

    def __init__(
        self, file: IO[bytes], entries: Iterable[Entry], metadata: Mapping[str, str]
    ) -> None:
        self._file = file
        self._metadata = {_text(key): _text(value) for key, value in metadata.items()}
        self._placed: dict[str, tuple[Entry, int]] = {}
        self._end = 0
        self._base = 8 + _most(list(entries), self._metadata)

    @property
    def octets(self) -> int:
        """Bytes of the tensors placed so far."""
        return self._end

    def place(self, entry: Entry) -> int:
        """Return where a tensor begins: after the last one; the last one may be placed anew."""
        last = next(reversed(self._placed), None)
        if last == entry.name:
            self._end = self._placed[last][1]
        at = self._end
        self._placed[entry.name] = entry, at
        self._end = at + entry.octets
        return at

    def put(self, at: int, octets: np.ndarray[Any, Any]) -> None:
        """Write bytes at a place."""
        self._file.seek(self._base + at)
        self._file.write(np.ascontiguousarray(octets).data)

    def close(self) -> None:
        """Write the header; the file ends where the last tensor does."""
        text = _header([(e, at, at + e.octets) for e, at in self._placed.values()], self._metadata)
        text += b" " * (self._base - 8 - len(text))
        self._file.seek(0)
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._file.truncate(self._base + self._end)


def _text(text: str) -> str:
    """What UTF-8 cannot hold, halves of surrogate pairs, as a backslash escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _most(entries: list[Entry], metadata: Mapping[str, str]) -> int:
    """The longest that the header can get, in whole eights so that tensors are aligned."""
    wide = sum(max(e.octets, e._replace(dtype=_WIDER).octets) for e in entries)
    longest = [e if len(e.dtype) > len(_WIDER) else e._replace(dtype=_WIDER) for e in entries]
    size = len(_header([(e, wide, wide) for e in longest], metadata))
    if size > HEADER_LIMIT:
        raise InputError(
            f"a header of {size:,} bytes: safetensors allows {HEADER_LIMIT:,}; drop some tensors"
        )
    return -(-size // 8) * 8


def _header(placed: list[tuple[Entry, int, int]], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for entry, start, stop in placed:
        header[entry.name] = {
            "dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, stop],
        }  # fmt: skip
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
