"""formats: what `fpemu formats` says of the number formats."""

from __future__ import annotations

from fpemu.analysis.formats.sheet import facts

__all__ = ["facts"]
