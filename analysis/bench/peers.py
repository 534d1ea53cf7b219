"""Peers: other libraries doing the same work, into warm arrays where they allow it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fpemu.format import Format

__all__ = ["PEERS", "Array", "Calls", "Peer", "installed"]

Array = np.ndarray[Any, Any]


class Calls(NamedTuple):
    """The same three verbs from every library; each writes the same arrays again and again."""

    round: Callable[[], object]
    encode: Callable[[], object]
    decode: Callable[[], object]


@dataclass(frozen=True)
class Peer:
    """A library, and how it rounds x into out through a format."""

    name: str
    prepare: Callable[[Format, Array, Array, int], Calls | None]  #: None: it lacks the format
    largest: int | None = None  #: elements it is given at most, where it is slow


def _numpy(form: Format, x: Array, out: Array, threads: int) -> Calls | None:
    return _casts(np.dtype(np.float16), x, out) if form.name == "float16" else None


def _ml_dtypes(form: Format, x: Array, out: Array, threads: int) -> Calls | None:
    kind = getattr(importlib.import_module("ml_dtypes"), form.name, None)
    return _casts(np.dtype(kind), x, out) if kind is not None else None


def _casts(dtype: np.dtype[Any], x: Array, out: Array) -> Calls:
    codes = np.empty(x.shape, dtype)

    def encode() -> None:
        np.copyto(codes, x, casting="unsafe")

    def decode() -> None:
        np.copyto(out, codes, casting="unsafe")

    encode()
    return Calls(_both(encode, decode), encode, decode)


def _both(encode: Callable[[], None], decode: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        encode()
        decode()

    return run


_TORCH = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu")  # fmt: skip


def _torch(form: Format, x: Array, out: Array, threads: int) -> Calls | None:
    torch = importlib.import_module("torch")
    if form.name not in _TORCH or not hasattr(torch, form.name):
        return None
    torch.set_num_threads(threads)
    source, target = torch.from_numpy(x), torch.from_numpy(out)
    codes = torch.empty(source.shape, dtype=getattr(torch, form.name))

    def encode() -> None:
        codes.copy_(source)

    def decode() -> None:
        target.copy_(codes)

    encode()
    return Calls(_both(encode, decode), encode, decode)


_GFLOAT: Mapping[str, str] = {
    "float32": "binary32",
    "float16": "binary16",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "ocp_e4m3",
    "float8_e5m2": "ocp_e5m2",
    "float6_e2m3fn": "ocp_e2m3",
    "float6_e3m2fn": "ocp_e3m2",
    "float4_e2m1fn": "ocp_e2m1",
}


def _gfloat(form: Format, x: Array, out: Array, threads: int) -> Calls | None:
    gfloat = importlib.import_module("gfloat")
    if form.name not in _GFLOAT:
        return None
    formats = importlib.import_module("gfloat.formats")
    info = getattr(formats, f"format_info_{_GFLOAT[form.name]}")

    def rounded() -> Array:
        return gfloat.round_ndarray(info, x, sat=not form.has_nan)  # type: ignore[no-any-return]

    codes = gfloat.encode_ndarray(info, rounded())
    return Calls(
        rounded,
        lambda: gfloat.encode_ndarray(info, rounded()),  # alone, it would truncate
        lambda: gfloat.decode_ndarray(info, codes),
    )


#: In the order of the tables. gfloat takes 40 ns an element and allocates its results.
PEERS = (
    Peer("numpy", _numpy),
    Peer("ml_dtypes", _ml_dtypes),
    Peer("torch", _torch),
    Peer("gfloat", _gfloat, largest=1 << 16),
)


def installed() -> list[Peer]:
    """Return the peers that can be imported here."""
    return [peer for peer in PEERS if importlib.util.find_spec(peer.name) is not None]
