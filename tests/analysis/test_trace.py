"""Trace: what is recorded comes back, joined by key, compared with numpy's own counting."""

from __future__ import annotations

import io
import json
import math
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fpemu.analysis.report import build
from fpemu.analysis.report.text import render
from fpemu.analysis.trace import KINDS, Event, Record, Scalar, Trace
from fpemu.errors import InputError, TraceError
from fpemu.moments import Moments, moments
from fpemu.tallies import Tally, tally

HOSTILE = [
    "<script>alert('x')</script>",
    '"; DROP TABLE record; --',
    "../../etc/passwd",
    "層/重み 🜁",
    " padded ",
    "a" * 5000,
    "{{ 7 * 7 }}",
    "%s\\n",
]


def numbers(seed: int, size: int = 50) -> np.ndarray:
    """Float32 data over many binades, with zeros, infinities and NaN among it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size) * np.exp2(rng.integers(-40, 40, size))
    x[rng.random(size) < 0.2] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan])
    return x.astype(np.float32)


def recount(x: np.ndarray) -> tuple[int, int, int, int, Counter[int]]:
    """Count an array with numpy alone: total, nan, inf, zero, and values per binade."""
    x = np.concatenate([np.ravel(part).astype(np.float64) for part in x])
    binades = np.frexp(x[np.isfinite(x) & (x != 0)])[1] - 1
    counts = (int(np.sum(which)) for which in (np.isnan(x), np.isinf(x), x == 0))
    return x.size, *counts, Counter(binades.tolist())


def counted(t: Tally) -> tuple[int, int, int, int, Counter[int]]:
    """Read the same counts from a tally."""
    binades = {e - 149: int(n) for e, n in enumerate(t.exponents()) if n}
    return t.total, t.nan, t.inf, t.zero, Counter(binades)


@pytest.fixture(params=["memory", "file", "loaded"])
def filled(request: pytest.FixtureRequest, tmp_path: Path):
    """A trace of 3 names x 2 kinds x 4 steps in any order, and the arrays that are in it."""
    path = tmp_path / "run.fpemu"
    trace = Trace() if request.param == "memory" else Trace.create(path)
    arrays: dict[tuple[int, str, str], list[np.ndarray]] = {}
    for k, step in enumerate([0, 7, 2, 5, 2, 0]):
        for name in ("b", "a", "c"):
            for kind in ("update", "activation"):
                x = numbers(hash((k, name, kind)) % 1000, size=20 + k)
                trace.record(name, kind, x, step)
                arrays.setdefault((step, name, kind), []).append(x)
    if request.param == "loaded":
        trace.close()
        trace = Trace.load(path)
    yield trace, arrays
    trace.close()


def test_records_come_by_step_then_as_first_seen(filled):
    trace, arrays = filled
    order = [(n, k) for n in ("b", "a", "c") for k in ("update", "activation")]
    expected = [(step, *pair) for step in (0, 2, 5, 7) for pair in order]
    found = list(trace.records())
    assert [(r.step, r.name, r.kind) for r in found] == expected
    for record in found:
        parts = arrays[record.step, record.name, record.kind]
        assert counted(record.tally) == recount(parts)
        assert record.recordings == len(parts)
        assert record.shape == parts[0].shape
        finite = np.concatenate(parts).astype(np.float64)
        finite = finite[np.isfinite(finite)]
        assert record.moments.count == finite.size
        assert record.moments.amax == np.abs(finite).max()
        assert math.isclose(record.moments.mean, finite.mean(), rel_tol=1e-9, abs_tol=1e-6)


def test_what_is_in_it(filled):
    trace, _ = filled
    assert trace.names() == ["b", "a", "c"]
    assert trace.kinds() == ["activation", "update"]  # the order of KINDS
    assert trace.steps() == [0, 2, 5, 7]
    assert trace.tensors()[:3] == [("b", "update"), ("b", "activation"), ("a", "update")]


@pytest.mark.parametrize("name", [None, "a", "b"])
@pytest.mark.parametrize("kind", [None, "update", "weight"])
@pytest.mark.parametrize("step", [None, 2, 3])
def test_selections_and_totals(filled, name, kind, step):
    trace, arrays = filled
    chosen = {
        key: parts
        for key, parts in arrays.items()
        if step in (None, key[0]) and name in (None, key[1]) and kind in (None, key[2])
    }
    records = list(trace.records(name, kind, step))
    assert {(r.step, r.name, r.kind) for r in records} == set(chosen)
    assert len(records) == len(chosen)
    flat = [part for parts in chosen.values() for part in parts]
    assert counted(trace.total(name, kind, step)) == recount([*flat, np.empty(0)])
    whole = np.concatenate([*flat, np.empty(0)])
    assert trace.moments_total(name, kind, step).count == np.isfinite(whole).sum()


def test_the_same_counts_in_one_array_or_in_many():
    x = numbers(1, 3000).reshape(30, 100)
    trace = Trace()
    for row in x:
        trace.record("fc1", "activation", row, 3)
    [record] = trace.records()
    assert record.tally == tally(x)
    assert (record.recordings, record.shape) == (30, (100,))


def test_joining_across_commits():
    trace = Trace()
    parts = [numbers(k) for k in range(5)]
    for part in parts:
        trace.record("fc1", "weight", part, 0)
        assert trace.steps() == [0]  # reading commits what waits
    assert counted(trace.total()) == recount(parts)
    assert [r.recordings for r in trace.records()] == [5]


def test_more_records_than_one_query_takes():
    trace = Trace()
    t, m = tally(np.ones(3, np.float32)), moments(np.ones(3, np.float32))
    keys = [(step, f"n{k}") for step in range(10) for k in range(70)]
    for step, name in reversed(keys):
        trace.add(Record(name, "weight", step, (3,), t, m))
    assert [r.step for r in trace.records()] == [step for step, _ in keys]
    assert trace.total().total == 3 * len(keys)
    assert [r.step for r in trace.records("n3")] == list(range(10))


def test_recording_while_iterating():
    trace = Trace()
    for step in range(300):
        trace.record("fc1", "weight", np.ones(1, np.float32), step)
    seen = 0
    for record in trace.records():
        seen += 1
        trace.record("late", "weight", np.ones(1, np.float32), record.step)
    assert seen == 300
    assert len(list(trace.records())) == 600


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (4, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_shapes_and_dtypes(shape, dtype):
    trace = Trace()
    trace.record("x", "activation", np.ones(shape, dtype), 0)
    [record] = trace.records()
    assert record.shape == shape
    assert record.tally.total == math.prod(shape)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_kept_as_they_are(name, tmp_path):
    path = tmp_path / "run.fpemu"
    with Trace.create(path, metadata={name: name}) as trace:
        trace.record(name, "weight", np.ones(2, np.float32), 1)
        trace.event(1, name, name, name, fact=name)
        trace.scalar(1, name, 0.5)
    trace = Trace.load(path)
    assert trace.names() == [name]
    assert trace.total(name=name).total == 2
    assert list(trace.events()) == [Event(1, name, name, name, {"fact": name})]
    assert list(trace.scalars(name)) == [Scalar(1, name, 0.5)]
    assert trace.metadata[name] == name


@pytest.mark.parametrize("name", [None, 3, b"fc1", "", "   ", "a\nb", "a\0b", "\x1b[31m", "\ud800"])
def test_bad_names(name):
    trace = Trace()
    with pytest.raises(InputError, match=r"^name .*: "):
        trace.record(name, "weight", np.ones(1, np.float32), 0)
    with pytest.raises(InputError):
        trace.scalar(0, name, 1.0)
    assert not trace.names()
    assert not list(trace.scalars())


def test_bad_kinds_suggest():
    trace = Trace()
    with pytest.raises(InputError, match=r"unknown kind 'weights'; did you mean 'weight'\? kinds:"):
        trace.record("a", "weights", np.ones(1, np.float32), 0)
    with pytest.raises(InputError, match="unknown kind None"):
        trace.record("a", None, np.ones(1, np.float32), 0)
    with pytest.raises(InputError, match="unknown kind"):
        trace.total(kind="gradient")
    assert not trace.names()


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, True, np.bool(True), 2**63, np.float32(2)])
def test_bad_steps(step):
    trace = Trace()
    with pytest.raises(InputError, match=r"^step .*: must be an integer from 0 on"):
        trace.record("a", "weight", np.ones(1, np.float32), step)
    with pytest.raises(InputError):
        trace.scalar(step, "loss", 1.0)
    with pytest.raises(InputError):
        trace.event(step, "", "skip", "step skipped")
    assert not trace.steps()


@pytest.mark.parametrize("step", [0, np.int32(7), np.uint64(7), 2**63 - 1])
def test_good_steps(step):
    trace = Trace()
    trace.record("a", "weight", np.ones(1, np.float32), step)
    assert trace.steps() == [int(step)]
    assert type(trace.steps()[0]) is int


@pytest.mark.parametrize(
    "array", [np.ones(2, int), np.ones(2, complex), np.array([None]), "text", None, [[1], [2, 3]]]
)
def test_bad_arrays(array):
    trace = Trace()
    with pytest.raises(InputError):
        trace.record("a", "weight", array, 0)
    assert not trace.names()


def test_unknown_names_are_not_silently_nothing():
    trace = Trace()
    trace.record("encoder.fc1", "weight", np.ones(1, np.float32), 0)
    with pytest.raises(InputError, match=r"did you mean 'encoder.fc1'\? recorded: encoder.fc1"):
        trace.total(name="encoder.fc")
    with pytest.raises(InputError, match="recorded: nothing"):
        Trace().records(name="x")


def test_an_empty_trace():
    trace = Trace()
    assert (trace.names(), trace.kinds(), trace.steps()) == ([], [], [])
    assert list(trace.records()) == list(trace.events()) == list(trace.scalars()) == []
    assert trace.total().total == trace.moments_total().count == 0


def test_events_and_scalars_in_order():
    trace = Trace()
    trace.event(5, "fc1", "activation", "overflow found", amax=np.float32(np.inf), at=(1, 2))
    trace.event(2, "", "loss_scale", "loss scale 1024")
    trace.event(5, "", "skip", "step skipped")
    assert [(e.step, e.message) for e in trace.events()] == [
        (2, "loss scale 1024"),
        (5, "overflow found"),
        (5, "step skipped"),
    ]
    assert list(trace.events())[1].facts == {"amax": math.inf, "at": [1, 2]}
    for step, value in [(3, 1), (1, np.float32(0.5)), (2, -math.inf), (3, 0.25)]:
        trace.scalar(step, "loss", value)
        trace.scalar(step, "lr", 0.1)
    losses = [(s.step, s.value) for s in trace.scalars("loss")]
    assert losses == [(1, 0.5), (2, -math.inf), (3, 0.25)]
    assert len(list(trace.scalars())) == 6
    with pytest.raises(InputError, match="facts of event 'x'"):
        trace.event(0, "", "skip", "x", what=object())
    for value in ("1", None, 1j, np.ones(2), np.ones(1), 10**400):
        with pytest.raises(InputError, match="scalar 'loss'"):
            trace.scalar(9, "loss", value)
    assert len(list(trace.scalars())) == 6


def test_metadata_set_by_threads_is_the_same_in_the_file(tmp_path):
    path = tmp_path / "run.fpemu"
    with Trace.create(path) as trace:

        def work(k):
            for value in range(200):
                trace.metadata["shared"] = [k, value]
                trace.metadata[f"own{k}"] = value

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        kept = dict(trace.metadata)
    assert dict(Trace.load(path).metadata) == kept
    assert [kept[f"own{k}"] for k in range(8)] == [199] * 8


def test_metadata():
    trace = Trace(metadata={"seed": 3, "date": "today"})
    assert trace.metadata["seed"] == 3
    assert trace.metadata["date"] == "today"  # what is given goes before what is known
    assert set(trace.metadata["versions"]) == {"fpemu", "numpy", "python"}
    assert trace.metadata["versions"]["numpy"] == np.__version__
    assert isinstance(trace.metadata["command"], str)
    trace.metadata["runs"] = [{"loss": np.float64(0.5)}, (1, 2)]
    assert trace.metadata["runs"] == [{"loss": 0.5}, [1, 2]]
    del trace.metadata["seed"]
    assert "seed" not in trace.metadata
    assert trace.metadata.get("nothing") is None
    with pytest.raises(KeyError):
        del trace.metadata["nothing"]
    for value in (object(), {1, 2}, np.ones(2), 1j, "\ud800"):
        with pytest.raises(InputError, match=r"^metadata 'x'"):
            trace.metadata["x"] = value
    for bad in ({3: 1}, {"": 1}, {"x": object()}, ["seed"]):
        with pytest.raises(InputError, match="metadata"):
            Trace(metadata=bad)


def test_merging_ranks_is_recording_everything_at_once():
    ranks, whole = [Trace(metadata={"rank": k}) for k in range(3)], Trace()
    for k, rank in enumerate(ranks):
        for step in range(4):
            for name in ("a", "b", f"only{k}"):
                x = numbers(step * 10 + k)
                rank.record(name, "weight_gradient", x, step)
                whole.record(name, "weight_gradient", x, step)
        rank.event(k, "", "skip", "step skipped")
        rank.scalar(0, "loss", float(k))
        rank.scalar(k, f"own{k}", 1.0)
    merged = Trace(metadata={"seed": 1})
    for rank in ranks:
        merged.merge(rank)
    assert merged.steps() == whole.steps()
    assert merged.names() == ["a", "b", "only0", "only1", "only2"]
    for record in whole.records():
        [other] = merged.records(record.name, record.kind, record.step)
        assert other.tally == record.tally
        assert other.recordings == record.recordings
        assert other.moments.count == record.moments.count
        assert math.isclose(other.moments.mean, record.moments.mean, rel_tol=1e-9, abs_tol=1e-6)
    assert len(list(merged.events())) == 3
    assert [s.value for s in merged.scalars("loss")] == [0.0]  # the first that has it
    assert len(list(merged.scalars())) == 4
    assert (merged.metadata["seed"], merged.metadata["rank"]) == (1, 0)


def test_a_trace_is_not_merged_with_itself(tmp_path):
    trace = Trace()
    trace.record("a", "weight", np.ones(1, np.float32), 0)
    trace.save(tmp_path / "copy.fpemu")
    for same in (trace, Trace.load(tmp_path / "copy.fpemu")):
        with pytest.raises(TraceError, match="counted twice"):
            trace.merge(same)
    assert trace.total().total == 1


@pytest.mark.parametrize("on_file", [False, True])
def test_a_merge_that_fails_takes_nothing(tmp_path, on_file):
    path = tmp_path / "other.fpemu"
    with Trace.create(path) as other:
        for step in range(600):
            other.record("a", "weight", np.ones(1, np.float32), step)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET tally = x'00' WHERE step = 550")
    connection.close()
    trace = Trace.create(tmp_path / "run.fpemu") if on_file else Trace()
    for step in (0, 550):
        trace.record("a", "weight", np.zeros(1, np.float32), step)
    with pytest.raises(TraceError, match=r"tally of 'a' \(weight, step 550\) is damaged"):
        trace.merge(Trace.load(path))
    assert trace.steps() == [0, 550]
    assert trace.total() == tally(np.zeros(2, np.float32))
    trace.record("b", "weight", np.ones(1, np.float32), 1)  # and goes on
    assert trace.steps() == [0, 1, 550]
    trace.close()


def test_records_are_values():
    trace = Trace()
    trace.record("a", "weight", np.float32([1, 2]), 0)
    [one], [two] = trace.records(), trace.records()
    assert one == two
    assert one == Record("a", "weight", 0, (2,), tally(np.float32([1, 2])), one.moments)
    assert (one + two).recordings == 2
    with pytest.raises(InputError, match="keys must agree"):
        one + Record("b", "weight", 0, (2,), one.tally, one.moments)
    with pytest.raises(AttributeError):
        one.step = 3
    with pytest.raises(AttributeError, match="has no attribute 'tallly'"):
        _ = one.tallly
    with pytest.raises(InputError, match="unknown kind 'nothing'"):
        trace.add(Record("a", "nothing", 0, (2,), one.tally, one.moments))
    with pytest.raises(InputError, match="float is no Record"):
        trace.add(0.5)
    trace.add(Record("a", "weight", np.int64(3), (np.int64(2),), one.tally, one.moments))
    assert [(r.step, r.shape) for r in trace.records(step=3)] == [(3, (2,))]
    with pytest.raises(InputError, match="list is no Trace"):
        trace.merge([one])


def test_threads_record_together(tmp_path):
    x = np.ones(10, np.float32)
    with Trace.create(tmp_path / "run.fpemu") as trace:

        def work(k: int) -> None:
            for step in range(60):
                trace.record("shared", "weight", x, step)
                trace.record(f"own{k}", "activation", x, step)
                trace.scalar(step, f"loss{k}", k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = Trace.load(trace.path)
    assert {r.recordings for r in trace.records("shared")} == {8}
    assert trace.total(name="shared").total == 8 * 60 * 10
    assert len(list(trace.records())) == 60 + 8 * 60
    assert len(list(trace.scalars())) == 8 * 60


def test_the_file_read_by_sqlite_alone(tmp_path):
    path, arrays = tmp_path / "run.fpemu", [numbers(k, 4096) for k in range(6)]
    with Trace.create(path, metadata={"seed": 9}) as trace:
        for k, x in enumerate(arrays):
            trace.record("fc1", KINDS[k], x.reshape(64, 64), k)
        trace.scalar(0, "loss", math.nan)
    connection = sqlite3.connect(path)
    query = (
        "SELECT name, kind, step, recordings, shape, moments, tally "
        "FROM record JOIN tensor ON tensor.id = record.tensor ORDER BY step"
    )
    for k, (name, kind, step, recordings, shape, moment, packed) in enumerate(
        connection.execute(query)
    ):
        assert (name, kind, step, recordings, shape) == ("fc1", KINDS[k], k, 1, "[64, 64]")
        assert counted(Tally.from_bytes(packed)) == recount([arrays[k]])
        assert json.loads(moment) == moments(arrays[k]).to_json()
    [seed] = connection.execute("SELECT value FROM metadata WHERE key = 'seed'").fetchone()
    assert seed == "9"
    assert connection.execute("SELECT value FROM scalar").fetchall() == [(None,)]
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_typical_tallies_are_small(tmp_path):
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((512, 512), np.float32)
    with Trace.create(tmp_path / "run.fpemu") as trace:
        trace.record("activation", "activation", np.maximum(normal, 0), 0)
        trace.record("weight", "weight", normal * np.float32(0.02), 0)
        trace.record("gradient", "weight_gradient", normal**3 * np.float32(1e-6), 0)
    connection = sqlite3.connect(tmp_path / "run.fpemu")
    sizes = dict(connection.execute("SELECT name, length(tally) FROM record JOIN tensor ON "
                                    "tensor.id = record.tensor"))  # fmt: skip
    connection.close()
    assert len(sizes) == 3
    assert max(sizes.values()) <= 4096, sizes


BAD_PARTS = {
    "shape that is none": ({"shape": "zz"}, r"record of 'a': shape 'zz' must be a tuple of"),
    "negative size": ({"shape": (3, -1)}, "shape"),
    "half size": ({"shape": (1.5,)}, "shape"),
    "no recordings": ({"recordings": 0}, "recordings 0 must be an integer from 1 on"),
    "endless recordings": ({"recordings": 10**5000}, "recordings a int of too many digits"),
    "no tally": ({"tally": None}, "tally None is no Tally"),
    "no moments": ({"moments": None}, "moments None are no Moments"),
    "bad moments": ({"moments": Moments(1, 0.0, -1.0)}, "moments: m2=-1.0 must be"),
    "text in moments": ({"moments": Moments(1, "x")}, "moments: mean='x' must be"),
}


@pytest.mark.parametrize("case", BAD_PARTS)
def test_bad_records_are_refused_before_they_are_taken(tmp_path, case):
    change, message = BAD_PARTS[case]
    with Trace.create(tmp_path / "run.fpemu") as trace:
        trace.record("a", "weight", np.ones(1, np.float32), 0)
        [good] = trace.records()
        for step in (0, 1):  # a key that is known, and a new one
            with pytest.raises(InputError, match=message) as caught:
                trace.add(replace(good, step=step, **change))
            assert "\n" not in str(caught.value)
        trace.add(good)
    [found] = Trace.load(tmp_path / "run.fpemu").records()
    assert (found.recordings, found.tally.total) == (2, 2)


def test_a_step_beyond_the_limit_names_it():
    for step in (2**63, 10**5000):
        with pytest.raises(InputError, match=r"at most 2\^63 - 1"):
            Trace().scalar(step, "loss", 1.0)


@pytest.mark.parametrize("name", ["self", "step", "name", "kind", "message"])
def test_facts_named_like_the_events_own_fields_are_refused(name):
    trace = Trace()
    with pytest.raises(InputError, match=f"^fact {name}=3: an event has its own {name}; give"):
        trace.event(0, "", "skip", "step skipped", **{name: 3})
    trace.event(step=1, name="", kind="skip", message="step skipped", other=3)
    assert [event.facts for event in trace.events()] == [{"other": 3}]


@pytest.mark.parametrize("name", ["a\u2028b", "a\u2029b", "a\x85b", "a\x1bb", "a\ud800b"])
def test_names_that_are_not_printable_are_refused(name):
    trace = Trace()
    with pytest.raises(InputError, match="is one line of printable text"):
        trace.record(name, "weight", np.ones(1, np.float32), 0)
    with pytest.raises(InputError, match="a metadata key is one line of printable text"):
        trace.metadata[name] = 1
    assert not trace.names()


def test_values_too_large_or_too_deep_for_json_are_one_line():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (10**5000, [10**5000], deep):
        with pytest.raises(InputError, match=r"^metadata 'x' = ") as caught:
            Trace().metadata["x"] = value
        assert len(str(caught.value)) < 300
    with pytest.raises(InputError, match="scalar 'loss'"):
        Trace().scalar(0, "loss", 10**5000)


def test_moments_damaged_in_the_file_are_a_trace_error(tmp_path):
    path = tmp_path / "run.fpemu"
    with Trace.create(path) as trace:
        trace.record("a", "weight", np.ones(1, np.float32), 0)
    good = moments(np.ones(1, np.float32)).to_json()
    for bad in ({"m2": -1}, {"count": 10**400}, {"mean": 10**400}, {"amax": -3}):
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE record SET moments = ?", (json.dumps(good | bad),))
        connection.close()
        with pytest.raises(TraceError, match=r"moments of 'a' \(weight, step 0\) is damaged"):
            build(Trace.load(path))


def test_a_report_of_hostile_metadata():
    deep = json.loads("[" * 400 + "]" * 400)
    trace = Trace(metadata={"[/]": "[/]", "[red]k": "[bold]v", "deep": deep})
    trace.record("a", "weight", np.ones(1, np.float32), 0)
    out = io.StringIO()
    render(build(trace), Console(file=out, width=120))
    assert "[/] " in out.getvalue()
    assert "[red]k" in out.getvalue()
    assert "…" in out.getvalue()
    for scale in (10**400, math.inf, -1):
        trace.metadata["recorded_loss_scale"] = scale
        with pytest.raises(InputError, match=r"recorded_loss_scale=.* must be the positive"):
            build(trace)
