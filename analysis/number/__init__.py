"""number: what one real number becomes under a Cast, exactly; `fpemu round` prints it."""

from __future__ import annotations

from fpemu.analysis.number.explain import Explained, Neighbour, explain
from fpemu.analysis.number.read import read_number

__all__ = ["Explained", "Neighbour", "explain", "read_number"]
