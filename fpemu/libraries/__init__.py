"""Arrays of other libraries: where they lie, their memory, and new ones of the same kind."""

from __future__ import annotations

__all__: list[str] = []
