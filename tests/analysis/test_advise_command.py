"""The command `fpemu advise`: the same answer as the function, in words, JSON and policies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fpemu.analysis import Trace, advise
from fpemu.analysis.cli import main
from fpemu.policies import Policy


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng, trace = np.random.default_rng(0), Trace()
    for name, result, gradient in (("fc1", 1.0, 1e-7), ("fc[2]\u202e", 1e5, 1e-5)):
        for kind, size in (("activation", result), ("activation_gradient", gradient)):
            x = (rng.standard_normal((32, 16)) * size).astype(np.float32)
            trace.record(name, kind, x, step=0)
        weight = (rng.standard_normal((16, 16)) * 0.1).astype(np.float32)
        trace.record(f"{name}.weight", "weight", weight, step=0)
        trace.record(f"{name}.weight", "update", weight * np.float32(1e-3), step=0)
    file = tmp_path_factory.mktemp("advise") / "run.fpemu"
    trace.save(file)
    return str(file)


def call(*args: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["advise", *args])


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_it_prints_the_answer_first_and_fits_the_terminal(path: str, columns: int) -> None:
    result = call(path, "--formats", "fp16,bf16", columns=columns)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    advice = advise(Trace.load(path), formats=["fp16", "bf16"])
    assert lines[0].startswith(" NEEDS CHANGES  float16 needs a")
    words = " ".join(result.stdout.split())
    for line in advice.lines:
        assert " ".join(line.text.split()) in words.replace(" • ", " ") or columns < 80
    assert max(map(len, lines)) <= columns
    assert "\u202e" not in result.stdout
    titles = ["Layers", "Tensors", "Updates of weights held in a format", "Memory"]
    found = [line.split(" ─")[0] for line in lines if "──" in line]
    assert found[:4] == titles or columns < 80


def test_json_is_the_advice(path: str) -> None:
    result = call(path, "--formats", "e4m3fn,e5m2", "--formats", "bf16", "--tolerance", "1",
                  "--memory", "0.5", "--seed", "3", "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    want = advise(Trace.load(path), formats=["e4m3fn", "e5m2", "bf16"], tolerance=0.01,
                  memory=0.5, seed=3)  # fmt: skip
    assert json.loads(result.stdout) == json.loads(json.dumps(want.to_json()))


def test_the_policy_reads_back(path: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    result = call(path, "--formats", "fp16", "--policy", "--out", str(file))
    assert result.exit_code == 0, result.stderr
    policy = Policy.from_json(json.loads(file.read_text()))
    assert policy == advise(Trace.load(path), formats="fp16").policy()
    assert policy.rule("linear", "fc[2]\u202e").value == "float32"


def test_rows_are_limited_and_the_rest_counted(path: str) -> None:
    text = call(path, "--rows", "1").stdout
    assert "1 more row not shown." in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--formats", "fp17"], "unknown format 'fp17'"),
        (["--memory", "-1"], "memory=-1.0: must be bytes"),
        (["--out", "advice.html"], "the suffix says the form"),
        (["--tolerance", "101"], "tolerance 1.01"),
    ],
)
def test_what_cannot_be_asked_is_one_line(path: str, options: list[str], message: str) -> None:
    result = call(path, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("fpemu: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
