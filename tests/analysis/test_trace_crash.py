"""Traces of processes that are killed or fork: what was committed is there, and is right."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fpemu.analysis import writer
from fpemu.analysis.trace import Trace
from fpemu.errors import TraceError
from fpemu.tallies import tally

NAMES = [f"layer{k}" for k in range(30)]

# Records NAMES at each step and says so; the data follow from step and place alone.
RECORDER = """
import sys
import numpy as np
from fpemu.analysis.trace import Trace

trace = Trace.create(sys.argv[1], metadata={"seed": 7})
for step in range(10**6):
    for k in range(30):
        x = np.full(step % 5 + 1, 2.0 ** (k - step % 20), np.float32)
        trace.record(f"layer{k}", "activation", x, step)
    trace.scalar(step, "loss", step)
    print(step, flush=True)
"""

# Writes the same path again and again, each time a whole trace.
SAVER = """
import sys
import numpy as np
from fpemu.analysis.trace import Trace

for n in range(10**6):
    trace = Trace(metadata={"n": n})
    for step in range(50):
        trace.record("fc1", "weight", np.full(n + 1, 1.0, np.float32), step)
    trace.save(sys.argv[1])
    print(n, flush=True)
"""


def killed(script: str, path: Path, lines: int) -> int:
    """Run a script, kill it after it has printed some lines, and return the last it printed."""
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        last = -1
        for line in process.stdout:
            last = int(line)
            if last >= lines:
                process.kill()  # SIGKILL: nothing of the process runs any more
                break
        last = max([last, *(int(line) for line in process.stdout.read().split())])
    assert process.returncode == -signal.SIGKILL
    return last


@pytest.mark.parametrize("lines", [0, 8, 9, 61, 150])
def test_a_killed_recording_loads(tmp_path, lines):
    path = tmp_path / "run.fpemu"
    last = killed(RECORDER, path, lines)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-shm" not in file.name}
    trace = Trace.load(path)
    assert trace.metadata["seed"] == 7
    found = [(r.step, r.name) for r in trace.records()]
    # What is there is all that was recorded up to some moment, and at most a batch is missing.
    order = [(step, name) for step in range(last + 2) for name in NAMES]
    assert found == order[: len(found)]
    assert len(found) > 30 * (last + 1) - writer.BATCH_RECORDS
    for record in trace.records():
        x = np.full(record.step % 5 + 1, 2.0 ** (NAMES.index(record.name) - record.step % 20))
        assert record.tally == tally(x.astype(np.float32))
    scalars = [s.step for s in trace.scalars("loss")]
    assert scalars == list(range(len(scalars)))
    # Loading has changed nothing; saving under the same name makes it one file.
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir() if "-shm" not in file.name}
    assert after == before
    trace.save(path)
    assert os.listdir(tmp_path) == ["run.fpemu"]
    assert [(r.step, r.name) for r in Trace.load(path).records()] == found
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_killed_recording_can_be_overwritten_and_merged(tmp_path):
    path = tmp_path / "run.fpemu"
    killed(RECORDER, path, 20)
    merged = Trace()
    merged.merge(Trace.load(path))
    assert len(merged.steps()) >= 20 - writer.BATCH_RECORDS // 30
    with Trace.create(path, overwrite=True) as trace:
        assert trace.names() == []
    assert os.listdir(tmp_path) == ["run.fpemu"]
    assert Trace.load(path).steps() == []


def test_a_killed_save_leaves_a_whole_trace(tmp_path):
    path = tmp_path / "run.fpemu"
    for lines in (3, 10):
        last = killed(SAVER, path, lines)
        trace = Trace.load(path)
        n = trace.metadata["n"]
        assert last <= n <= last + 1
        assert trace.steps() == list(range(50))
        assert trace.total().total == 50 * (n + 1)


FORKING = """
import os, sys
import numpy as np
from fpemu.analysis.trace import Trace
from fpemu.errors import TraceError

path, x = sys.argv[1], np.ones(2, np.float32)
trace, inside = Trace.create(path), Trace()
trace.record("parent", "weight", x, 0)
for way in ("exit", "_exit", "own"):
    child = os.fork()
    if child == 0:
        refused = 0
        for act in (lambda: trace.record("child", "weight", x, 0), trace.names,
                    lambda: trace.scalar(0, "loss", 1.0), lambda: trace.save(path + ".copy"),
                    lambda: inside.record("child", "weight", x, 0)):
            try:
                act()
            except TraceError as error:
                refused += "belongs to process" in str(error)
        trace.close()  # as leaving a with block does: nothing
        if way == "own":  # the way out that the error names
            with Trace.create(path + ".child") as own:
                own.record("child", "weight", x, 0)
        os._exit(refused) if way == "_exit" else sys.exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5, way
    trace.record("parent", "weight", x, 0)
trace.merge(Trace.load(path + ".child"))
trace.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_write_its_parents_trace(tmp_path):
    path = tmp_path / "run.fpemu"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["run.fpemu", "run.fpemu.child"]
    trace = Trace.load(path)
    assert [(r.name, r.recordings) for r in trace.records()] == [("parent", 4), ("child", 1)]


def test_of_several_processes_one_gets_the_name(tmp_path):
    code = (
        "import sys, os, time, numpy as np; from fpemu.analysis.trace import Trace\n"
        "print(flush=True); sys.stdin.readline()\n"
        "trace = Trace.create(sys.argv[1], overwrite=bool(int(sys.argv[2])))\n"
        "trace.record('x', 'weight', np.ones(1, np.float32), 0); time.sleep(0.5); trace.close()\n"
    )
    for overwrite in "01":
        path = tmp_path / f"run{overwrite}.fpemu"
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(path), overwrite],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        errors = [process.communicate()[1] for process in processes]
        winners = [not error for error in errors]
        assert sum(winners) == 1, errors
        assert all("TraceError" in error for error in errors if error), errors
        assert Trace.load(path).total().total == 1
    assert sorted(os.listdir(tmp_path)) == ["run0.fpemu", "run1.fpemu"]


def test_the_error_of_a_closed_trace():
    trace = Trace()
    trace._store.close()
    with pytest.raises(TraceError, match="is closed"):
        trace.names()
