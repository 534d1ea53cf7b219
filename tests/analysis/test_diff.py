"""Two runs compared: what changed, from where on it counts, and what a check fails on."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from full_run import full_run
from rich.console import Console

from fpemu.analysis.cli import main
from fpemu.analysis.diff import Thresholds, diff, render
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError


def trace_of(tensors: dict[str, list[float]], **facts: object) -> Trace:
    """A trace of one step; names are layer:kind."""
    trace = Trace(metadata=facts)
    for name, values in tensors.items():
        layer, _, kind = name.partition(":")
        trace.record(layer, kind or "activation", np.float32(values), 0)
    return trace


def losing(count: int, of: int = 1000) -> list[float]:
    """Values of which float16 makes so many zero."""
    return [1e-9] * count + [1.0] * (of - count)


@pytest.mark.parametrize(
    ("before", "after", "change", "why"),
    [
        ([1.0], [1.0], "same", ""),
        ([1.0], [7e4, 1.0], "worse", "overflows, and did not"),
        ([7e4, 1.0], [1.0], "better", "does not overflow any more"),
        ([1.0], [np.nan, 1.0], "worse", "now holds NaN or infinite values"),
        ([np.inf, 1.0], [1.0, 1.0], "better", "holds no NaN or infinite values any more"),
        (losing(1), losing(2), "worse", "was safe"),
        (losing(2), losing(1), "better", "is safe now"),
        (losing(100), losing(101), "same", ""),
        (losing(100), losing(109), "same", ""),  # not a tenth more
        (losing(100), losing(200), "worse", "loses 2 times as much"),
        (losing(200), losing(100), "better", "lost 2 times as much before"),
    ],
)
def test_what_becomes_of_a_tensor(
    before: list[float], after: list[float], change: str, why: str
) -> None:
    found = diff(trace_of({"fc": before}), trace_of({"fc": after}), to="float16")
    [row] = found.rows
    assert (row.change, row.why, found.change) == (change, why, change)
    assert (row.amax_before, row.amax_after) == tuple(
        max((abs(x) for x in values if np.isfinite(x)), default=None)
        for values in (np.float32(before).tolist(), np.float32(after).tolist())
    )


def test_small_losses_within_the_tolerance_do_not_count() -> None:
    a, b = trace_of({"fc": losing(1, 10_000)}), trace_of({"fc": losing(9, 10_000)})
    assert diff(a, b, to="float16").change == "same"
    strict = diff(a, b, to="float16", thresholds=Thresholds(points=0.01))
    assert (strict.change, strict.rows[0].why) == ("worse", "loses 9 times as much")
    with pytest.raises(InputError, match=r"factor=0\.5: must be a number from 1 on"):
        Thresholds(factor=0.5)


def test_tensors_that_only_one_run_has() -> None:
    found = diff(trace_of({"a": [1.0], "b": [1.0]}), trace_of({"b": [1.0], "c": [2.0]}), to="fp16")
    rows = {row.name: row for row in found.rows}
    changes = {name: row.change for name, row in rows.items()}
    assert changes == {"a": "gone", "b": "same", "c": "new"}
    assert (rows["a"].amax_before, rows["a"].amax_after, rows["c"].lost_percent_before) == (
        1.0, None, None
    )  # fmt: skip
    assert rows["b"].identical
    assert found.change == "same"
    assert [found.fails(on) for on in ("worse", "verdict", "different")] == [False, False, True]


def test_what_is_not_judged_makes_no_run_worse() -> None:
    a, b = (trace_of({"fc": [1.0], "fc:update": values}) for values in ([1.0], losing(500)))
    found = diff(a, b, to="float16")
    assert [row.change for row in found.rows] == ["worse", "same"]
    assert (found.change, found.counted("worse")) == ("same", 0)
    assert diff(a, b, to="float16", kinds=["update"]).change == "worse"


def test_the_verdicts_are_compared_and_each_run_has_its_own_format() -> None:
    a = trace_of({"fc": [7e4, 1.0]}, to="bfloat16")
    b = trace_of({"fc": [7e4, 1.0]}, to="float16")
    found = diff(a, b)
    assert (found.before.to, found.after.to) == ("bfloat16", "float16")
    assert (found.verdict_change, found.change) == ("worse", "worse")
    assert found.fails("verdict")
    assert found.rows[0].identical  # as values; what the formats do to them is not
    assert diff(b, a).verdict_change == "better"
    assert diff(a, b, to="bf16").change == "same"
    nothing = diff(trace_of({}), b)
    assert nothing.verdict_change == "same"
    with pytest.raises(InputError, match="fail_on 'all': choose from"):
        found.fails("all")
    with pytest.raises(InputError, match="str is no Trace"):
        diff("a.fpemu", b)


def test_gradients_are_compared_without_their_loss_scale() -> None:
    g = np.float32([2.0**-20, 2.0**-12])
    runs = []
    for scale in (2.0**10, 2.0**16):
        trace = Trace()
        trace.scalar(0, "loss_scale", scale)
        trace.record("fc", "weight_gradient", g * np.float32(scale), 0)
        runs.append(trace)
    [row] = diff(*runs, to="float16").rows
    assert (row.change, row.amax_before, row.amax_after) == ("same", 2.0**-12, 2.0**-12)


def test_what_got_worse_comes_first_and_it_prints() -> None:
    runs = [full_run(seed, gradient=size).trace for seed, size in ((1, 2.0**-18), (2, 2.0**-30))]
    found = diff(*runs)
    assert found.change == "worse"
    order = [row.change for row in found.rows]
    assert order == sorted(order, key=("worse", "better", "new", "gone", "same").index)
    judged = [row for row in found.rows if row.judged and row.change == "worse"]
    assert [row.moved for row in judged] == sorted((row.moved for row in judged), reverse=True)
    for width in (60, 80, 120, 200):
        console = Console(file=io.StringIO(), width=width, force_terminal=False)
        render(found, console, limit=5)
        text = console.file.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert "WORSE" in text
    assert {row.name for row in found.scalars} == {"loss", "loss_scale"}
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (facts["change"], facts["schema"]) == ("worse", 1)
    assert len(facts["tensors"]) == len(found.rows)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace_of({"fc": [1.0, 2.0]}).save("a.fpemu")
    trace_of({"fc": [1.0, 7e4]}).save("b.fpemu")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a.fpemu", "b.fpemu"], 0, "WORSE"),
        (["a.fpemu", "b.fpemu", "--fail-on", "worse"], 1, "--fail-on worse"),
        (["a.fpemu", "b.fpemu", "--to", "bf16", "--fail-on", "worse"], 0, "SAME"),
        (["b.fpemu", "a.fpemu", "--fail-on", "worse", "--fail-on", "verdict"], 0, "BETTER"),
        (["b.fpemu", "a.fpemu", "--fail-on", "different"], 1, "--fail-on different"),
        (["a.fpemu", "a.fpemu", "--fail-on", "different"], 0, "SAME"),
        (["a.fpemu", "b.fpemu", "--json"], 0, '"change": "worse"'),
        (["a.fpemu", "c.fpemu"], 2, "c.fpemu"),
        (["a.fpemu", "b.fpemu", "--fail-on", "x"], 2, "is not one of"),
        (["a.fpemu", "b.fpemu", "--out", "r.html"], 2, "use .json or .txt"),
        (["a.fpemu"], 2, "Missing argument 'AFTER'"),
    ],
)
def test_the_command(saved: None, arguments: list[str], code: int, said: str) -> None:
    result = CliRunner().invoke(main, ["diff", *arguments])
    assert result.exit_code == code
    assert said in result.output
    if code == 2:
        assert len(result.stderr.splitlines()) == 1


def test_the_command_writes_files(saved: None) -> None:
    for name in ("d.json", "d.txt"):
        result = CliRunner().invoke(main, ["diff", "a.fpemu", "b.fpemu", "--out", name])
        assert (result.exit_code, result.output) == (0, f"wrote {name}\n")
    assert json.loads(Path("d.json").read_text())["before"]["name"].endswith("a.fpemu")
    assert "overflows, and did not" in Path("d.txt").read_text("utf-8")
