"""jit: numba compilation without the interpreter lock, cached on disk where that is possible."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["inner", "jit", "source_stamp"]

_F = TypeVar("_F", bound=Callable[..., Any])


@cache
def source_stamp() -> str:
    """Return a hash of every kernel source.

    numba's disk cache notices a change in the file of the cached function alone, not in the
    files of the functions that it calls. A loop that closes over this stamp is looked up under
    another key when any source changes.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def jit(function: _F, **options: Any) -> _F:
    """Compile a loop for the CPU: nogil, so that chunks run on threads; strict IEEE.

    options: more of numba's, such as error_model="numpy" where 1 / 0 is infinite and no error.

    The compiled loop is kept on disk where that works; where it does not (a read-only install, a
    full disk, a damaged file) it is compiled again in each process.
    """
    import numba

    _survive_forks()
    njit: Any = numba.njit
    try:
        compiled = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no place for the cache: a read-only install, no home
        return njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
    compiled._cache = _Forgiving(compiled._cache)
    return compiled  # type: ignore[no-any-return]


class _Forgiving:
    """numba's disk cache, with every failure to read or write taken as "not there"."""

    def __init__(self, cache: Any) -> None:
        self._real = cache

    def load_overload(self, *key: Any) -> Any:
        try:
            return self._real.load_overload(*key)
        except Exception:  # cut short, another version's, unreadable: compile instead
            return None

    def save_overload(self, *data: Any) -> None:
        # a full disk must not stop the call that is being compiled for
        with contextlib.suppress(Exception):
            self._real.save_overload(*data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@cache
def _survive_forks() -> None:
    """Hold numba's compiler lock over a fork, or a child forked during a compile waits for ever."""
    from numba.core.compiler_lock import global_compiler_lock as lock

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


def inner(function: _F, **options: Any) -> _F:
    """Let loops call a plain function, compiled into them.

    A dispatcher of its own in a loop's closure is pickled with a random number, and the disk
    cache would never find the loop again.
    """
    from numba.extending import register_jitable

    decorate: Any = register_jitable(**options) if options else register_jitable
    return decorate(function)  # type: ignore[no-any-return]
