"""Words: tables of operations' names, written as text."""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """Return the names that stand in a text, separated by white space.

    >>> sorted(words("relu max"))
    ['max', 'relu']
    """
    return frozenset(text.split())
