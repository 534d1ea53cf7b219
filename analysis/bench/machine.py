"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["machine_facts"]

PACKAGES = ("fpemu", "numpy", "numba", "ml_dtypes", "torch", "torchao", "gfloat")


def machine_facts() -> dict[str, Any]:
    """Return processor model, usable cores, load, Python and the versions of what is installed.

    >>> from fpemu.analysis.bench.machine import machine_facts
    >>> sorted(machine_facts())
    ['cores', 'load', 'processor', 'python', 'system', 'versions']

    load: runnable processes, averaged over the last minute; None where the system has no such
    figure. Above 0.5 or so before the run, something else was at work too.
    """
    return {
        "processor": _processor(),
        "cores": _cores(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    if package == "fpemu":  # from a checkout that nobody installed, too
        import fpemu

        return fpemu.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None
