"""Labels: the names of functional operations in a trace, the same at each step and on each rank."""

from __future__ import annotations

from fpemu.analysis.collect.places import Place

__all__ = ["Labels"]


class Labels:
    """Names operations by module, operation and line; several in one line get numbers.

    >>> from fpemu.analysis.collect.labels import Labels
    >>> from fpemu.analysis.collect.places import find_place
    >>> labels, place = Labels(), find_place(0)
    >>> labels.name("block", "add", place).partition("@")[0]
    'block.add'
    >>> labels.name("block", "add", place) == labels.name("block", "add", place)
    True
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[int, ...], int]] = {}

    def name(self, module: str, operation: str, place: Place) -> str:
        """Return the name of an operation: 'blocks.0.add@model.py:52', and '#2' for the next."""
        label = ".".join(filter(None, (module, operation))) + f"@{place.short}"
        known = self._known.setdefault(label, {})
        number = known.setdefault(place.steps, len(known) + 1)
        return label if number == 1 else f"{label}#{number}"
