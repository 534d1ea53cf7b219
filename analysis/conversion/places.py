"""Places: where a converted checkpoint goes: one file, or a folder of shards with their index."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

from fpemu.analysis.checkpoints.checkpoint import INDEX, Checkpoint
from fpemu.analysis.files import beside, check_folder
from fpemu.errors import InputError

__all__ = ["INDEX_FILE", "Places", "default_out", "places", "write_index"]

_SUFFIX = ".safetensors"
_SLUG = 80  #: of a name: a codebook's text would be too long for a file

INDEX_FILE = f"model{_SUFFIX}{INDEX}"


@dataclass(frozen=True)
class Places:
    """Where each file of a checkpoint goes."""

    out: str
    single: bool  #: one file, and not a folder
    names: Mapping[str, str]  #: file -> its name in the folder, or of the one file

    @contextlib.contextmanager
    def lend(self) -> Iterator[dict[str, str]]:
        """Lend a new file's path for each file; in the end they get their names, all or none.

        Errors: InputError for what the system refuses, such as a full disk. Whatever happens,
        nothing half written is left under a name that was asked for.
        """
        try:
            if self.single:
                with beside(self.out) as half:
                    yield dict.fromkeys(self.names, half)
                    os.replace(half, self.out)
            else:
                with _folder_beside(self.out) as half:
                    yield {file: os.path.join(half, name) for file, name in self.names.items()}
                    _rename_folder(half, self.out)
        except OSError as error:
            _refuse(self.out, str(error.strerror or error), "another place")


def places(checkpoint: Checkpoint, out: str | os.PathLike[str], force: bool) -> Places:
    """Return where a checkpoint's files go, if that may be.

    Errors: InputError for the checkpoint's own files and folder, for what is there already (unless
    force), for one file where there are several, and for a folder that is none.
    """
    try:
        target = os.path.realpath(os.fspath(out))
    except (TypeError, ValueError):
        _refuse(repr(out)[:60], "it is no path", "a file or a folder")
    target = target if isinstance(target, str) else os.fsdecode(target)
    single = target.endswith(_SUFFIX)
    if single and len(checkpoint.files) > 1:
        _refuse(target, f"the checkpoint has {len(checkpoint.files)} files", "a folder")
    check_folder(target)
    _check_own(checkpoint, target)
    names = {file: PurePath(file).stem + _SUFFIX for file in checkpoint.files}
    if single:
        names = dict.fromkeys(names, os.path.basename(target))
    if len(set(names.values())) < len(names):
        _refuse(target, "two files would have one name there", "the files one by one")
    found = Places(target, single, names)
    if single:
        if os.path.exists(target) and (not os.path.isfile(target) or not force):
            _there(target, "it is there already" if os.path.isfile(target) else "it is no file")
    elif os.path.exists(target):
        if not os.path.isdir(target):
            _refuse(target, "it is there and no folder", f"another (a file ends in {_SUFFIX})")
        if os.listdir(target) and not force:
            _there(target, "that folder is not empty")
    return found


def _check_own(checkpoint: Checkpoint, target: str) -> None:
    for file in checkpoint.files:
        own = os.path.dirname(os.path.realpath(file)), os.path.dirname(os.path.abspath(file))
        for path in (file, *own):
            if os.path.exists(target) and os.path.exists(path) and os.path.samefile(target, path):
                _refuse(target, "it is the checkpoint that is read", "another place")


def _there(target: str, why: str) -> NoReturn:
    _refuse(target, why, "another place, or force it (--force)")


def _refuse(target: str, why: str, way_out: str) -> NoReturn:
    raise InputError(f"cannot write {target!r}: {why}; give {way_out}") from None


@contextlib.contextmanager
def _folder_beside(target: str) -> Iterator[str]:
    half = os.path.join(os.path.dirname(target), f".fpemu-{uuid.uuid4().hex[:12]}.tmp")
    os.mkdir(half)
    try:
        yield half
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _rename_folder(half: str, target: str) -> None:
    """Give a folder its name; into one that is there its files go one by one, the index last."""
    if not os.path.isdir(target):
        os.rename(half, target)
        return
    for name in sorted(os.listdir(half), key=lambda name: name.endswith(INDEX)):
        os.replace(os.path.join(half, name), os.path.join(target, name))


def write_index(folder: str, weights: Mapping[str, str], octets: int) -> None:
    """Write the index of shards: which file holds each tensor."""
    facts: dict[str, Any] = {"metadata": {"total_size": octets}, "weight_map": dict(weights)}
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    Path(folder, INDEX_FILE).write_text(text, encoding="utf-8")


def default_out(path: str, files: int, name: str, codes: bool) -> str:
    """Return a name in the current folder for a checkpoint that is converted.

    >>> from fpemu.analysis.conversion.places import default_out
    >>> default_out("runs/model.pt", 1, "mxfp8", False), default_out("big/", 2, "nvfp4", True)
    ('model.mxfp8.safetensors', 'big.nvfp4.codes')
    """
    stem = PurePath(os.path.abspath(path)).name
    stem = stem.removesuffix(INDEX)
    known = (_SUFFIX, ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt")
    stem = next((stem.removesuffix(end) for end in known if stem.endswith(end)), stem)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name)[:_SLUG].strip("-.") + (".codes" if codes else "")
    return f"{stem}.{slug}" + (_SUFFIX if files == 1 else "")
