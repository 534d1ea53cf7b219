"""fpemu plot: the list of plots, each plot from the command line, refusals in one line."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fpemu.analysis import plots
from fpemu.analysis.cli import main
from fpemu.analysis.plots.command import DRAWINGS
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import update_tally


def run(*args: object) -> Any:
    return CliRunner().invoke(main, ["plot", *map(str, args)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with run.fpemu and x.npy in it."""
    place = tmp_path_factory.mktemp("plots")
    rng = np.random.default_rng(0)
    trace = Trace()
    for step in range(3):
        trace.scalar(step, "loss_scale", 1024.0)
        for kind in ("activation", "activation_gradient", "weight"):
            trace.record("fc", kind, rng.normal(0, 2.0**-8, 50).astype(np.float32), step)
        weight = rng.normal(size=50).astype(np.float32)
        trace.count("fc", "update", step, update_tally(weight, weight * np.float32(2.0**-9)))
    trace.save(place / "run.fpemu")
    np.save(place / "x.npy", rng.normal(size=(8, 32)).astype(np.float32))
    return place


def test_the_list_names_every_plot() -> None:
    lines = run().output.splitlines()
    assert [line.split()[0] for line in lines] == list(DRAWINGS)
    drawn = {
        name
        for name in plots.__all__
        if inspect.isfunction(getattr(plots, name))
        and "ax" in inspect.signature(getattr(plots, name)).parameters
    }
    assert set(DRAWINGS) == drawn
    for line in lines:
        assert line.endswith(".")
        assert len(line) <= 100


@pytest.mark.parametrize("name", DRAWINGS)
def test_each_plot_is_written(folder: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / f"{name}.svg"
    sources = {"trace": [folder / "run.fpemu"], "array": [folder / "x.npy"], "": []}
    more = ["--formats", "fp16,bf16"] if name == "error_distribution" else []
    found = run(name, *sources[DRAWINGS[name].takes], "--out", out, *more)
    assert found.output == f"{out}\n", found.exception
    assert out.read_bytes().startswith(b"<svg ")


def test_options_reach_the_plot(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen: dict[str, Any] = {}

    def spy(source: Any, **given: Any) -> Any:
        seen.update(given)
        return plots.new_axes()

    monkeypatch.setattr(plots, "amax_by_step", spy)
    out = tmp_path / "a.png"
    found = run(
        "amax_by_step", folder / "run.fpemu", "--out", out, "--to", "e5m2", "--scale", "2^4",
        "--kind", "activation", "--name", "fc", "--step", "2", "--recorded",
    )  # fmt: skip
    assert found.exit_code == 0
    assert seen == {
        "to": "e5m2", "scale": 16.0, "kind": "activation", "name": "fc", "step": 2,
        "unscaled": False,
    }  # fmt: skip


def test_scalers_are_replayed(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    seen: dict[str, Any] = {}

    def spy(source: Any, *, replays: Any) -> Any:
        seen["scalers"] = [replay.scaler for replay in replays]
        return plots.new_axes()

    monkeypatch.setattr(plots, "loss_scale_trajectory", spy)
    found = run(
        "loss_scale_trajectory", folder / "run.fpemu", "--out", tmp_path / "a.png",
        "--scaler", "torch", "--scaler", "jmp",
    )  # fmt: skip
    assert found.exit_code == 0
    assert seen["scalers"] == ["torch", "jmp"]


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        (["sqnr_by_layers", "run.fpemu"], "did you mean 'sqnr_by_layer'"),
        (
            ["lost_by_scale", "run.fpemu", "--to", "fp16", "--out", "a.png"],
            "takes no --to; it takes",
        ),
        (["lost_by_scale", "run.fpemu"], "say where to write it"),
        (["lost_by_scale", "--out", "a.png"], "drawn from a trace"),
        (["staircase", "run.fpemu", "--out", "a.png"], "drawn from no file"),
        (["error_distribution", "x.npy", "--out", "a.png"], "one cast or two"),
        (["qsnr_by_crest", "run.fpemu", "--out", "a.png"], "no array of plain numbers"),
        (["qsnr_by_crest", "missing.npy", "--out", "a.png"], "cannot read"),
        (["scale_plot", "x.npy", "--out", "a.png"], "x.npy"),
        (["scale_plot", "run.fpemu", "--out", "a.gif"], "written as .png, .svg, .pdf"),
        (["scale_plot", "run.fpemu", "--scale", "3", "--out", "a.png"], "power of two"),
    ],
)
def test_refusals_are_one_line(folder: Path, monkeypatch: Any, args: list[str], rule: str) -> None:
    monkeypatch.chdir(folder)
    found = run(*args)
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert rule in found.stderr
    assert sorted(os.listdir(folder)) == ["run.fpemu", "x.npy"]


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    found = run("qsnr_by_crest", tmp_path / "x.npy", "--out", tmp_path / "a.png")
    assert (found.exit_code, "no array of plain numbers" in found.stderr) == (2, True)


def test_the_list_needs_no_matplotlib() -> None:
    script = (
        "import sys; from fpemu.analysis.cli import main\n"
        "try: main(['plot'])\nexcept SystemExit: pass\n"
        "assert 'matplotlib' not in sys.modules and 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
