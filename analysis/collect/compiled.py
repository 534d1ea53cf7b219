"""Compiled: models under torch.compile run uncompiled while a step is recorded."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator

from fpemu.analysis.collect.framework import torch

__all__ = ["eager"]


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Let compiled functions run as written: a compiled graph has no operations to see.

    The compiled code stays and serves the other steps; nothing is compiled again. Where nothing
    has been compiled, nothing is done.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"), _quiet():
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Spare the user a warning of our own making: that global hooks see the compiled wrapper."""
    # catch_warnings would also undo the filters that a script sets meanwhile
    message = re.compile(r"Using `torch\.compile\(module\)` when there are global hooks")
    own = ("ignore", message, UserWarning, None, 0)
    warnings.filters.insert(0, own)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(own)  # type: ignore[attr-defined]
