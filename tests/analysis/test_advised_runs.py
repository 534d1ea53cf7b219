"""The benchmark of the advice, in small: the advice wins back what a format costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fpemu

ROOT = Path(__file__).resolve().parents[2]


def test_the_advice_wins_back_what_a_format_costs() -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "benchmarks" / "advised_runs.py"), "--seeds",
         "1", "--steps", "30", "--json", "--only", "digits-small-loss", "digits-e4m3-products",
         "digits-float16"],
        capture_output=True, encoding="utf-8", timeout=400,
        env=os.environ | {"PYTHONPATH": str(Path(fpemu.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    small, narrow, safe = json.loads(done.stdout)
    for broken in (small, narrow):
        assert broken["float32"] < 1.8 < 2.2 < broken["naive"] < 2.4, "ln 10 is to know nothing"
        won = (broken["naive"] - broken["advised"]) / (broken["naive"] - broken["float32"])
        assert won > 0.9
        assert broken["lowered"] > 0, "not by keeping everything"
    assert small["status"] in ("safe_with_loss_scale", "needs_changes")
    assert small["loss_scale"] >= 2.0**20, "the loss was multiplied by 2^-22"
    assert narrow["status"] == "needs_changes"
    assert (safe["status"], safe["loss_scale"]) == ("safe", 1.0)
    assert abs(safe["naive"] - safe["float32"]) < 0.05
    assert safe["advised"] == safe["naive"], "nothing was advised, and nothing changed"
