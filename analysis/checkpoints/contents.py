"""Contents: the tensors of one file, whatever kind of checkpoint it is, told by its first bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from fpemu.analysis.checkpoints import archives, npy, npz, opened, reasons, safetensors
from fpemu.analysis.checkpoints.stored import Stored

__all__ = ["notes_of", "tensors_of"]

_KNOWN = "known are safetensors, .npy, .npz and PyTorch's zip files"

#: First bytes of a file that is no checkpoint -> what it is, and what to do.
_FOREIGN = (
    (b"version https://git-lfs", "is a pointer of Git LFS, and the file itself is elsewhere",
     "fetch it with `git lfs pull`"),
    (b"SQLite format 3\0", "is a database, perhaps a trace already",
     "give a trace to `fpemu report`"),
    (b"\x89HDF\r\n\x1a\n", "is HDF5, which is not read here", "save its arrays with np.savez"),
    (b"GGUF", "is GGUF, whose blocks of integers are not read here",
     "give the checkpoint that it was made of"),
    (b"PK\x05\x06", "is an empty archive", _KNOWN),
)  # fmt: skip

#: How pickles begin: protocols 2 to 5, and the tar and the numbers of PyTorch before 1.6.
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_TAR = 257, b"ustar"


@contextlib.contextmanager
def tensors_of(path: str) -> Iterator[list[Stored]]:
    """Lend the tensors of a file, none of them read yet, while it is open.

    Errors: InputError in one line for anything that is no checkpoint, or not a whole one.
    """
    with opened.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = opened.read_at(file, path, 0, min(size, 512))
        _refuse_foreign(head, path)
        if head.startswith(archives.MAGIC):
            with archives.open_archive(file, path, size) as archive:
                if archives.is_torch(archive):
                    from fpemu.analysis.checkpoints import torch

                    yield torch.read(file, archive, path)
                else:
                    yield npz.read(archive, path)
        elif head.startswith(npy.MAGIC):
            yield npy.read(file, path, size)
        elif head[8:9] == b"{":
            yield safetensors.read(file, path, size)
        else:
            opened.refuse(path, "is no checkpoint, or a damaged one", _KNOWN)


def _refuse_foreign(head: bytes, path: str) -> None:
    if not head:
        opened.refuse(path, "is empty", _KNOWN)
    for begin, rule, way_out in _FOREIGN:
        if head.startswith(begin):
            opened.refuse(path, rule, way_out)
    at, tar = _TAR
    if head.startswith(_PICKLES) or head[at:].startswith(tar):
        opened.refuse(path, *reasons.pickled("a file of this old kind"))


def notes_of(path: str) -> dict[str, str] | None:
    """Return what a safetensors file says of itself, its `__metadata__`; None of other files."""
    with opened.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = opened.read_at(file, path, 0, min(size, 9))
        if head[8:9] != b"{" or head.startswith((archives.MAGIC, npy.MAGIC)):
            return None
        return safetensors.read_notes(file, path, size)
