"""fpemu.tensorcore: matrix products with the bits that real chips' matrix units give.

    tensorcore.mma(a, b, chip="hopper", to="float8_e4m3fn")                # 13 bits of fraction
    tensorcore.mma(a, b, chip="hopper", to="float8_e4m3fn", promote=128)   # as DeepGEMM adds them
    tensorcore.chips["hopper"].verified                                    # against recordings
"""

from __future__ import annotations

from fpemu.tensorcore.catalog import CHIPS as chips
from fpemu.tensorcore.catalog import find_chip
from fpemu.tensorcore.chip import Chip, Unit
from fpemu.tensorcore.multiply import mma
from fpemu.tensorcore.sums import AlignedSum, ChainedSum, StagedSum

__all__ = [
    "AlignedSum",
    "ChainedSum",
    "Chip",
    "StagedSum",
    "Unit",
    "chips",
    "find_chip",
    "mma",
]
