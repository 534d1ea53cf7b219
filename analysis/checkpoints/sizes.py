"""Sizes: numbers of bytes as people read them."""

from __future__ import annotations

__all__ = ["size"]


def size(octets: float) -> str:
    """Return a number of bytes in decimal units, three digits: 1.25 GB.

    >>> from fpemu.analysis.checkpoints.sizes import size
    >>> size(12), size(999_999), size(14_483_464_192)
    ('12 B', '1 MB', '14.5 GB')
    """
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if float(f"{octets:.3g}") < 1000:
            break
        octets, unit = octets / 1000, larger
    return f"{float(f'{octets:.3g}'):g} {unit}"
