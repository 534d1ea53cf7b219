"""The examples run as a user runs them: as scripts, in a folder of their own."""

from __future__ import annotations

import os
import re
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


# --- with PyTorch ------------------------------------------------------------------------------


def rows_of(printed: str) -> dict[str, tuple[float, float, str]]:
    """The table that the training examples print: run -> (first loss, last loss, verdict)."""
    table = printed.split("\n\n")[0].splitlines()[1:]
    found = {}
    for line in table:
        first, last, _, *verdict = line[32:].split()
        found[line[:32].strip()] = (float(first), float(last), " ".join(verdict))
    return found


def test_train_gpt(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    printed = run("train_gpt.py", "--steps", "20", folder=tmp_path)
    rows = rows_of(printed)
    first, last, _ = rows["float32"]
    assert last < first - 1, "it learns"
    for name in ("float16 autocast", "float16 autocast, loss scaling"):
        assert rows[name][2] == "as good as float32"
        assert abs(rows[name][1] - last) < 0.05
    assert rows["E4M3 everywhere"][2].startswith("worse by ")
    assert "\nfloat16 needs a loss scale, such as 2^" in printed
    source = (EXAMPLES / "train_gpt.py").read_text().splitlines()
    [line] = [i for i, text in enumerate(source, start=1) if "scores = query @ key" in text]
    assert f"- blocks.1.matmul@train_gpt.py:{line} (activation gradient)" in printed
    assert "\nfloat8_e4m3fn is not safe" in printed
    assert not list(tmp_path.iterdir())


def test_train_digits(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    printed = run("train_digits.py", "--steps", "60", folder=tmp_path)
    rows = rows_of(printed)
    assert rows["float32"][1] < 0.5 < rows["float32"][0]
    assert rows["float16, model.half()"][2] == "breaks at step 1", "as Adam's epsilon is 0 there"
    for name in ("float16 autocast", "float16 autocast, loss scaling", "E4M3 at a scale, fake"):
        assert rows[name][2] == "as good as float32"
    assert rows["E4M3 everywhere"][2] == "worse than float32"
    assert "INT4 at a scale, fake" in rows
    assert "\nfloat8_e4m3fn is not safe" in printed


def test_train_fp8(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    printed = run("train_fp8.py", "--steps", "50", folder=tmp_path)
    rows = {line[:32].strip(): line[32:].split() for line in printed.splitlines()[1:]}
    right = {name: float(row[2].rstrip("%")) for name, row in rows.items()}
    without = right.pop("FP8 without scales")
    assert min(right.values()) > 80 > 30 > without
    assert abs(right["MXFP8"] - right["float32"]) < 5
    losses = {name: float(row[1]) for name, row in rows.items()}
    assert losses["FP8, delayed scaling"] != losses["float32"], "it is another arithmetic"


def test_find_overflow(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    printed = run("find_overflow.py", folder=tmp_path)
    source = (EXAMPLES / "find_overflow.py").read_text().splitlines()
    [line] = [i for i, text in enumerate(source, start=1) if "# the culprit" in text]
    asked, emulated, wide = printed.split("\n\n")
    where = f"find_overflow.py:{line})"
    assert "overflow in float16 at step 0, forward, in add of blocks.5 (" in asked
    assert where in asked
    assert "normal values went in: this operation is where it began" in asked
    amounts = re.search(r": ([\d.]+) in, ([\d.]+) out", asked)
    assert amounts
    assert float(amounts[1]) < 65504 < float(amounts[2])
    assert "infinity at step 0, forward, in add of blocks.5 (" in emulated
    assert where in emulated
    assert wide.rstrip().endswith("nothing overflows")


def test_gradient_histogram(tmp_path: Path) -> None:
    """A smaller model and fewer steps have fewer gradients below float16's range: same shape."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    smaller = "--steps", "3", "--layers", "1", "--batch", "4", "--plot", "gradients.png"
    printed = run("gradient_histogram.py", *smaller, folder=tmp_path).splitlines()
    assert re.match(r"[\d,]+ activation gradients of step 3, [\d.]+ % of them zero", printed[0])
    rows = [line.replace("%", "").split() for line in printed[2:]]
    assert [int(scale) for scale, _, _ in rows] == [1, 8, 128, 1024]
    below = [float(share) for _, share, _ in rows]
    zero = [float(share) for _, _, share in rows]
    assert below == sorted(below, reverse=True)
    assert 1 < below[0] < 25
    assert below[-1] <= 0.2
    assert len(set(below)) == 4, "it falls at each step"
    assert all(z < b for z, b in zip(zero, below, strict=True)), "half of them round up"
    assert (tmp_path / "gradients.png").read_bytes().startswith(b"\x89PNG")


def test_scaling_quality_is_near_what_was_published(tmp_path: Path) -> None:
    head, *rows = run("scaling_quality.py", "--rows", "256", folder=tmp_path).splitlines()
    assert head.split() == ["format", "published", "here", "OCP", "rule"]
    assert len(rows) == 8
    for row in rows:
        published, here = map(float, re.findall(r"\d+\.\d+", row)[:2])
        assert abs(published - here) < (0.85 if "INT" in row else 0.2), row


def test_sums_stagnate(tmp_path: Path) -> None:
    printed = run("sums_stagnate.py", folder=tmp_path)
    sums, dots = printed.split("\n\n")
    found = {line[:42].strip(): float(line.split()[-2]) for line in sums.splitlines()[1:9]}
    assert found["float16, one after the other"] == 256
    assert found["float16, pairwise"] == found["float16, Kahan"] == np.float16(409.6)
    assert found["float16, one after the other"] < found["float16, in blocks of 64"]
    assert "a float16 sum stands still after 2207 terms" in sums
    rows = [[float(v.rstrip("%")) for v in line.split()[-2:]] for line in dots.splitlines()[1:]]
    assert all(positive > 5 for _, positive in rows[:2]), "a sum that grows"
    assert all(max(row) < 1 for row in rows[2:])


def test_fp8_accumulation_errs_as_the_document_says(tmp_path: Path) -> None:
    """A smaller result, and lengths up to that of the document's sentences."""
    options = "--rows", "16", "--lengths", "256", "4096"
    printed = run("fp8_accumulation.py", *options, folder=tmp_path)
    zero_mean, positive = (
        {line[:30].strip(): [float(x) for x in line[30:].replace("%", "").split()]
         for line in part.splitlines()[2:]}
        for part in printed.strip().split("\n\n")
    )  # fmt: skip
    plain, promoted = "Hopper FP8", "Hopper FP8, promoted each 128"
    assert 1.0e-3 < zero_mean[plain][1] < 1.6e-3
    assert 1.0e-4 < zero_mean[promoted][1] < 1.6e-4
    assert -7.0 < positive[plain][1] < -6.2
    assert -0.06 < positive[promoted][1] < -0.04
    for found in (zero_mean, positive):
        assert abs(found[plain][1]) > 3 * abs(found[plain][0]), "it grows with the length"
        assert abs(found["Blackwell FP8"][1]) < 1e-6
