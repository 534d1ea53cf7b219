"""imports: what `import fpemu` adds to numpy's import, and how long `fpemu --help` takes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpemu.errors import InputError

__all__ = ["Startup", "startup"]

_IMPORTS = """
import time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
import fpemu
print(middle - start, time.perf_counter() - middle)
"""
_HELP = "from fpemu.analysis.cli import main; main(['--help'])"


@dataclass(frozen=True)
class Startup:
    """Median seconds over several fresh processes."""

    what: str
    seconds: float
    low: float  #: lower quartile
    high: float  #: upper quartile
    runs: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        return dict(vars(self))


Runner = Callable[[str], tuple[float, str]]


def startup(repeats: int = 9, *, run: Runner | None = None) -> list[Startup]:
    """Return the medians of the imports and of `fpemu --help`, each in a fresh process.

    repeats: processes of each kind, taken in turn. run: runs a Python text and returns (seconds
    from start to exit, what it printed). The import of fpemu is timed inside the process, after
    numpy's. A process that fails is an InputError with the last line it wrote.
    """
    run = run or _in_process
    times: dict[str, list[float]] = {
        "import numpy": [],
        "import fpemu, beyond numpy": [],
        "python -c pass": [],
        "fpemu --help": [],
    }
    for _ in range(repeats):
        numpy_s, fpemu_s = (float(word) for word in run(_IMPORTS)[1].split())
        found = (numpy_s, fpemu_s, run("pass")[0], run(_HELP)[0])
        for what, seconds in zip(times, found, strict=True):
            times[what].append(seconds)
    return [_median(what, seconds) for what, seconds in times.items()]


def _median(what: str, seconds: list[float]) -> Startup:
    low, middle, high = (
        statistics.quantiles(seconds, n=4, method="inclusive")
        if len(seconds) > 1
        else seconds * 3
    )
    return Startup(what, middle, low, high, len(seconds))


def _in_process(text: str) -> tuple[float, str]:
    import fpemu

    root = Path(fpemu.__file__).parents[1]  # so that the child takes this very fpemu
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"a fresh Python failed with exit code {done.returncode}: {last}")
    return seconds, done.stdout
