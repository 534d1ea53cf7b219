"""The command `fpemu` as a process of its own: at a terminal, and interrupted there."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fpemu

ROOT = Path(fpemu.__file__).parents[1]

# In the background of a shell Ctrl-C is ignored, and so by all that is started there.
_FPEMU = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fpemu.analysis.cli import main
main(prog_name="fpemu")
"""


def process(*args: object, **streams: Any) -> subprocess.Popen[bytes]:
    """Start `fpemu ARGS`."""
    return subprocess.Popen(
        [sys.executable, "-c", _FPEMU, *map(str, args)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}, **streams,
    )  # fmt: skip


def huge(path: Path, *shape: int) -> None:
    """Write a sparse checkpoint of one float32 tensor."""
    octets = 4
    for length in shape:
        octets *= length
    facts = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, octets]}}
    header = json.dumps(facts).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + octets)


def interrupted(*args: object) -> bytes:
    """Start `fpemu ARGS` at a terminal, press Ctrl-C once it shows a rate; return what it printed.

    It must end with the exit code of an interruption.
    """
    leader, follower = pty.openpty()
    child = process(*args, stdout=follower, stderr=follower)
    os.close(follower)
    seen, deadline = b"", time.monotonic() + 60
    while b"B/s" not in seen and time.monotonic() < deadline:
        seen += os.read(leader, 4096)
    child.send_signal(signal.SIGINT)
    end = threading.Timer(60, child.kill)  # whatever happens, the test ends
    end.start()
    try:
        while True:
            seen += os.read(leader, 4096)
    except OSError:  # Linux's end of a terminal
        pass
    os.close(leader)
    assert child.wait() == 130
    end.cancel()
    return seen
