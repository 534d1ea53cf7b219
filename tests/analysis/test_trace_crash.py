"""Traces of processes that are killed or fork: what was committed is there, and is right."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fpemu.analysis import writer
from fpemu.analysis.trace import Record, Trace
from fpemu.errors import TraceError

LAYERS = 30
NAMES = [f"layer{k}" for k in range(LAYERS)]

# Records LAYERS tensors a step and says so. The records were made by the test, and which one is
# whose follows from step and place: the process itself is light and is quickly there.
RECORDER = """
import json, sys
from dataclasses import replace
from fpemu.analysis.trace import Record, Trace

with open(sys.argv[2]) as file:
    made = [Record.packed("x", "activation", 0, *a, bytes.fromhex(b)) for *a, b in json.load(file)]
trace = Trace.create(sys.argv[1], metadata={"seed": 7})
for step in range(10**6):
    for k in range(30):
        trace.add(replace(made[(step + k) % len(made)], name=f"layer{k}", step=step))
    trace.scalar(step, "loss", step)
    print(step, flush=True)
"""

# Writes the same path again and again, each time a whole trace.
SAVER = """
import sys
from fpemu.analysis.trace import Trace

for n in range(10**6):
    trace = Trace(metadata={"n": n})
    for step in range(50):
        trace.scalar(step, "n", n)
    trace.save(sys.argv[1])
    print(n, flush=True)
"""


def made(path: Path) -> list[Record]:
    """Records of different tallies, also as a file that RECORDER reads."""
    trace = Trace()
    for k in range(7):
        trace.record("x", "activation", np.full(k + 1, 2.0 ** (k - 3), np.float32), k)
    records = list(trace.records())
    packed = [(*rest, tally.hex()) for *rest, tally in (record.pack() for record in records)]
    path.write_text(json.dumps(packed))
    return records


def killed(script: str, lines: int, *arguments: Path) -> int:
    """Run a script, kill it after it has printed some lines, and return the last it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        last = -1
        for line in process.stdout:
            last = int(line)
            if last >= lines:
                process.kill()  # SIGKILL: nothing of the process runs any more
                break
        last = max([last, *map(int, process.stdout.read().split())])
    assert process.returncode == -signal.SIGKILL
    return last


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for the index that readers share."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if "-shm" not in file.name}


@pytest.mark.parametrize("lines", [0, 9, 60])
def test_a_killed_recording_loads(tmp_path, lines):
    path = tmp_path / "run" / "run.fpemu"
    path.parent.mkdir()
    records = made(tmp_path / "made.json")
    last = killed(RECORDER, lines, path, tmp_path / "made.json")
    before = contents(path.parent)
    trace = Trace.load(path)
    assert trace.metadata["seed"] == 7
    found = list(trace.records())
    # What is there is all that was recorded up to some moment, and at most a batch is missing.
    order = [(name, "activation", step) for step in range(last + 2) for name in NAMES]
    assert [record.key for record in found] == order[: len(found)]
    assert len(found) > LAYERS * (last + 1) - writer.BATCH_RECORDS
    for n, record in enumerate(found):
        original = records[(n // LAYERS + n % LAYERS) % len(records)]
        assert (record.tally, record.shape) == (original.tally, original.shape)
    scalars = [scalar.step for scalar in trace.scalars("loss")]
    assert scalars == list(range(len(scalars)))
    # Loading has changed nothing; saving under the same name makes it one file.
    assert contents(path.parent) == before
    trace.save(path)
    assert os.listdir(path.parent) == ["run.fpemu"]
    assert [record.key for record in Trace.load(path).records()] == order[: len(found)]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_killed_recording_can_be_merged_and_overwritten(tmp_path):
    path = tmp_path / "run.fpemu"
    made(tmp_path / "made.json")
    killed(RECORDER, 20, path, tmp_path / "made.json")
    merged = Trace()
    merged.merge(Trace.load(path))
    assert merged.steps() == Trace.load(path).steps()
    with Trace.create(path, overwrite=True) as trace:
        assert trace.names() == []
    assert sorted(os.listdir(tmp_path)) == ["made.json", "run.fpemu"]
    assert Trace.load(path).steps() == []


def test_a_killed_save_leaves_a_whole_trace(tmp_path):
    path = tmp_path / "run.fpemu"
    for lines in (3, 12):
        last = killed(SAVER, lines, path)
        trace = Trace.load(path)
        n = trace.metadata["n"]
        assert last <= n <= last + 1
        assert [(s.step, s.value) for s in trace.scalars("n")] == [(k, n) for k in range(50)]


FORKING = """
import os, sys
from fpemu.analysis.trace import Trace
from fpemu.errors import TraceError

path = sys.argv[1]
trace, inside = Trace.create(path), Trace()
trace.scalar(0, "parent", 1.0)
for n, way in enumerate(("exit", "_exit", "own")):
    child = os.fork()
    if child == 0:
        refused = 0
        for act in (lambda: trace.record("child", "weight", None, 0), trace.names,
                    lambda: trace.scalar(0, "child", 1.0), lambda: trace.save(path + ".copy"),
                    lambda: inside.scalar(0, "child", 1.0)):
            try:
                act()
            except TraceError as error:
                refused += "belongs to process" in str(error)
        trace.close()  # as leaving a with block does: nothing
        if way == "own":  # the way out that the error names
            with Trace.create(path + ".child") as own:
                own.scalar(0, "child", 2.0)
        os._exit(refused) if way == "_exit" else sys.exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5, way
    trace.scalar(n, "parent", 1.0)
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
    assert [s.name for s in Trace.load(path).scalars()] == ["parent", "child", "parent", "parent"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_several_processes_one_gets_the_name(tmp_path, overwrite):
    script = (
        "import sys; from fpemu.analysis.trace import Trace\n"
        "print(flush=True); sys.stdin.readline()\n"
        f"trace = Trace.create(sys.argv[1], overwrite={overwrite})\n"
        "trace.scalar(0, 'x', 1.0); print(flush=True); sys.stdin.readline(); trace.close()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run.fpemu")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for process in processes:
        process.stdout.readline()  # all are ready
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.stdout.readline()  # all have tried; now the winner may end
    errors = [process.communicate("\n")[1] for process in processes]
    assert all("TraceError: trace" in error for error in errors if error), errors
    assert errors.count("") == 1, errors
    assert [s.value for s in Trace.load(tmp_path / "run.fpemu").scalars()] == [1.0]
    assert os.listdir(tmp_path) == ["run.fpemu"]


def test_a_closed_trace_in_memory_says_so():
    trace = Trace()
    trace._store.close()
    with pytest.raises(TraceError, match="is closed"):
        trace.names()
