"""The command `fpemu scan`: forms, exit codes, conditions, interruption; every view of the rows."""

from __future__ import annotations

import html.parser
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from command_process import huge, interrupted, process

from fpemu.analysis.checkpoints.fail_on import MEASURES, read_condition
from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.cli import main
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError


def call(*args: object, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["scan", *map(str, args)])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One tensor that is fine in float16, one that underflows, one broken, one of integers."""
    path = tmp_path / "model.npz"
    np.savez(
        path,
        fine=np.float32([1.0, 0.5, 0.25, 2.0]),
        **{"deep.weight": np.float32([2.0**-30, 2.0**-28, 1e-3, 0.0])},
        broken=np.float32([np.nan, np.inf, 1.0]),
        ids=np.arange(5),
    )
    return path


# --- forms -------------------------------------------------------------------------------------


def test_json_says_what_was_counted(checkpoint: Path) -> None:
    done = call(checkpoint, "--json", "--formats", "fp16,bf16")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    assert found["formats"] == ["float16", "bfloat16"]
    assert [t["name"] for t in found["tensors"]] == ["fine", "deep.weight", "broken"]
    deep = found["tensors"][1]
    assert deep["formats"][0]["unscaled"]["underflow"] == 2
    assert deep["formats"][0]["lost_percent"] == pytest.approx(200 / 3)
    assert (deep["zero"], deep["values"], deep["octets"]) == (1, 4, 16)
    assert [t["name"] for t in found["not_counted"]] == ["ids"]
    broken = found["tensors"][2]
    assert (broken["nan"], broken["inf"]) == (1, 1)
    assert found["advice"]["status"] == "broken"
    assert "scanned 3 tensors" in done.stderr


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_text_says_the_answer_first(checkpoint: Path, columns: int) -> None:
    done = call(checkpoint, "--formats", "fp16,bf16", columns=columns)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("• 1 tensor already with NaN or")
    text = " ".join(done.stdout.split())
    assert "bfloat16 keeps all unscaled" in text
    assert "Advice, for float16 first" in text
    assert "ids" in text
    row = next(line for line in lines if line.startswith("deep") and "%" in line)
    assert "66.7%" in row
    assert text.index("broken") < text.index("deep.weight ")


def test_only_so_many_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{f"w{k:03}": np.float32([k]) for k in range(50)})
    done = call(tmp_path, "--rows", "5")
    assert "45 more tensors" in " ".join(done.stdout.split())
    assert len(re.findall(r"^w\d", done.stdout, re.MULTILINE)) == 5


def test_every_form_of_out(checkpoint: Path, tmp_path: Path) -> None:
    for suffix in (".json", ".txt", ".html", ".fpemu"):
        out = tmp_path / f"out{suffix}"
        done = call(checkpoint, "--out", out)
        assert done.exit_code == 0, done.stderr
        assert done.stdout == ""
        assert f"wrote {out}" in done.stderr
        assert out.stat().st_size > 100
    assert Trace.load(tmp_path / "out.fpemu").names() == ["fine", "deep.weight", "broken"]
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == 1
    report = CliRunner().invoke(main, ["whatif", str(tmp_path / "out.fpemu"), "--to", "fp16"])
    assert report.exit_code == 0
    assert "deep.weight" in report.stdout


def test_html_has_every_tensor_and_nothing_from_elsewhere(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    call(checkpoint, "--out", out)
    page = out.read_text()
    opened: list[str] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)
            assert not {"src", "href"} & dict(attrs).keys() or dict(attrs)["href"].startswith("#")

        def handle_endtag(self, tag: str) -> None:
            while opened.pop() != tag:
                pass

    Parser().feed(page)
    assert "http" not in re.sub(r"http-equiv", "", page)
    for name in ("fine", "deep.weight", "broken", "ids"):
        assert f">{name}<" in page


def test_an_existing_trace_is_replaced_and_another_file_is_not(
    checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.fpemu"
    out.write_text("mine")
    done = call(checkpoint, "--out", out)
    assert done.exit_code == 2
    assert out.read_text() == "mine"
    out.unlink()
    assert call(checkpoint, "--out", out).exit_code == 0
    assert call(checkpoint, "--out", out, "--name", "fine").exit_code == 0
    assert Trace.load(out).names() == ["fine"]


def test_what_is_scanned_is_never_written_over(tmp_path: Path) -> None:
    facts = {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    header = json.dumps(facts).encode()
    shard, index = tmp_path / "shard.json", tmp_path / "model.safetensors.index.json"
    shard.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    index.write_text(json.dumps({"weight_map": {"w": "shard.json"}}))
    link = tmp_path / "link.json"
    link.symlink_to(shard)
    before = shard.read_bytes(), index.read_text()
    for given, out in ((shard, shard), (shard, link), (index, index), (tmp_path, index),
                       (index, shard), (tmp_path, shard)):  # fmt: skip
        done = call(given, "--out", out)
        assert done.exit_code == 2
        assert "is a file of the checkpoint" in done.stderr
    assert (shard.read_bytes(), index.read_text()) == before
    assert call(index, "--out", tmp_path / "new.json").exit_code == 0


# --- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "code"),
    [(["lost>0.1"], 1), (["lost>66.7"], 0), (["lost>=50", "nan>99"], 1), (["lost_scaled>0.1"], 0),
     (["nan>0"], 1), (["inf>50"], 0), (["overflow>0"], 0), (["underflow > 60"], 1)],
)  # fmt: skip
def test_fail_on(conditions: list[str], code: int, checkpoint: Path) -> None:
    options = [word for one in conditions for word in ("--fail-on", one)]
    done = call(checkpoint, "--formats", "fp16", *options)
    assert done.exit_code == code, done.stderr
    assert ("--fail-on" in done.stderr) == (code == 1)
    if code and "lost>0.1" in conditions:
        assert "1 of 3 tensors, deep.weight most: 66.7 % in float16" in done.stderr


@pytest.mark.parametrize("text", ["lost", "lost<3", "lots>1", "lost>101", "lost>-1", "lost>x", ""])
def test_bad_conditions(text: str, checkpoint: Path) -> None:
    with pytest.raises(InputError, match="condition"):
        read_condition(text)
    done = call(checkpoint, "--fail-on", text)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


def test_every_measure_is_read() -> None:
    assert [read_condition(f"{name}>1").measure for name in MEASURES] == list(MEASURES)


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--formats", "e4m3"], "ambiguous"), (["--formats", "bf16:stochastic"], "stochastic"),
     (["--scales", "x"], "exponents"),
     (["--scales", "5:3"], "exponents"), (["--out", "a.csv"], ".html"), (["--name", "zzz"], "zzz"),
     (["--out", "/nowhere/a.html"], "/nowhere"), (["--json", "--out", "a.html"], ".json"),
     (["--tolerance", "200"], "percentage, from 0 to 100"), (["--tolerance", "nan"], "percentage"),
     (["--threads", "0"], "threads")],
)  # fmt: skip
def test_bad_options(options: list[str], words: str, checkpoint: Path) -> None:
    done = call(checkpoint, *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_refusals_are_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone", "/dev/null", "a\nb"):
        done = call(path)
        assert done.exit_code == 2
        assert done.stderr.startswith("fpemu: checkpoint ")
        assert done.stderr.count("\n") == 1
    assert call().exit_code == 2


# --- as a process ------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="sends the signal of Ctrl-C")
def test_progress_and_interruption(tmp_path: Path) -> None:
    huge(tmp_path / "huge.safetensors", 1 << 37)
    seen = interrupted("scan", tmp_path / "huge.safetensors", "--out", tmp_path / "out.fpemu")
    assert b"B/s" in seen
    assert b"huge.safetensors" in seen
    assert b"interrupted" in seen
    assert b"Traceback" not in seen
    assert os.listdir(tmp_path) == ["huge.safetensors"]


def test_no_bar_where_stderr_is_no_terminal(checkpoint: Path) -> None:
    child = process("scan", checkpoint, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0
    json.loads(out)
    assert err.count(b"\n") == 1
    assert b"\x1b" not in err


def test_sizes() -> None:
    assert [size(n) for n in (0, 999, 1000, 999_499, 999_600, 2.5e12)] == [
        "0 B", "999 B", "1 kB", "999 kB", "1 MB", "2.5 TB"
    ]  # fmt: skip
