"""jit: numba compilation without the interpreter lock, cached on disk where that is possible."""

from __future__ import annotations

import hashlib
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


def jit(function: _F) -> _F:
    """Compile a loop for the CPU: nogil, so that chunks run on threads; strict IEEE."""
    import numba

    njit: Any = numba.njit
    try:
        return njit(nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no writable place for the cache: a read-only install, no home
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


def inner(function: _F, **options: Any) -> _F:
    """Let loops call a plain function, compiled into them.

    A dispatcher of its own in a loop's closure is pickled with a random number, and the disk
    cache would never find the loop again.
    """
    from numba.extending import register_jitable

    decorate: Any = register_jitable(**options) if options else register_jitable
    return decorate(function)  # type: ignore[no-any-return]
