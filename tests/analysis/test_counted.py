"""What a trace counts beside tallies: stored, joined, merged, and refused where it is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fpemu.analysis.trace import Trace
from fpemu.blocks import block_tally
from fpemu.errors import InputError, TraceError

ONE = block_tally(np.float32([1, 2, 0, 0, 8]), block=2)
TWO = block_tally(np.float32([3, 0.5]), block=2)


def test_counts_of_a_key_are_joined_before_and_after_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "run.fpemu"
    with Trace.create(path) as trace:
        trace.count("a", "weight", 0, ONE)
        trace.count("a", "weight", 0, TWO)
        assert [c.value for c in trace.counted("blocks")] == [ONE + TWO]  # reading commits
        trace.count("a", "weight", 0, ONE)
        trace.count("b", "update", 3, TWO)
    loaded = Trace.load(path)
    assert [(c.name, c.kind, c.step, c.value) for c in loaded.counted("blocks")] == [
        ("a", "weight", 0, ONE + TWO + ONE),
        ("b", "update", 3, TWO),
    ]
    assert [c.name for c in loaded.counted("blocks", kind="update")] == ["b"]
    assert list(loaded.counted("blocks", step=2)) == list(loaded.counted("updates")) == []


def test_merging_adds_them_up() -> None:
    a, b = Trace(), Trace()
    a.count("x", "weight", 0, ONE)
    b.count("x", "weight", 0, TWO)
    a.merge(b)
    assert [c.value for c in a.counted("blocks")] == [ONE + TWO]


def test_what_does_not_add_up_changes_nothing() -> None:
    trace = Trace()
    trace.count("x", "weight", 0, ONE)
    for committed in (False, True):
        if committed:
            list(trace.counted("blocks"))
        with pytest.raises(InputError, match="blocks of 2 and of 4"):
            trace.count("x", "weight", 0, block_tally(np.float32([1]), block=4))
    assert [c.value for c in trace.counted("blocks")] == [ONE]


def test_anything_else_is_refused() -> None:
    trace = Trace()
    with pytest.raises(InputError, match="int is nothing that a trace counts"):
        trace.count("x", "weight", 0, 3)
    with pytest.raises(InputError, match=r"unknown topic 'block'; did you mean 'blocks'"):
        trace.counted("block")


def test_a_trace_of_before_has_none(tmp_path: Path) -> None:
    path = tmp_path / "old.fpemu"
    trace = Trace()
    trace.record("x", "weight", np.float32([1]), 0)
    trace.save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE counted")
    connection.close()
    old = Trace.load(path)
    assert list(old.counted("blocks")) == []
    assert old.names() == ["x"]
    new = Trace()
    new.merge(old)
    assert new.total() == trace.total()


def test_damaged_counts_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "run.fpemu"
    trace = Trace()
    trace.count("x", "weight", 5, ONE)
    trace.save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE counted SET counts = '{}'")
    connection.close()
    with pytest.raises(TraceError, match=r"blocks of 'x' \(weight, step 5\) are damaged"):
        list(Trace.load(path).counted("blocks"))
