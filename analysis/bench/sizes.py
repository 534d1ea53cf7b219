"""Sizes as people write them: 2**24, 2^24, 16M, 64K, 1_000_000."""

from __future__ import annotations

import re

from fpemu.errors import InputError

__all__ = ["LARGEST", "SMALLEST", "parse_size", "size_text"]

#: Fewer elements measure the call and not the loop; the table of small calls is for those.
SMALLEST = 1 << 10
#: 0.5 GiB an array; above, a cast would get a loop of its own while the general one is timed.
LARGEST = 1 << 27

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def parse_size(text: str | int) -> int:
    """Return a number of elements from text.

    >>> from fpemu.analysis.bench.sizes import parse_size
    >>> parse_size("2**24") == parse_size("16M") == parse_size(16_777_216)
    True

    text: an int, "2**24" (or "2^24"), or a whole number with K or M for 2**10 and 2**20.
    Anything else, and sizes outside 2**10 to 2**27, are an InputError.
    """
    way = "write it as 2**24, 16M or 16777216"
    size = _read(str(text).strip().lower())
    if size is None:
        raise InputError(f"size {text!r}: must be a whole number of elements; {way}")
    if not SMALLEST <= size <= LARGEST:
        raise InputError(f"size {text!r}: must be 2**10 to 2**27 elements; {way}")
    return size


def _read(text: str) -> int | None:
    if power := re.fullmatch(r"2\s*(?:\*\*|\^)\s*(\d{1,2})", text):
        return 1 << int(power[1])
    if number := re.fullmatch(r"(\d[\d_]{0,18})([km]?)", text):
        return int(number[1].replace("_", "")) * _UNITS[number[2]]
    return None


def size_text(size: int) -> str:
    """Return a size as text: '2**24' for a power of two from 2**10, else the number.

    >>> from fpemu.analysis.bench.sizes import size_text
    >>> size_text(1 << 24), size_text(1000)
    ('2**24', '1,000')
    """
    if size >= SMALLEST and size & (size - 1) == 0:
        return f"2**{size.bit_length() - 1}"
    return f"{size:,}"
