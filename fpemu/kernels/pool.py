"""A small thread pool for chunks of large arrays.

numba's own threading layers kill or abort forked children (omp) and concurrent callers
(workqueue); serial nogil kernels on threads of our own are safe in both.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from fpemu.errors import InputError, short

__all__ = ["SMALL", "run_chunks", "thread_count"]

#: Elements below which a call stays on its own thread: handing over costs about 50 microseconds.
SMALL = 1 << 18

_lock = threading.Lock()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # (process id, workers) -> pool


def thread_count(threads: int | None = None) -> int:
    """Return `threads`, or FPEMU_THREADS, or the number of processors this process may use."""
    if threads is None:
        text = os.environ.get("FPEMU_THREADS", "").strip()
        if not text:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (
                os.cpu_count() or 1
            )
        if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text) > 0):
            raise InputError(f"FPEMU_THREADS={text[:40]!r}: must be a whole number, 1 or more")
        return int(text)
    try:
        number = operator.index(threads)
    except TypeError:
        number = 0
    if isinstance(threads, bool) or number < 1:
        raise InputError(f"threads={short(threads)}: must be an int, 1 or more")
    return number


def _pool(workers: int) -> ThreadPoolExecutor:
    key = (os.getpid(), workers)  # a forked child has none of its parent's threads
    with _lock:
        for old in [k for k in _pools if k[0] != key[0]]:
            del _pools[old]
        if key not in _pools:
            _pools[key] = ThreadPoolExecutor(workers, thread_name_prefix="fpemu")
        return _pools[key]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def run_chunks(function: Callable[[int, int], None], size: int, threads: int | None = None) -> None:
    """Call function(start, stop) over [0, size) in chunks; they may run at the same time."""
    if threads is not None:
        threads = thread_count(threads)  # a wrong value is refused for small arrays too
    if size < 2 * SMALL or (workers := thread_count(threads)) == 1:
        function(0, size)
        return
    # a few chunks a worker even out a busy machine; multiples of 64 keep cache lines apart
    step = max(SMALL, -(-size // (4 * workers)) + 63 & ~63)
    spans = [(start, min(start + step, size)) for start in range(0, size, step)]
    pending: list[Future[None]] = []
    try:
        for span in spans[1:]:
            pending.append(_pool(workers).submit(function, *span))
    except RuntimeError:  # the interpreter is ending, or no thread can be started: do it here
        pass
    try:
        for span in (spans[0], *spans[1 + len(pending):]):
            function(*span)
        for future in pending:
            future.result()
    finally:  # on an error or Ctrl-C too, nothing may write on after this call
        for future in pending:
            future.cancel()
        wait(pending)
