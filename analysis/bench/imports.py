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
from time import {clock} as clock
start = clock()
import numpy
middle = clock()
import fpemu
print(middle - start, clock() - middle)
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


def startup(
    repeats: int = 9, *, cpu_time: bool = False, run: Runner | None = None
) -> list[Startup]:
    """Return the medians of the imports and of `fpemu --help`, each in a fresh process.

    repeats: processes of each kind, taken in turn. cpu_time: seconds on the processor in place
    of seconds on the wall. run: runs a Python text and returns (seconds, what it printed). The
    import of fpemu is timed inside the process, after numpy's. A process that fails is an
    InputError with the last line it wrote.
    """
    run = run or (lambda text: _in_process(text, cpu_time))
    imports = _IMPORTS.format(clock="process_time" if cpu_time else "perf_counter")
    times: dict[str, list[float]] = {
        "import numpy": [],
        "import fpemu, beyond numpy": [],
        "python -c pass": [],
        "fpemu --help": [],
    }
    for _ in range(repeats):
        numpy_s, fpemu_s = (float(word) for word in run(imports)[1].split())
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


def _in_process(text: str, cpu_time: bool = False) -> tuple[float, str]:
    import fpemu

    root = Path(fpemu.__file__).parents[1]  # so that the child takes this very fpemu
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    clock = _children_s if cpu_time else time.perf_counter
    start = clock()
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = clock() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"a fresh Python failed with exit code {done.returncode}: {last}")
    return seconds, done.stdout


def _children_s() -> float:
    """Seconds that finished child processes spent on a processor."""
    spent = os.times()
    return spent.children_user + spent.children_system
