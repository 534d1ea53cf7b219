"""Checkpoint: the files that one is made of: a file, a folder, or shards with their index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.checkpoints import opened
from fpemu.analysis.checkpoints.safetensors import HEADER_LIMIT, unique

__all__ = ["INDEX", "SORTS", "Checkpoint", "find"]

#: Suffixes of the files of a folder that are scanned: of the first line of which there are any.
SORTS = ((".safetensors",), (".npz", ".npy"), (".pt", ".pth", ".bin", ".ckpt"))

INDEX = ".index.json"  #: how the file that lists shards is called at its end


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of a checkpoint, and which file its index gives each tensor."""

    path: str
    files: tuple[str, ...]
    shards: dict[str, str] | None = None  #: tensor -> file; None without an index
    notes: tuple[str, ...] = ()


def find(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the files of a checkpoint.

    A folder: its .safetensors; without those its .npz and .npy; without those PyTorch's. If it
    has an index (.index.json), the shards that this names. An index: the same.
    Errors: InputError for a folder without any, for an index that is no JSON, names files
    elsewhere or files that are not there.
    """
    try:
        name = os.fspath(path)
        name = name if isinstance(name, str) else os.fsdecode(name)
    except TypeError:
        opened.refuse(repr(path)[:40], "is no path", "give the path of a checkpoint")
    with opened.file_errors(name):
        folder = os.path.isdir(name)
        entries = sorted(os.listdir(name)) if folder else []
    if folder:
        return _folder(name, entries)
    return _indexed(name, name) if name.endswith(INDEX) else Checkpoint(name, (name,))


def _folder(path: str, entries: list[str]) -> Checkpoint:
    indexes = [entry for entry in entries if entry.endswith(INDEX)]
    preferred = [entry for entry in indexes if "safetensors" in entry] or indexes
    if len(preferred) > 1:
        names = ", ".join(preferred[:4])
        opened.refuse(path, f"has {len(preferred)} indexes ({names})", "give one of them")
    if preferred:
        return _indexed(path, os.path.join(path, preferred[0]))
    for suffixes in SORTS:
        if chosen := _ending(entries, suffixes):
            left = [entry for entry in _ending(entries, sum(SORTS, ())) if entry not in chosen]
            note = f"Left out of {path}: {', '.join(left)} (name them to read them)."
            files = tuple(os.path.join(path, entry) for entry in chosen)
            return Checkpoint(path, files, notes=(note,) if left else ())
    inside = [entry for entry in entries if os.path.isdir(os.path.join(path, entry))]
    way_out = f"give one of its folders ({', '.join(inside[:4])})" if inside else "give a file"
    opened.refuse(path, "is a folder without a checkpoint", way_out)


def _ending(entries: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    return [entry for entry in entries if entry.lower().endswith(suffixes)]


def _indexed(path: str, index: str) -> Checkpoint:
    shards = _shards(index)
    folder = os.path.dirname(index)
    for shard in dict.fromkeys(shards.values()):
        if os.path.basename(shard) != shard or shard in ("", ".", ".."):
            opened.refuse(index, f"names {shard[:80]!r}, which is not in its own folder",
                          "give the files themselves")  # fmt: skip
    where = {name: os.path.join(folder, shard) for name, shard in shards.items()}
    files = tuple(sorted(set(where.values())))
    missing = [file for file in files if not os.path.exists(file)]
    if missing:
        opened.refuse(index, f"{len(missing)} of {len(files)} shards are missing, "
                             f"{os.path.basename(missing[0])[:80]!r} first",
                      "fetch them, or give the shards that are there")  # fmt: skip
    return Checkpoint(path, files, where)


def _shards(index: str) -> dict[str, str]:
    with opened.open_file(index) as file:
        size = os.fstat(file.fileno()).st_size
        if size > HEADER_LIMIT:
            opened.damaged(index, f"an index of {size:,} bytes")
        text = opened.read_at(file, index, 0, size)
    facts: Any = None
    try:
        facts = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        opened.damaged(index, f"no JSON ({str(error)[:80]})")
    shards = facts.get("weight_map") if isinstance(facts, dict) else None
    if not isinstance(shards, dict) or not shards or not all(
        isinstance(shard, str) for shard in shards.values()
    ):
        opened.damaged(index, "its weight_map names no file for each tensor")
    return shards
