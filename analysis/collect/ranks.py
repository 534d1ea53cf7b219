"""Ranks: which of several processes of one training run this is."""

from __future__ import annotations

import os

from fpemu.analysis.collect.framework import torch
from fpemu.analysis.store import PathLike, real_path

__all__ = ["own_path", "rank_and_world"]


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and how many there are; (0, 1) without a process group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return 0, 1


def own_path(path: PathLike, rank: int, world: int) -> str:
    """Return a path of this rank's own: run.fpemu -> run-rank1.fpemu where there are several.

    >>> from fpemu.analysis.collect.ranks import own_path
    >>> own_path("out/run.fpemu", 1, 2), own_path("run.fpemu", 0, 1)
    ('out/run-rank1.fpemu', 'run.fpemu')
    """
    real_path(path)  # refuses what is no path
    text = os.fsdecode(path)
    if world == 1:
        return text
    stem, suffix = os.path.splitext(text)
    return f"{stem}-rank{rank}{suffix}"
