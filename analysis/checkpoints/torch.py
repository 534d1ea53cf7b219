"""torch: the tensors of PyTorch's zip files, unpickled by its restricted reader alone.

`torch.load(weights_only=True)` makes tensors and containers and calls nothing else. The file is
mapped; pages that have been counted are given back, so that they do not count as memory.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import mmap
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fpemu.analysis.checkpoints import opened, reasons
from fpemu.analysis.checkpoints.archives import open_member
from fpemu.analysis.checkpoints.encodings import Encoding
from fpemu.analysis.checkpoints.stored import Storage, Stored, no_pieces
from fpemu.errors import MissingExtraError

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.encodings import Room

__all__ = ["DTYPES", "read"]

#: PyTorch's dtypes that are counted -> encoding; a pair of FP4 is one element there.
DTYPES = {
    "torch.float64": Encoding("float64", 64),
    "torch.float32": Encoding("float32", 32),
    "torch.float16": Encoding("float16", 16),
    "torch.bfloat16": Encoding("bfloat16", 16),
    "torch.float8_e4m3fn": Encoding("float8_e4m3fn", 8),
    "torch.float8_e5m2": Encoding("float8_e5m2", 8),
    "torch.float8_e4m3fnuz": Encoding("float8_e4m3fnuz", 8),
    "torch.float8_e5m2fnuz": Encoding("float8_e5m2fnuz", 8),
    "torch.float8_e8m0fnu": Encoding("float8_e8m0fnu", 8),
    "torch.float4_e2m1fn_x2": Encoding("float4_e2m1fn", 4),
}

#: PyTorch's dtypes -> safetensors' names of them.
_STORED = {
    "torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16",
    "torch.bfloat16": "BF16", "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2",
    "torch.float8_e4m3fnuz": "F8_E4M3FNUZ", "torch.float8_e5m2fnuz": "F8_E5M2FNUZ",
    "torch.float8_e8m0fnu": "F8_E8M0", "torch.float4_e2m1fn_x2": "F4", "torch.bool": "BOOL",
    "torch.complex64": "C64", "torch.int8": "I8", "torch.int16": "I16", "torch.int32": "I32",
    "torch.int64": "I64", "torch.uint8": "U8", "torch.uint16": "U16", "torch.uint32": "U32",
    "torch.uint64": "U64",
}  # fmt: skip

_Spans: TypeAlias = tuple[tuple[int, int], ...]

_DEPTH = 32  # containers inside each other
_OBJECTS = 4_000_000  # in all: lists that hold one list twice, and that another, double each time


def read(file: io.FileIO, archive: zipfile.ZipFile, path: str) -> list[Stored]:
    """Return the tensors of a file of torch.save's, named by the keys that lead to them.

    Errors: InputError for a file whose objects are more than tensors, numbers, text and their
    containers; MissingExtraError without PyTorch.
    """
    _check_members(archive, path)
    size = os.fstat(file.fileno()).st_size
    seen = list(itertools.islice(_objects(_load(path)), _OBJECTS + 1))
    if len(seen) > _OBJECTS:
        opened.damaged(path, f"more than {_OBJECTS:,} objects in it")
    found = [one for one in seen if one is not None]
    if len({name for name, _ in found}) < len(found):
        opened.damaged(path, "two tensors are called the same")
    mapped = _mapped(path)

    def check() -> None:
        opened.check_size(file, path, size)

    return [_stored(name or PurePath(path).stem, tensor, mapped, check) for name, tensor in found]


def _load(path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            f"checkpoint {path!r} is PyTorch's: needs PyTorch; pip install 'fpemu[torch]'"
        ) from None
    import pickle

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of storages and archives, to people who load them
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        opened.refuse(path, *reasons.pickled("it holds more than tensors, and to read that"))
    except Exception as error:  # whatever a damaged file does to PyTorch
        opened.damaged(path, f"PyTorch cannot read it ({' '.join(str(error).split())[:120]})")


def _check_members(archive: zipfile.ZipFile, path: str) -> None:
    """Refuse packed members, whose bytes a mapped file gives as they lie.

    And another byte order, which torch.load would turn around in memory, all of it at once.
    """
    if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
        opened.refuse(path, "its members are compressed, as PyTorch never writes them",
                      "load it with PyTorch and save it again, or as safetensors")  # fmt: skip
    for name in archive.namelist():
        if name.endswith("/byteorder"):
            with open_member(archive, name, path) as member:
                order = member.read(16)
            if order != sys.byteorder.encode():
                opened.refuse(path, f"its byte order is {order!r:.20}, not this machine's",
                              "save it again as safetensors")  # fmt: skip


def _objects(
    value: Any, keys: tuple[str, ...] = (), inside: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any] | None]:
    """Yield each tensor with its name, and None for each other object, so that all are counted."""
    import torch

    if isinstance(value, torch.Tensor):
        yield ".".join(keys), value.detach()
        return
    yield None
    if id(value) in inside or len(inside) == _DEPTH:  # a container may hold itself
        return
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple | set):
        items = enumerate(value)
    for key, item in items:
        yield from _objects(item, (*keys, str(key)), (*inside, id(value)))


def _stored(name: str, tensor: Any, mapped: _Spans, check: Callable[[], None]) -> Stored:
    dtype, encoding = str(tensor.dtype), DTYPES.get(str(tensor.dtype))
    shape = () if tensor.is_nested else tuple(int(n) for n in tensor.shape)
    if encoding and encoding.bits == 4 and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    octets, unread = tensor.numel() * tensor.element_size(), _unread(tensor)
    reason, storage = _reason(tensor, encoding) or unread, None if unread else _storage(tensor)
    if storage is None:
        return Stored(name, dtype, shape, octets, None, reason or reasons.OTHER, no_pieces)

    def pieces(room: Room) -> Iterator[np.ndarray[Any, Any]]:
        most = max(1, room.values * storage.bits // (8 * tensor.element_size()))
        for part in _parts(tensor, most):
            check()
            seen = part.contiguous().view(-1).view(_octet()).numpy()
            if encoding and encoding.bits == 64:  # those are changed where they lie
                room.octets[: seen.size] = seen
                seen = room.octets[: seen.size]
            yield seen
            _give_back(part, mapped)

    return Stored(
        name, dtype, shape, octets, None if reason else encoding, reason, pieces, storage
    )


def _storage(tensor: Any) -> Storage | None:
    name = _STORED.get(str(tensor.dtype))
    if name is None or tensor.is_conj() or tensor.is_neg():  # the bytes are not the values
        return None
    order = tuple(_order(tensor))
    bits = 4 if name == "F4" else 8 * tensor.element_size()
    return Storage(name, bits, False, () if order == tuple(range(tensor.dim())) else order)


def _reason(tensor: Any, encoding: Encoding | None) -> str:
    """Why a tensor's dtype is not counted, or nothing."""
    if encoding is not None:
        return ""
    if tensor.is_complex():
        return reasons.COMPLEX
    return reasons.TRUTH if str(tensor.dtype) == "torch.bool" else reasons.INTEGERS


def _unread(tensor: Any) -> str:
    """Why a tensor's bytes are not read, or nothing."""
    if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or tensor.is_nested:
        return "no values in the file, or sparse or nested ones: save it dense"
    if tensor.numel() * tensor.element_size() > 2 * tensor.untyped_storage().nbytes():
        return "a view that repeats its values: save tensor.contiguous()"
    return ""


def _octet() -> Any:
    import torch

    return torch.uint8


def _parts(tensor: Any, most: int) -> Iterator[Any]:
    """Cut a tensor into parts of at most `most` elements, which lie together where they can."""
    order = _order(tensor)
    tensor = tensor.permute(order) if order else tensor.view(1)
    if tensor.numel() == 0:
        return
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        yield from (flat[at : at + most] for at in range(0, flat.numel(), most))
    elif tensor.numel() <= most:
        yield tensor
    else:
        rows = max(1, most * len(tensor) // tensor.numel())
        for at in range(0, len(tensor), rows):
            part = tensor[at : at + rows]
            yield from _parts(part[0], most) if rows == 1 else [part]


def _order(tensor: Any) -> list[int]:
    """The dimensions as they lie in memory, slowest first."""
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def _mapped(path: str) -> _Spans:
    """Where in memory a file is mapped, as Linux says; nothing elsewhere."""
    try:
        maps, real = Path("/proc/self/maps").read_text(errors="replace"), os.path.realpath(path)
    except OSError:
        return ()
    found = [line.split(maxsplit=5) for line in maps.splitlines()]
    ends = [line[0].split("-") for line in found if line[5:] == [real]]
    return tuple((int(start, 16), int(stop, 16)) for start, stop in ends)


def _give_back(part: Any, mapped: _Spans) -> None:
    """Let go of the pages of a mapped file; they are read again if anybody looks again.

    Only of that mapping: of any other memory this would be the end.
    """
    last = sum((n - 1) * step for n, step in zip(part.shape, part.stride(), strict=True))
    start = part.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    stop = part.data_ptr() + (last + 1) * part.element_size()
    if any(low <= start and stop <= high for low, high in mapped):
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), mmap.MADV_DONTNEED)
