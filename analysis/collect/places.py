"""Places: the line of the user's own source that an operation was called from."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

import fpemu
from fpemu.analysis.collect.framework import torch

__all__ = ["Place", "find_place", "is_ours"]

_OURS = os.path.dirname(os.path.abspath(fpemu.__file__))
_INSIDE = tuple(
    os.path.join(folder, "")
    for path in (_OURS, os.path.join(_OURS, "analysis"), os.path.dirname(str(torch.__file__)))
    for folder in (path, os.path.realpath(path))
)
_CALLS = os.path.join(os.path.dirname(str(torch.__file__)), "nn", "modules", "module.py")
#: The code objects in places, by id: their own hash walks all their instructions. None of them may
#: die, or another would take its id.
_codes: dict[int, CodeType] = {}

_DEEPEST = 64  # frames looked at: an operation called through more than that has no line


class Place(NamedTuple):
    """Where an operation stands in the source."""

    file: str  #: as Python knows it; "" if no frame is the user's
    line: int
    steps: tuple[int, ...]  #: code (its id) and instruction of each call up to the module's

    @property
    def short(self) -> str:
        """The file's name and the line, as a trace's names carry them."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.file else "?"

    @property
    def long(self) -> str:
        """The file as seen from the working folder, and the line."""
        return f"{_seen(self.file)}:{self.line}" if self.file else "?"


def find_place(depth: int) -> Place:
    """Return the innermost line outside PyTorch and fpemu, `depth` frames up and further.

    The calls between the operation and the module that it runs in tell apart what stands in one
    line or comes through one helper; a loop's rounds are one place.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    file, line = "", 0
    steps: list[int] = []
    in_module = True
    for _ in range(_DEEPEST):
        if frame is None or (file and not in_module):
            break
        code = frame.f_code
        if code.co_filename == _CALLS:
            in_module = False
        elif in_module and not _ours(code.co_filename):
            _codes[id(code)] = code
            steps += id(code), frame.f_lasti
        if not file and not _inside(code.co_filename):
            file, line = code.co_filename, frame.f_lineno
        frame = frame.f_back
    return Place(file, line, tuple(steps))


def is_ours(depth: int) -> bool:
    """Say whether fpemu itself called, `depth` frames up: an emulation that rounds a weight.

    Modes of ours that hand on what somebody else called do not count.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    ours = False
    while frame is not None and _ours(frame.f_code.co_filename):
        ours = frame.f_code.co_name != "__torch_function__"
        frame = frame.f_back
    return ours


@lru_cache(maxsize=4096)
def _inside(file: str) -> bool:
    return file.startswith(_INSIDE) or file.startswith("<frozen")


@lru_cache(maxsize=4096)
def _ours(file: str) -> bool:
    return file.startswith(_INSIDE[:4])


def _seen(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") or file.startswith("<") else relative
