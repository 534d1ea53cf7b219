"""benchmarks/gpu.py where it cannot run: one line, and exit code 2. Needs no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_without_such_a_device_it_says_why_in_a_line() -> None:
    done = run("--device", "4096")  # no machine has so many
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("benchmarks/gpu.py: ")


def test_bad_options_are_refused() -> None:
    for arguments in (("--device", "-1"), ("--no-speed", "--no-bits")):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage:")
