"""PyTorch's own casts on the device against fpemu's presets of them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import fpemu
from on_gpu.compare import Check, Comparison, words_in
from on_gpu.inputs import ALL, fill

__all__ = ["DTYPES", "against_torch", "preset_of", "why_no_torch"]

DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def why_no_torch() -> str:
    """Say why PyTorch cannot be compared with; empty if it can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    return ""


def preset_of(dtype: str, version: str) -> str:
    """Return the preset of a cast to a dtype; its E4M3 saturates from PyTorch 2.12 on."""
    major, minor = (int(part) for part in version.split(".")[:2])
    old = dtype == "float8_e4m3fn" and (major, minor) < (2, 12)
    return f"torch.{dtype}{'.until_2.11' if old else ''}"


def against_torch(dtype: str, *, step: int, chunk: int, device: int) -> list[Check]:
    """Compare encode and round of CUDA tensors with Tensor.to on every step-th pattern."""
    torch: Any = importlib.import_module("torch")
    preset = preset_of(dtype, torch.__version__)
    cast = fpemu.casts[preset]
    form, own = cast.format, getattr(torch, dtype)
    infinite = form.max_code + int(form.inf)
    total = -(-ALL // step)
    found = [Comparison(f"{preset}: encode"), Comparison(f"{preset}: round")]
    patterns = torch.empty(min(chunk, total), dtype=torch.int32, device=f"cuda:{device}")
    for start in range(0, total, chunk):
        piece = patterns[: min(chunk, total - start)]
        fill(words_in(piece), start * step, step)
        x = piece.view(torch.float32)
        want = x.to(own)
        found[0].add(piece, fpemu.encode(x, cast), want, nan_above=infinite)
        found[1].add(piece, fpemu.round(x, cast), want.float(), nan_above=0x7F800000)
    return [c.check() for c in found]
