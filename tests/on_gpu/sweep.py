"""fpemu.round and fpemu.encode on the device against the second algorithm there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import fpemu
from fpemu.kernels.plan import forget, plan
from on_gpu.compare import Check, Comparison
from on_gpu.second import second

__all__ = ["build", "sweep"]

_NAN_ABOVE = 0x7F800000


def build(cast: fpemu.Cast, special: bool) -> None:
    """Have round and encode use a cast's own loops, or the general ones for the next elements."""
    forget()
    if special:
        for verb in ("round", "encode"):
            plan(verb, cast, 32, 32, "cuda").specialise()


def sweep(name: str, chunks: Iterator[tuple[int, Any]], *, special: bool) -> list[Check]:
    """Compare round and encode with the second algorithm on every chunk of inputs."""
    form = fpemu.finfo(name)
    cast = fpemu.Cast(form)
    kind = "own loop" if special else "general loop"
    rounds = Comparison(f"{name}: round, {kind}")
    encodes = Comparison(f"{name}: encode, {kind}")
    for _, words in chunks:
        build(cast, special)
        x = words.view(np.float32)
        values, codes = second(words, form)
        rounds.add(words, fpemu.round(x, cast), values, nan_above=_NAN_ABOVE)
        encodes.add(words, fpemu.encode(x, cast), codes)
    return [rounds.check(), encodes.check()]
