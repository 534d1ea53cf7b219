"""Trace files: whole or not there, one file at rest, and one clear line for everything bad."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpemu.analysis import place, store, writer
from fpemu.analysis.trace import Record, Trace
from fpemu.errors import InputError, TraceError

ONE = np.ones(1, np.float32)


def small(path: Path, steps: int = 3) -> Path:
    """Write a small trace."""
    with Trace.create(path, metadata={"seed": 1}) as trace:
        for step in range(steps):
            trace.record("fc1", "weight", ONE, step)
            trace.record("fc2", "update", np.zeros(2, np.float32), step)
        trace.event(0, "fc1", "weight", "overflow found", amax=2.5)
        trace.scalar(0, "loss", 0.5)
    return path


def read_everything(path: Path) -> tuple[object, ...]:
    """Decode all that a trace file holds."""
    trace = Trace.load(path)
    records = [(r.key, r.shape, r.recordings, r.tally, r.moments) for r in trace.records()]
    lists = trace.names(), trace.steps(), list(trace.events()), list(trace.scalars())
    return records, lists, dict(trace.metadata)


def one_record() -> list[Record]:
    """A finished record, to be added again and again."""
    trace = Trace()
    trace.record("fc1", "weight", ONE, 0)
    return list(trace.records())


def committed(path: Path) -> int:
    """Count the committed records as another program sees them."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True); "
        "print(c.execute('SELECT count(*) FROM record').fetchone()[0])"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code, path], capture_output=True, check=True)
    return int(run.stdout)


def test_save_and_load_are_the_same(tmp_path):
    first = small(tmp_path / "a.fpemu")
    Trace.load(first).save(tmp_path / "b.fpemu")
    assert read_everything(first) == read_everything(tmp_path / "b.fpemu")
    merged = Trace()
    merged.merge(Trace.load(first))
    merged.save(tmp_path / "c.fpemu")
    assert read_everything(first)[0] == read_everything(tmp_path / "c.fpemu")[0]
    assert sorted(os.listdir(tmp_path)) == ["a.fpemu", "b.fpemu", "c.fpemu"]


def test_one_file_on_close_and_still_readable(tmp_path):
    path = tmp_path / "run.fpemu"
    trace = Trace.create(path)
    trace.record("fc1", "weight", ONE, 0)
    assert trace.steps() == [0]
    trace.close()
    trace.close()
    assert os.listdir(tmp_path) == ["run.fpemu"]
    assert trace.steps() == [0]
    with pytest.raises(TraceError, match="was loaded or closed"):
        trace.record("fc1", "weight", ONE, 1)
    header = path.read_bytes()[:100]
    assert header[18:20] == b"\1\1"  # not in WAL mode: readable on a read-only disk
    assert int.from_bytes(header[68:72], "big") == store.APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == store.SCHEMA_VERSION


def test_loaded_traces_are_only_read(tmp_path):
    path = small(tmp_path / "run.fpemu")
    before = path.read_bytes()
    trace = Trace.load(path)
    changes: list[Callable[[], object]] = [
        lambda: trace.record("a", "weight", ONE, 0),
        lambda: trace.scalar(0, "loss", 1.0),
        lambda: trace.event(0, "", "skip", "step skipped"),
        lambda: trace.merge(Trace()),
        lambda: trace.metadata.update(seed=2),
        lambda: trace.metadata.pop("seed"),
    ]
    for change in changes:
        with pytest.raises(TraceError, match="merge it into"):
            change()
    assert trace.metadata["seed"] == 1
    trace.close()
    read_everything(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.fpemu"]


def test_a_batch_is_committed_by_count(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_SECONDS", 3600.0)
    [record] = one_record()
    with Trace.create(tmp_path / "run.fpemu") as trace:
        for step in range(writer.BATCH_RECORDS + 10):
            trace.add(replace(record, step=step))
        assert committed(tmp_path / "run.fpemu") == writer.BATCH_RECORDS


def test_a_batch_is_committed_by_time(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_SECONDS", 0.02)
    with Trace.create(tmp_path / "run.fpemu") as trace:
        trace.record("fc1", "weight", ONE, 0)
        for _ in range(100):  # nothing is called meanwhile: the batch commits itself
            if committed(tmp_path / "run.fpemu"):
                break
            time.sleep(0.05)
        assert committed(tmp_path / "run.fpemu") == 1


def test_reading_while_it_is_written(tmp_path):
    path = tmp_path / "run.fpemu"
    with Trace.create(path, metadata={"seed": 4}) as trace:
        assert Trace.load(path).metadata["seed"] == 4  # there from the beginning
        trace.record("fc1", "weight", ONE, 0)
        trace.scalar(0, "loss", 1.0)
        trace.steps()
        early = Trace.load(path)
        trace.record("late", "weight", ONE, 0)
        trace.record("late", "weight", ONE, 5)
        trace.scalar(5, "loss", 1.0)
        trace.event(5, "", "skip", "step skipped")
        trace.metadata["seed"] = 5
        trace.steps()
        # A loaded trace shows the moment of its loading, however far the writer is.
        assert (early.names(), early.steps(), early.total().total) == (["fc1"], [0], 1)
        assert (len(list(early.scalars())), len(list(early.events()))) == (1, 0)
        assert early.metadata["seed"] == 4
        late = Trace.load(path)
        assert (late.names(), late.steps()) == (["fc1", "late"], [0, 5])
        assert late.metadata["seed"] == 5
    assert os.listdir(tmp_path) == ["run.fpemu"]  # though three readers are about
    assert (early.names(), late.steps()) == (["fc1"], [0, 5])


def test_a_loaded_trace_notices_that_it_was_replaced(tmp_path):
    path = small(tmp_path / "run.fpemu")
    trace = Trace.load(path)
    Trace().save(path)
    with pytest.raises(TraceError, match="was replaced by another since it was loaded"):
        trace.names()


def test_an_unclosed_trace_is_closed_when_dropped(tmp_path):
    trace = Trace.create(tmp_path / "run.fpemu")
    trace.record("fc1", "weight", ONE, 0)
    del trace
    gc.collect()
    assert os.listdir(tmp_path) == ["run.fpemu"]
    assert Trace.load(tmp_path / "run.fpemu").steps() == [0]


def test_an_unclosed_trace_is_closed_at_exit(tmp_path):
    code = (
        "import sys; from fpemu.analysis.trace import Trace; "
        "trace = Trace.create(sys.argv[1]); trace.scalar(0, 'loss', 0.5); raise SystemExit(3)"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "run.fpemu"], capture_output=True)
    assert (run.returncode, run.stderr) == (3, b"")
    assert os.listdir(tmp_path) == ["run.fpemu"]
    assert [s.value for s in Trace.load(tmp_path / "run.fpemu").scalars()] == [0.5]


def test_create_refuses_what_exists(tmp_path):
    path = small(tmp_path / "run.fpemu")
    before = path.read_bytes()
    with pytest.raises(TraceError, match="is there already; choose another name, or overwrite"):
        Trace.create(path)
    assert path.read_bytes() == before
    with Trace.create(path, overwrite=True) as trace:
        assert trace.names() == []
    with Trace.create(tmp_path / "new.fpemu", overwrite=True):
        pass
    (tmp_path / "empty.fpemu").touch()  # as tempfile makes them
    with Trace.create(tmp_path / "empty.fpemu", overwrite=True):
        pass
    assert sorted(os.listdir(tmp_path)) == ["empty.fpemu", "new.fpemu", "run.fpemu"]


def test_a_trace_in_use_is_not_replaced(tmp_path):
    path = tmp_path / "run.fpemu"
    with Trace.create(path) as trace:
        trace.record("fc1", "weight", ONE, 0)
        for replace in (lambda: Trace.create(path, overwrite=True), lambda: Trace().save(path)):
            with pytest.raises(TraceError, match="being written or read by another program"):
                replace()
        trace.record("fc1", "weight", ONE, 1)
    assert Trace.load(path).steps() == [0, 1]
    assert os.listdir(tmp_path) == ["run.fpemu"]


def test_links_are_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "run.fpemu"
    link.symlink_to(tmp_path / "disk" / "real.fpemu")
    with Trace.create(link) as trace:
        trace.record("fc1", "weight", ONE, 0)
    Trace.load(link).save(link)
    assert link.is_symlink()
    assert os.listdir(tmp_path / "disk") == ["real.fpemu"]
    assert Trace.load(link).steps() == [0]


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE record (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()


def newer(path: Path) -> None:
    small(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {store.SCHEMA_VERSION + 1}")
    connection.close()


def unversioned(path: Path) -> None:
    small(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 0")
    connection.close()


def tableless(path: Path) -> None:
    small(path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE meta")
    connection.close()


def cut(path: Path) -> None:
    whole = small(path, steps=200).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


BAD_FILES = {
    "missing": (lambda path: None, "No such file or directory"),
    "empty": (lambda path: path.touch(), "is empty: its recording ended before it began"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "text": (lambda path: path.write_text("step,loss\n0,1\n"), "it is no trace"),
    "long text": (lambda path: path.write_text("step,loss\n" * 1000), "it is no trace"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 64), "it is no trace"),
    "foreign": (foreign, "another program's SQLite file"),
    "newer": (newer, "has schema version 2, this fpemu reads up to 1; update fpemu"),
    "unversioned": (unversioned, "has schema version 0, the first is 1"),
    "tableless": (tableless, "no such table: meta"),
    "cut": (cut, "malformed; the file is damaged or cut short"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(tmp_path, case):
    make, message = BAD_FILES[case]
    path = tmp_path / "run.fpemu"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TraceError, match=message) as caught:
        read_everything(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    if case not in ("missing", "empty"):
        if case not in ("unversioned", "tableless", "cut"):  # a trace, though a bad one
            with pytest.raises(TraceError, match=message):
                Trace.create(path, overwrite=True)
            with pytest.raises(TraceError, match=message):
                Trace().save(path)
        assert (path.read_bytes() if path.is_file() else None) == before
    assert os.listdir(tmp_path) == ([] if case == "missing" else ["run.fpemu"])


@pytest.mark.parametrize("where", ["no/such/folder/run.fpemu", "file.txt/run.fpemu", "f" * 300])
def test_bad_places(tmp_path, where):
    (tmp_path / "file.txt").touch()
    for act in (Trace.create, Trace().save, Trace.load):
        with pytest.raises(TraceError, match=r"^trace .*: .*; check the path"):
            act(tmp_path / where)
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX users")
@pytest.mark.parametrize("what", ["create", "save", "load"])
def test_without_permission(tmp_path, what):
    path = small(tmp_path / "run.fpemu")
    path.chmod(0o000)
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may write anywhere
    try:
        act = {"create": Trace.create, "save": Trace().save, "load": Trace.load}[what]
        with pytest.raises(TraceError, match="; check ") as caught:
            act(path if what == "load" else tmp_path / "new.fpemu")
        assert "\n" not in str(caught.value)
    finally:
        os.seteuid(user)
    tmp_path.chmod(0o755)
    assert os.listdir(tmp_path) == ["run.fpemu"]


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", 2.5])
def test_bad_paths(path):
    for act in (Trace.create, Trace.load, Trace().save):
        with pytest.raises(InputError, match=r"^path "):
            act(path)


def test_nothing_is_left_of_a_bad_start(tmp_path):
    with pytest.raises(InputError, match="metadata"):
        Trace.create(tmp_path / "run.fpemu", metadata={"x": object()})
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = small(tmp_path / "run.fpemu")
    before = path.read_bytes()

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(TraceError, match="No space left on device"):
        Trace().save(path)
    with pytest.raises(TraceError, match="No space left on device"):
        Trace.create(tmp_path / "new.fpemu")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.fpemu"]


def test_a_full_disk_loses_nothing_that_is_waiting(tmp_path):
    trace = Trace.create(tmp_path / "run.fpemu")
    connection = trace._store._connection
    connection.execute("PRAGMA max_page_count = 40")
    [record] = one_record()
    with pytest.raises(TraceError, match="full; free some space"):  # noqa: PT012
        for reached in range(5000):
            trace.add(replace(record, step=reached))
    with pytest.raises(TraceError, match="full; free some space"):
        trace.close()
    connection.execute("PRAGMA max_page_count = 100000")
    trace.record("fc1", "weight", ONE, reached + 1)
    trace.close()
    assert Trace.load(tmp_path / "run.fpemu").steps() == list(range(reached + 2))


def test_a_failed_commit_in_the_background_is_told_at_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_SECONDS", 0.01)
    trace = Trace.create(tmp_path / "run.fpemu")
    connection = trace._store._connection
    connection.execute("PRAGMA query_only = ON")
    trace.record("fc1", "weight", ONE, 0)
    for _ in range(500):
        if trace._store._late:
            break
        time.sleep(0.01)
    with pytest.raises(TraceError, match="readonly"):
        trace.record("fc1", "weight", ONE, 1)
    connection.execute("PRAGMA query_only = OFF")
    trace.close()
    assert Trace.load(tmp_path / "run.fpemu").steps() == [0, 1]


def test_another_program_that_holds_the_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.05)
    path = tmp_path / "run.fpemu"
    trace = Trace.create(path)
    trace.record("fc1", "weight", ONE, 0)
    trace.steps()
    holder = sqlite3.connect(path)
    holder.execute("SELECT count(*) FROM record").fetchone()
    with pytest.warns(RuntimeWarning, match="another program holds it open: keep run.fpemu-wal"):
        trace.close()
    assert Trace.load(path).steps() == [0]
    holder.close()


def test_damage_inside_is_found_when_it_is_read(tmp_path):
    path = small(tmp_path / "run.fpemu")
    for column, value in [("tally", b"xx"), ("tally", "text"), ("moments", "{"), ("shape", "[[]]"),
                          ("recordings", "many"), ("step", "first"), ("tensor", 77)]:  # fmt: skip
        copy = tmp_path / "copy.fpemu"
        Trace.load(path).save(copy)
        connection = sqlite3.connect(copy)
        connection.execute(f"UPDATE record SET {column} = ? WHERE id = 3", (value,))
        connection.commit()
        connection.close()
        with pytest.raises(TraceError, match="restore it from a copy"):
            read_everything(copy)
        assert Trace.load(copy).names() == ["fc1", "fc2"]


def test_any_damage_gives_a_trace_error_or_a_trace(tmp_path):
    whole = bytearray(small(tmp_path / "run.fpemu").read_bytes())
    expected = read_everything(tmp_path / "run.fpemu")
    path, rng = tmp_path / "bad.fpemu", np.random.default_rng(5)

    def outcome(data: bytes) -> str:
        path.write_bytes(data)
        try:
            return "same" if read_everything(path) == expected else "other"
        except TraceError as error:
            return "several lines" if "\n" in str(error) else "refused"

    sizes = [*range(0, 600, 75), *rng.integers(600, len(whole), 16).tolist()]
    assert {outcome(whole[:size]) for size in sizes} == {"refused"}
    found = []
    for at in rng.integers(len(whole), size=100).tolist():
        damaged = whole.copy()
        damaged[at : at + 4] = rng.bytes(4)
        found.append(outcome(damaged))
    assert {"refused", "same"} <= set(found) <= {"refused", "same", "other"}  # free bytes are few


def test_what_a_killed_trace_left_behind_is_not_played_into_a_new_one(tmp_path):
    path = tmp_path / "run.fpemu"
    old = Trace.create(path)
    old.record("old", "weight", ONE, 0)
    old.steps()
    for end in ("-wal", "-shm"):
        shutil.copy(f"{path}{end}", tmp_path / f"kept{end}")
    old.close()
    path.unlink()
    for end in ("-wal", "-shm"):
        shutil.copy(tmp_path / f"kept{end}", f"{path}{end}")
    with Trace.create(path) as trace:
        assert trace.names() == []
        trace.record("new", "weight", ONE, 0)
    assert Trace.load(path).names() == ["new"]


def vanish(path: Path, how: str) -> None:
    """Take a trace's file away while it is written."""
    if how == "deleted":
        path.unlink()
    elif how == "folder deleted":
        shutil.rmtree(path.parent)
    else:
        small(path.parent / "other.fpemu")
        os.replace(path.parent / "other.fpemu", path)


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no file that is open")
@pytest.mark.parametrize("how", ["deleted", "folder deleted", "replaced"])
def test_a_trace_whose_file_is_gone_says_so_and_can_be_saved(tmp_path, how):
    path, saved = tmp_path / "runs" / "run.fpemu", tmp_path / "saved.fpemu"
    path.parent.mkdir()
    trace = Trace.create(path, metadata={"seed": 1})
    trace.record("fc1", "weight", ONE, 0)
    assert trace.steps() == [0]
    vanish(path, how)
    trace.record("fc1", "weight", ONE, 1)
    for act in (trace.close, trace.close, lambda: trace.merge(Trace()), lambda: trace.save(path)):
        with pytest.raises(TraceError, match=r"was deleted or replaced .*; save\(...\) it elsew"):
            act()
    trace.save(saved)
    trace.close()
    assert trace.path == str(saved)
    assert (trace.steps(), Trace.load(saved).steps()) == ([0, 1], [0, 1])
    assert trace.metadata["seed"] == 1
    with pytest.raises(TraceError, match="was loaded or closed"):
        trace.record("fc1", "weight", ONE, 2)


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no file that is open")
def test_a_deleted_traces_wal_is_not_played_into_a_saved_one(tmp_path):
    path, other = tmp_path / "run.fpemu", Trace()
    trace = Trace.create(path)
    trace.record("old", "weight", ONE, 0)
    trace.steps()
    path.unlink()
    other.record("new", "weight", ONE, 0)
    other.save(path)
    assert Trace.load(path).names() == ["new"]
    trace.save(tmp_path / "old.fpemu")
    assert Trace.load(path).names() == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["old.fpemu", "run.fpemu"]


def test_a_close_that_fails_at_the_end_can_be_tried_again(tmp_path, monkeypatch):
    trace = Trace.create(tmp_path / "run.fpemu")
    trace.record("fc1", "weight", ONE, 0)

    def full(connection: sqlite3.Connection) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(place, "_one_file", full)
        with pytest.raises(TraceError, match="disk is full"):
            trace.close()
    trace.save(tmp_path / "saved.fpemu")
    trace.record("fc1", "weight", ONE, 1)
    trace.close()
    assert Trace.load(tmp_path / "saved.fpemu").steps() == [0]
    assert Trace.load(tmp_path / "run.fpemu").steps() == [0, 1]


def test_a_close_that_fails_at_exit_is_one_line(tmp_path):
    code = (
        "import os, sys; from fpemu.analysis.trace import Trace; "
        "trace = Trace.create(sys.argv[1]); trace.scalar(0, 'loss', 0.5); "
        "trace._store._connection.execute('PRAGMA query_only = ON')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run.fpemu"], capture_output=True, text=True
    )
    [line] = run.stderr.splitlines()
    assert "RuntimeWarning: trace " in line
    assert "readonly" in line
    assert run.returncode == 0


ENDLESS = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT k, k FROM n"
PROGRAMS = {
    "metadata": f"DROP TABLE metadata; CREATE VIEW metadata (key, value) AS {ENDLESS}",
    "meta": f"DROP TABLE meta; CREATE VIEW meta (key, value) AS {ENDLESS}",
    "record": f"DROP TABLE record; CREATE VIEW record (id, step) AS {ENDLESS}",
    "another": f"CREATE VIEW another AS {ENDLESS}",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON scalar BEGIN DELETE FROM scalar; END",
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_a_file_that_holds_a_program_is_refused(tmp_path, case):
    path = small(tmp_path / "run.fpemu")
    trace = Trace.load(path)
    connection = sqlite3.connect(path)
    connection.executescript(PROGRAMS[case])
    connection.close()
    before = path.read_bytes()
    for act in (Trace.load, Trace().save, lambda path: trace.names()):
        with pytest.raises(TraceError, match=r"holds a (view|trigger) '.*plain tables alone"):
            act(path)
    assert path.read_bytes() == before
