"""checkpoints: files of tensors on disk, each tensor counted; what formats would lose of them.

    scan            the checkpoints named, shard by shard, in bounded memory -> Scan
    Scan            its rows, its answer, and a Trace that every other command takes
    fail_on         conditions such as 'lost>0.1', for scripts
"""

from __future__ import annotations

from fpemu.analysis.checkpoints.fail_on import Condition, failures, read_condition
from fpemu.analysis.checkpoints.result import Scan
from fpemu.analysis.checkpoints.run import scan

__all__ = ["Condition", "Scan", "failures", "read_condition", "scan"]
