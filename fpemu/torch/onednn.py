"""oneDNN: whether PyTorch takes its kernels, which do several operations in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["without_onednn"]


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let PyTorch use kernels of its own for a while.

    As `torch.backends.mkldnn.flags(enabled=False)`, which takes 50 microseconds.
    """
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)
