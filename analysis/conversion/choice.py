"""Choice: which tensors of a checkpoint are converted, and why the others are not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fpemu.analysis.checkpoints.kinds import kind_of
from fpemu.analysis.checkpoints.patterns import Patterns
from fpemu.analysis.checkpoints.stored import Stored

__all__ = ["Choice"]

_Names = str | Iterable[str] | None

_SMALL = "fewer than two dimensions, as norms and biases are"
_NARROW = "stored in 8 bits or fewer: codes, whose scale may lie elsewhere"
_SCALE = "the scale of another tensor"
_STATE = "an optimizer's state"
_EMPTY = "no values"
_SKIPPED = "skipped, as asked for"
_OTHER = "not among those asked for"

#: What scales of the tensor NAME are called.
_SCALE_NAME = re.compile(r"(.+?)[._]scales?(?:_inv|_2)?")


class Choice:
    """Which tensors are converted: by default weights of two or more dimensions.

    only: patterns of those that are, whatever they are otherwise; skip: of those that are not;
    drop: of those that are left out of the new checkpoint.
    """

    def __init__(self, only: _Names, skip: _Names, drop: _Names) -> None:
        self._only = Patterns("only", () if only is None else only)
        self._skip = Patterns("skip", () if skip is None else skip)
        self._drop = Patterns("drop", () if drop is None else drop)

    def drops(self, name: str) -> bool:
        """Whether a tensor is left out."""
        return self._drop.fits(name)

    def reasons(self, tensors: Sequence[Stored]) -> dict[str, str]:
        """Return why each tensor of a file is kept as it is; nothing: it is converted."""
        narrow = {one.name for one in tensors if one.storage and one.storage.bits <= 8}
        return {one.name: self._reason(one, narrow) for one in tensors}

    def _reason(self, stored: Stored, narrow: set[str]) -> str:
        chosen, skipped = self._only.fits(stored.name), self._skip.fits(stored.name)
        if stored.encoding is None:
            return stored.reason
        if skipped:
            return _SKIPPED
        if not stored.values:
            return _EMPTY
        if self._only:
            return "" if chosen else _OTHER
        return _by_default(stored, narrow)

    def check(self) -> None:
        """Refuse a pattern that no tensor has fitted: it is a slip."""
        for patterns in (self._only, self._skip, self._drop):
            patterns.check()


def _by_default(stored: Stored, narrow: set[str]) -> str:
    if kind_of(stored.name) == "optimizer_state":
        return _STATE
    if stored.name in narrow:
        return _NARROW
    found = _SCALE_NAME.fullmatch(stored.name)
    if found and {found[1], f"{found[1]}_packed"} & narrow:
        return _SCALE
    return _SMALL if len(stored.shape) < 2 else ""
