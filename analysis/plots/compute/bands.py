"""Band: the range of a format on a logarithmic axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.by_recipe import check_cast
from fpemu.cast import Cast, Subnormals

if TYPE_CHECKING:
    from fpemu.format import Format

__all__ = ["Band"]


@dataclass(frozen=True)
class Band:
    """The range of a format as log2: its smallest value, its smallest normal, its largest."""

    name: str
    low: float
    normal: float
    high: float

    @classmethod
    def of(cls, to: Cast | Format | str) -> Band:
        """Return the range that a cast can give; flushed subnormals are no part of it."""
        why = "its scales go with the numbers, so it has no range to draw; give a format"
        cast = check_cast("plot", to, why)
        form = cast.format
        flushed = cast.subnormals is Subnormals.FLUSH
        low = form.smallest_normal if flushed else form.smallest_subnormal
        return cls(str(cast), math.log2(low), math.log2(form.smallest_normal), math.log2(form.max))

    @property
    def wide(self) -> bool:
        """Whether it spans so many binades (bfloat16, float32) that no plot should show it all."""
        return self.high - self.low > 64
