"""Reports and traces as data frames, Parquet files and TensorBoard logs, read back."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from full_run import SKIPPED, Run, loss_scale, shared_run

from fpemu.analysis import export
from fpemu.analysis.cli import main
from fpemu.analysis.export.columns import STEPS, TENSORS
from fpemu.analysis.report import Report, build
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError, MissingExtraError


@pytest.fixture(scope="module")
def run() -> Run:
    return shared_run()


@pytest.fixture(scope="module")
def found(run: Run) -> Report:
    return build(run.trace, formats=[], scales=[1.0])


def plain(value: Any) -> Any:
    """A cell as Python has it: no NaN, no numpy."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    return tuple(int(n) for n in value) if isinstance(value, list | tuple | np.ndarray) else value


def check_tensors(rows: list[dict[str, Any]], found: Report) -> None:
    assert len(rows) == len(found.tensors)
    for row, tensor in zip(rows, found.tensors, strict=True):
        assert list(row) == list(TENSORS)
        assert {key: plain(value) for key, value in row.items()} == {
            key: getattr(tensor, key) for key in TENSORS
        }


def check_steps(rows: list[dict[str, Any]], run: Run) -> None:
    assert len(rows) == sum(len(steps) for steps in run.true.values())
    for row in rows:
        assert list(row) == list(STEPS)
        x = run.true[row["name"], row["kind"]][row["step"]]
        finite = x[np.isfinite(x)].astype(np.float64)
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        assert plain(row["shape"]) == x.shape
        assert (row["count"], row["inf"]) == (x.size, np.isinf(x).sum())
        assert row["amax"] == np.abs(finite).max()
        assert row["rms"] == pytest.approx(np.sqrt((finite**2).mean()))
        lost = ((half == 0) & (x != 0)).sum() + (np.isinf(half) & np.isfinite(x)).sum()
        some = (np.isfinite(x) & (x != 0)).sum()
        assert row["lost_percent"] == pytest.approx(100 * lost / some)
        gradient = row["kind"].endswith("gradient")
        assert row["loss_scale"] == (loss_scale(row["step"]) if gradient else 1.0)
        assert row["skipped"] == (gradient and row["step"] == SKIPPED)


def test_frames(run: Run, found: Report) -> None:
    pytest.importorskip("pandas", reason="data frames need pandas")
    frame = found.to_frame()
    check_tensors(frame.to_dict("records"), found)
    assert (str(frame["count"].dtype), str(frame["amax"].dtype)) == ("int64", "float64")
    check_steps(export.trace_frame(run.trace).to_dict("records"), run)
    assert len(export.trace_frame(Trace())) == 0
    bf16 = export.trace_frame(run.trace, to="bf16")
    assert bf16["lost_percent"].max() == 0


def test_parquet(run: Run, found: Report, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    export.write_parquet(found, tmp_path / "report.parquet")
    table = parquet.read_table(tmp_path / "report.parquet")
    check_tensors(table.to_pylist(), found)
    facts = json.loads(table.schema.metadata[b"fpemu"])
    assert facts == {"to": "float16", "verdict": found.verdict.to_json()}
    export.write_parquet(run.trace, tmp_path / "run.parquet")
    table = parquet.read_table(tmp_path / "run.parquet")
    check_steps(table.to_pylist(), run)
    assert json.loads(table.schema.metadata[b"fpemu"])["metadata"]["seed"] == 1
    with pytest.raises(InputError, match="cannot write"):
        export.write_parquet(run.trace, tmp_path / "missing" / "run.parquet")


def test_tensorboard(run: Run, found: Report, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard logs need tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    export.write_tensorboard(run.trace, tmp_path / "logs", report=found, tensors=3)
    log = EventAccumulator(str(tmp_path / "logs"), size_guidance={"tensors": 0, "scalars": 0})
    log.Reload()
    scalars, tensors = log.Tags()["scalars"], log.Tags()["tensors"]
    assert [event.value for event in log.Scalars("run/loss")] == pytest.approx(
        [1 / (1 + step) for step in range(0, 40, 5)]
    )
    charted = [tag for tag in tensors if tag.startswith("log2/")]
    assert len(charted) == 3
    worst = min(found.tensors, key=lambda row: row.rank)
    where = f"{worst.kind}/{worst.name}"
    assert f"lost_percent/{where}" in scalars
    for event in log.Scalars(f"log2_amax/{where}"):
        amax = np.abs(run.true[worst.name, worst.kind][event.step]).max()
        assert event.value == pytest.approx(np.log2(amax), rel=1e-6)
    [event, *_] = log.Tensors(f"log2/{where}")
    bins = tensor_util.make_ndarray(event.tensor_proto)
    x = run.true[worst.name, worst.kind][event.step]
    counts = np.bincount((np.floor(np.log2(np.abs(x[x != 0]))) + 200).astype(int).ravel())
    assert {int(left) + 200: int(n) for left, _, n in bins if n} == {
        k: n for k, n in enumerate(counts.tolist()) if n
    }
    [words] = log.Tensors("verdict")
    assert found.verdict.headline in tensor_util.make_ndarray(words.tensor_proto)[0].decode()
    for event in log.Scalars("underflow_percent/optimizer_state"):
        step, value = event.step, event.value
        x = np.concatenate([s[step].ravel() for key, s in run.true.items()
                            if key[1] == "optimizer_state"])  # fmt: skip
        zero = ((x.astype(np.float16) == 0) & (x != 0)).sum()
        assert value == pytest.approx(100 * zero / (x != 0).sum(), rel=1e-6)
    with pytest.raises(InputError, match="tensors=-1: must be how many"):
        export.write_tensorboard(run.trace, tmp_path / "logs", tensors=-1)


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pandas", "pandas"), ("pyarrow", "parquet"), ("tensorboard", "tensorboard")],
)
def test_a_missing_package_is_named_with_its_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    real = builtins.__import__

    def none(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", none)
    calls = {
        "pandas": lambda: export.trace_frame(run.trace),
        "pyarrow": lambda: export.write_parquet(run.trace, tmp_path / "x.parquet"),
        "tensorboard": lambda: export.write_tensorboard(run.trace, tmp_path / "logs"),
    }
    with pytest.raises(MissingExtraError, match=rf"pip install 'fpemu\[{extra}\]'"):
        calls[package]()
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    pytest.importorskip("tensorboard", reason="TensorBoard logs need tensorboard")
    monkeypatch.chdir(tmp_path)
    trace = Trace()
    trace.record("fc", "weight", np.float32([1.0, 2.0]), 0)
    trace.save("run.fpemu")
    result = CliRunner().invoke(
        main, ["report", "run.fpemu", "--out", "r.parquet", "--tensorboard", "logs"]
    )
    assert (result.exit_code, result.output) == (0, "wrote logs\nwrote r.parquet\n")
    assert parquet.read_table("r.parquet").num_rows == 1
    assert [path.name.split(".")[2] for path in Path("logs").iterdir()] == ["tfevents"]
