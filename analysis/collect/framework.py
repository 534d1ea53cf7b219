"""PyTorch, imported here for all of `collect`, or an error that names what to install."""

from __future__ import annotations

from fpemu.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(
        "watching a model needs PyTorch, which is not installed; pip install 'fpemu[torch]'"
    ) from error

__all__ = ["torch"]
