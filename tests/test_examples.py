"""The examples run as a user runs them: as scripts, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fpemu
from fpemu.analysis.trace import Trace

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder, capture_output=True, encoding="utf-8", timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(fpemu.__file__).parents[1]),
                          "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    tests = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []


def test_which_format_on_arrays_of_its_own(tmp_path: Path) -> None:
    lines = run("which_format.py", folder=tmp_path).splitlines()
    assert lines[0].startswith("weights: <Tally of 100000")
    lost = {line.split()[0]: line.split()[1] for line in lines[lines.index(lines[0]) + 2 : 8]}
    assert lost["float16"] == lost["bfloat16"] == "0.00%"
    assert lost["float6_e3m2fn"] != "0.00%"


def test_check_casts_finds_what_the_notes_of_the_presets_say(tmp_path: Path) -> None:
    printed = run("check_casts.py", folder=tmp_path)
    ours = printed[printed.index("ml_dtypes ") : printed.index("torch")]
    assert "float8_e4m3fn: exact" in ours
    assert "float4_e2m1fn: 26 of " in ours, "its NaN becomes -0"


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_which_format_on_files(tmp_path: Path, suffix: str) -> None:
    array = np.array([1e-9, 1.0, 70000.0, 2.0])  # of which float16 keeps two
    if suffix == ".npy":
        np.save(tmp_path / "a.npy", array)
    else:
        np.savez(tmp_path / "a.npz", grid=array, labels=np.arange(4))
    printed = run("which_format.py", f"a{suffix}", folder=tmp_path)
    [row] = [line for line in printed.splitlines() if line.split()[0] == "float16"]
    assert row.split()[1] == "50.00%"
    assert printed.count("<Tally") == 1, "integer arrays are passed over"


def test_record_numpy(tmp_path: Path) -> None:
    printed = run("record_numpy.py", folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run.fpemu"]
    trace = Trace.load(tmp_path / "run.fpemu")
    assert trace.steps() == list(range(100))
    accuracy = [scalar.value for scalar in trace.scalars("accuracy")]
    assert accuracy[-1] > 0.95 > accuracy[0]
    assert printed.startswith("float16 ")
    assert "logits" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_record_numpy_judges_the_format_asked_for(tmp_path: Path) -> None:
    printed = run("record_numpy.py", ".", "--to", "bf16", folder=tmp_path)
    assert printed.startswith("bfloat16 is safe")
