"""bench: structure, figures from paired runs, refusals. Never a limit on time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fpemu
from fpemu.analysis.bench import Setup, bench, run, startup
from fpemu.analysis.bench.cases import GENERAL, cases
from fpemu.analysis.bench.machine import machine_facts
from fpemu.analysis.bench.pairs import LEAST, Load, batch, paired
from fpemu.analysis.bench.peers import installed
from fpemu.analysis.bench.sample import sample
from fpemu.analysis.bench.setup import FORMATS
from fpemu.analysis.bench.sizes import parse_size, size_text
from fpemu.errors import FpemuError, InputError

SMALL = Setup(to=("bfloat16",), size=1024, repeats=3, peers=False)


class Clock:
    """A clock that moves only when a load says so."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[str] = []

    def __call__(self) -> int:
        return self.now

    def load(self, name: str, elements: int, times: Iterator[int] | int) -> Load:
        def call() -> None:
            self.calls.append(name)
            self.now += times if isinstance(times, int) else next(times)

        return Load(call, elements)


# --- pairs -----------------------------------------------------------------------------------


def test_ratios_are_taken_inside_pairs() -> None:
    clock = Clock()
    # the machine is ten times slower in every second pair (the first call of each is not timed)
    slow = [1, 10, 1, 10, 1]
    base = clock.load("A", 100, iter([7, *(100 * s for s in slow)]))
    work = clock.load("B", 50, iter([9, *(100 * s for s in slow)]))
    timing = paired(work, base, repeats=5, clock=clock)
    assert clock.calls == ["A", "B"] * 6
    assert (timing.low, timing.ratio, timing.high) == (2.0, 2.0, 2.0)
    assert (timing.ns, timing.baseline_ns, timing.pairs) == (2.0, 1.0, 5)


def test_one_interrupted_pair_is_forgotten() -> None:
    clock = Clock()
    base = clock.load("A", 1, 10)
    work = clock.load("B", 1, iter([30, 30, 30, 90_000, 30, 30]))
    timing = paired(work, base, repeats=5, clock=clock)
    assert (timing.ratio, timing.ns) == (3.0, 30.0)


def test_the_budget_ends_slow_cases_after_three_pairs() -> None:
    clock = Clock()
    base, work = clock.load("A", 1, 10), clock.load("B", 1, 2_000_000_000)
    assert paired(work, base, repeats=50, budget_s=1.0, clock=clock).pairs == LEAST == 3
    assert paired(work, base, repeats=2, budget_s=1.0, clock=clock).pairs == 2


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    clock = Clock()
    still = clock.load("A", 1, 0)
    assert paired(still, still, repeats=1, clock=clock).ratio == 1.0


def test_batches_repeat_short_calls() -> None:
    clock = Clock()
    many = batch(clock.load("B", 3, 100), least_ns=1000, clock=clock)
    assert many.elements == 3 * 16
    clock.calls.clear()
    many.call()
    assert len(clock.calls) == 16


# --- sizes and data --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("2**24", 1 << 24), ("2^20", 1 << 20), ("16M", 1 << 24), ("64k", 1 << 16),
     ("16_777_216", 1 << 24), (2048, 2048), (" 1000000 ", 10**6)],
)  # fmt: skip
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "x", "-5", "0", "1023", "2**28", "1e6", "16G", "2**-3", "3**9", "2**24 + 1", "1.5M"],
)
def test_bad_sizes_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_size(text)
    message = str(refused.value)
    assert repr(text) in message
    assert "write it as 2**24" in message
    assert "\n" not in message


def test_size_text() -> None:
    assert [size_text(n) for n in (1, 1024, 1 << 24, 1000)] == ["1", "2**10", "2**24", "1,000"]


def test_half_of_the_sample_is_wide() -> None:
    x = sample(1 << 16, seed=3)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    assert np.array_equal(x, sample(1 << 16, seed=3))
    assert not np.array_equal(x, sample(1 << 16, seed=4))
    outcome = fpemu.tally(x).outcome("e4m3fn")
    # 2**N(0,16) leaves E4M3 (2**-10 to 448) about two times in three
    for lost in (outcome.underflow, outcome.overflow):
        assert 0.08 < lost / x.size < 0.25
    halves = [np.mean(np.abs(half) > 8) for half in (x[: x.size // 2], x[x.size // 2 :])]
    assert abs(halves[0] - halves[1]) < 0.01, "not shuffled"


# --- what is measured ------------------------------------------------------------------------


def test_every_table_has_every_format_and_library() -> None:
    found = cases(Setup(modes=True, float64=True))
    libraries = {peer.name for peer in installed()} | {"fpemu"}
    for verb in ("round", "encode", "decode", "float64", "call"):
        mine = [case for case in found if case.verb == verb]
        extra = {"round": {GENERAL}, "call": {"np.copyto"}}.get(verb, set())
        assert {case.who for case in mine} == libraries | extra
        assert {case.to for case in mine} == set(FORMATS)
    modes = {case.who for case in found if case.verb == "modes"}
    assert modes == {"toward_zero", "up", "nearest_away", "to_odd", "stochastic"}
    assert [case.to for case in found if case.verb in ("tally", "moments")] == [None] * 3
    assert not any(case.verb in ("modes", "float64") for case in cases(Setup()))
    keys = [(c.verb, c.who, c.to, c.size if c.verb == "call" else 0) for c in found]
    assert len(set(keys)) == len(keys)


def test_scaled_formats_are_timed_beside_torchao() -> None:
    import importlib.util

    setup = replace(SMALL, scaled=True, peers=True)
    mine = [case for case in cases(setup) if case.verb in ("scaled round", "quantize")]
    libraries = {"fpemu"} | ({"torchao"} if importlib.util.find_spec("torchao") else set())
    assert {case.who for case in mine} == libraries
    assert len(mine) == 2 * 3 * len(libraries)
    assert not any(case.verb == "quantize" for case in cases(SMALL))
    assert "give a multiple" in invoke("--scaled", "--size", "3000").output


@pytest.mark.filterwarnings("ignore")  # of torchao's extensions for other machines
def test_torchao_does_the_same_work() -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from fpemu.analysis.bench.scaled import RECIPES, VERBS, scalers
    from fpemu.scaling import find_recipe

    x = np.float32(np.random.default_rng(0).standard_normal(1 << 14))
    for name in RECIPES:
        left = [np.zeros_like(x), np.zeros_like(x)]
        for out, scaler in zip(left, scalers(True), strict=True):
            calls = scaler.prepare(name, x, out, 1)
            assert set(calls) == set(VERBS)
            found = calls["scaled round"]()
            calls["quantize"]()
            out[:] = np.asarray(found).reshape(-1)
        want = find_recipe(name).round(x.reshape(-1, 1024)).reshape(-1)
        assert (left[0] == want).all()
        assert (left[1] == want).all()


def test_run_fills_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    from fpemu.analysis.bench import cases as module

    monkeypatch.setattr(module, "MODES", ("stochastic",))  # each mode compiles for a second
    seen: list[tuple[int, int, str]] = []
    setup = replace(SMALL, modes=True, float64=True)
    result = run(setup, progress=lambda *what: seen.append(what))
    assert len(seen) == len(result.rows) == len(cases(setup))
    for row in result.rows:
        assert row.timing is not None
        assert 1 <= row.timing.pairs <= 3
        assert row.timing.low <= row.timing.ratio <= row.timing.high
        assert row.timing.ns > 0
        assert row.timing.baseline_ns > 0


def test_run_takes_the_clock_it_is_given() -> None:
    clock = Clock()
    result = run(SMALL, clock=clock)
    assert {row.timing.ratio for row in result.rows if row.timing and row.verb != "call"} == {1.0}


@pytest.mark.parametrize("peer", installed(), ids=lambda peer: str(peer.name))
def test_peers_do_the_same_work(peer: Any) -> None:
    """A figure beside ours means little if the library computes something else."""
    x = sample(4096)
    out = np.zeros_like(x)
    form = fpemu.finfo("float16" if peer.name == "numpy" else "bfloat16")
    with np.errstate(all="ignore"):
        calls = peer.prepare(form, x, out, 1)
        assert calls is not None
        assert peer.prepare(fpemu.finfo("binary8p4se"), x, out, 1) is None
        for call in (calls.round, calls.decode):
            out[:] = -1
            returned = call()
            got = out if returned is None else returned
            np.testing.assert_array_equal(got, fpemu.round(x, form))
        calls.encode()


def test_a_library_without_the_format_has_no_figure() -> None:
    from fpemu.analysis.bench.setup import Arrays

    lacking = [c for c in cases(Setup(to=("tf32",), size=1024)) if c.who == "numpy"]
    assert lacking
    assert all(case.prepare(Arrays(SMALL)) is None for case in lacking)


def test_machine_facts_name_the_versions() -> None:
    facts = machine_facts()
    assert facts["cores"] >= 1
    assert {"fpemu", "numpy", "numba"} <= set(facts["versions"])
    assert json.loads(json.dumps(facts)) == facts


# --- startup ---------------------------------------------------------------------------------


def test_startup_takes_medians_over_fresh_processes() -> None:
    imports = iter(["0.1 0.01", "0.2 0.03", "9.0 0.02"])

    def process(text: str) -> tuple[float, str]:
        if "import numpy" in text:
            return 1.0, next(imports)
        return (0.02, "") if text == "pass" else (0.25, "Usage: ...")

    found = {row.what: row for row in startup(3, run=process)}
    assert found["import numpy"].seconds == 0.2
    assert found["import fpemu, beyond numpy"].seconds == 0.02
    assert found["python -c pass"].seconds == 0.02
    assert found["fpemu --help"].seconds == 0.25
    assert {row.runs for row in found.values()} == {3}


def test_a_failing_process_is_one_line() -> None:
    from fpemu.analysis.bench import imports

    assert imports._in_process("print(7)")[1] == "7\n"
    assert 0 < imports._in_process("sum(range(10**6))", cpu_time=True)[0] < 60
    with pytest.raises(InputError, match=r"exit code 1: ZeroDivisionError.*"):
        imports._in_process("1 / 0")


# --- the command -----------------------------------------------------------------------------

QUICK = ["--size", "1024", "--repeats", "1", "--to", "bf16"]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(bench, list(words))


def test_json_has_the_documented_shape() -> None:
    done = invoke(*QUICK, "--json", "--no-peers", "--seed", "5")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["schema"] == "fpemu-bench/1"
    assert set(told) == {"schema", "machine", "setup", "rows"}
    assert told["setup"]["to"] == ["bfloat16"]
    assert (told["setup"]["size"], told["setup"]["seed"]) == (1024, 5)
    assert "2**N(0,16)" in told["setup"]["data"]
    for row in told["rows"]:
        assert set(row) == {"verb", "who", "to", "size", "timing"}
        assert set(row["timing"]) == {"ns", "ratio", "low", "high", "pairs", "baseline_ns"}
    assert {"round", "encode", "decode", "tally", "moments", "call"} == {
        row["verb"] for row in told["rows"]
    }


def test_text_shows_tables_machine_and_data() -> None:
    done = invoke("--size", "1024", "--repeats", "1", "--to", "bf16", "--to", "tf32", "--cpu-time")
    assert done.exit_code == 0, done.output
    for words in ("round, float32", "encode", "decode", "tally", "moments", "one call, 1 element:",
                  "one call, 1,024 elements:", "numpy", "ml_dtypes", "bfloat16", "tf32",
                  "half N(0,1)", "cores", "CPU time", "noise:"):  # fmt: skip
        assert words in done.stdout
    line = next(line for line in done.stdout.splitlines() if "ml_dtypes  " in line)
    assert line.split()[-1] == "-", "ml_dtypes has no tf32"
    assert not done.stderr, "no progress bar unless on a terminal"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--size", "12"], "12"),
        (["--size", "2**40"], "2**40"),
        (["--to", "e4m3"], "e4m3"),
        (["--to", "nosuch"], "nosuch"),
        (["--repeats", "0"], "--repeats 0"),
        (["--threads", "0"], "threads=0"),
        (["--seed", "-1"], "--seed -1"),
        (["--cpu-time", "--threads", "2"], "--cpu-time"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(words: list[str], named: str) -> None:
    done = invoke(*words)
    assert done.exit_code == 2
    assert named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_import_prints_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    from fpemu.analysis.bench import imports

    def process(text: str, cpu_time: bool) -> tuple[float, str]:
        assert ("process_time" in text) <= cpu_time
        return 0.2, "0.1 0.03" if "import numpy" in text else ""

    monkeypatch.setattr(imports, "_in_process", process)
    done = invoke("--import", "--repeats", "2")
    assert done.exit_code == 0, done.output
    assert "import fpemu, beyond numpy" in done.stdout
    told = json.loads(invoke("--import", "--repeats", "2", "--cpu-time", "--json").stdout)
    assert [row["runs"] for row in told["startup"]] == [2] * 4


def test_errors_inside_are_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from fpemu.analysis.bench import imports

    def fails(text: str, cpu_time: bool) -> tuple[float, str]:
        raise FpemuError("a fresh Python failed")

    monkeypatch.setattr(imports, "_in_process", fails)
    done = invoke("--import")
    assert (done.exit_code, done.stderr) == (2, "Error: a fresh Python failed\n")


