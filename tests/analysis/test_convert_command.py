"""The command `fpemu convert`: forms, exit codes, conditions, interruption, hostile names."""

from __future__ import annotations

import html.parser
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from command_process import huge, interrupted

from fpemu.analysis.cli import main
from fpemu.analysis.conversion.fail_on import MEASURES, read_condition
from fpemu.errors import InputError


def call(*args: object, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["convert", *map(str, args)])


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tensor that is fine, one that loses, one that breaks in float16, and some that are kept."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.npz"
    np.savez(
        path,
        fine=np.float32([[1.0, 0.5, 0.25, 2.0]]),
        **{"deep.weight": np.float32([[2.0**-30, 2.0**-28, 1e-3, 0.0]])},
        large=np.float32([[1e6, 1.0]]),
        bias=np.ones(3, np.float32),
        ids=np.arange(5),
    )
    return path


def header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    facts = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert isinstance(facts, dict)
    return facts


# --- forms -------------------------------------------------------------------------------------


def test_json_says_what_was_done(checkpoint: Path) -> None:
    done = call(checkpoint, "--to", "fp16", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["to"], found["codes"]) == (1, "float16", False)
    assert found["out"] == str(checkpoint.parent / "model.float16.safetensors")
    rows = {row["name"]: row for row in found["tensors"]}
    assert set(rows) == {"fine", "deep.weight", "large"}
    assert (rows["fine"]["sqnr_db"], rows["fine"]["exact"]) == (None, True)
    assert (rows["deep.weight"]["lost"], rows["deep.weight"]["nonzero"]) == (2, 3)
    assert rows["large"]["broken"] == 1
    assert {row["name"] for row in found["kept"]} == {"bias", "ids"}
    assert (found["bytes"], found["to_bytes"]) == (92, 92)
    assert "converted 3 tensors of 92 B" in done.stderr
    assert "wrote " in done.stderr
    assert header(Path(found["out"]))["fine"]["dtype"] == "F32"


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_text_says_the_answer_first(checkpoint: Path, columns: int) -> None:
    done = call(checkpoint, "--to", "fp16", columns=columns)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    text = " ".join(done.stdout.split())
    assert lines[0].strip().startswith("• 3 tensors written as values")
    assert "1 finite value became infinite or NaN, in 1 tensor: large." in text
    assert text.index("large (1") < text.index("deep.weight ") < text.index(" fine ")
    assert "66.7 %" in text
    assert "Kept as they are: bias" in text


def test_only_so_many_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{f"w{k:03}": np.float32([[k, 1.1]]) for k in range(50)})
    out = tmp_path / "a.safetensors"
    done = call(tmp_path / "a.npz", "--to", "bf16", "--out", out, "--rows", "5")
    assert "45 more rows not shown" in " ".join(done.stdout.split())
    assert len(re.findall(r"^w\d", done.stdout, re.MULTILINE)) == 5


def test_every_form_of_report(checkpoint: Path, tmp_path: Path) -> None:
    for suffix in (".json", ".txt", ".html"):
        report = tmp_path / f"report{suffix}"
        done = call(checkpoint, "--to", "mxfp4", "--force", "--report", report)
        assert done.exit_code == 0, done.stderr
        assert done.stdout == ""
        assert f"wrote {report}" in done.stderr
        assert "deep.weight" in report.read_text()
    assert json.loads((tmp_path / "report.json").read_text())["to"] == "mxfp4"


def test_html_needs_nothing_and_escapes_names(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    np.savez(tmp_path / "a.npz", **{hostile: np.float32([[1.1]]), "k<b>": np.arange(3)})
    report = tmp_path / "r.html"
    done = call(tmp_path / "a.npz", "--to", "bf16", "--out", tmp_path / "a.safetensors",
                "--report", report)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    page = report.read_text()
    opened: list[str] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)
            assert not {"src", "href"} & dict(attrs).keys() or dict(attrs)["href"].startswith("#")

        def handle_endtag(self, tag: str) -> None:
            while opened.pop() != tag:
                pass

    Parser().feed(page)
    assert page.count("<script>") == 1
    assert "\x1b" not in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    text = call(tmp_path / "a.npz", "--to", "bf16", "--out", tmp_path / "a.safetensors", "--force")
    assert "\x1b" not in text.stdout


def test_codes_and_back(checkpoint: Path) -> None:
    done = call(checkpoint, "--to", "nvfp4", "--codes")
    assert done.exit_code == 0, done.stderr
    coded = checkpoint.parent / "model.nvfp4.codes.safetensors"
    assert header(coded)["fine"] | {"data_offsets": 0} == {
        "dtype": "U8", "shape": [1, 2], "data_offsets": 0
    }  # fmt: skip
    assert set(header(coded)) >= {"fine_scale", "fine_scale_2"}
    done = call(coded, "--decode", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tensors"] == 3
    back = Path(found["out"])
    assert back.name == "model.nvfp4.codes.values.safetensors"
    assert header(back)["fine"]["dtype"] == "F32"


def test_a_text_names_its_file_plainly(checkpoint: Path) -> None:
    done = call(checkpoint, "--to", "1x16 exponent(mode=fit) fp4")
    assert done.exit_code == 0, done.stderr
    assert (checkpoint.parent / "model.1x16-exponent-mode-fit-fp4.safetensors").exists()


# --- exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "code"),
    [("sqnr<70", 1), ("sqnr<60", 0), ("lost>60", 1), ("lost>67", 0), ("lost>=100", 0),
     ("clipped>0", 0), ("relative>90", 0), ("broken>0", 1), ("broken>1", 0), ("broken>=1", 1)],
)  # fmt: skip
def test_conditions(checkpoint: Path, condition: str, code: int) -> None:
    done = call(checkpoint, "--to", "fp16", "--force", "--skip", "bias", "--fail-on", condition)
    assert done.exit_code == code, done.stderr
    assert (f"--fail-on {condition}: " in done.stderr) == bool(code)


def test_clipped_is_not_broken(checkpoint: Path) -> None:
    done = call(checkpoint, "--to", "fp16:overflow=saturate", "--fail-on", "clipped>=50",
                "--fail-on", "broken>0")  # fmt: skip
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "fpemu: --fail-on clipped>=50: 1 of 3 tensors, large first"
    )


def test_conditions_that_are_none() -> None:
    for text in ("sqnr", "sqnr<", "sqnr<x", "sqnr=3", "<3", "sqnr<nan"):
        with pytest.raises(InputError, match="give a measure, a sign and a limit"):
            read_condition(text)
    with pytest.raises(InputError, match="did you mean 'sqnr'"):
        read_condition("snqr<3")
    assert set(MEASURES) == {"sqnr", "lost", "clipped", "relative", "broken"}


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ([], "give --to RECIPE, or --decode"),
        (["--to", "mxfp8", "--decode"], "give --to RECIPE, or --decode"),
        (["--decode"], "says of no codes"),
        (["--decode", "--only", "x"], "--only with --decode"),
        (["--to", "mxfp9"], "unknown recipe 'mxfp9'; did you mean 'mxfp8'?"),
        (["--to", "e4m4"], "unknown format 'e4m4'; did you mean 'e3m4'?"),
        (["--to", "e4m3"], "is ambiguous in the field"),
        (["--to", "1x16 exponant fp4"], "did you mean 'exponent'?"),
        (["--to", "e4m3fn:stochastic"], "needs a seed"),
        (["--to", "mxfp8", "--axis", "5"], "axis=5: it has 2 dimensions"),
        (["--to", "mxfp8", "--only", "fein"], "no tensor is called so"),
        (["--to", "mxfp8", "--out", "no/a.safetensors"], "there is no folder"),
        (["--to", "mxfp8", "--out", "model.npz"], "it is the checkpoint that is read"),
        (["--to", "mxfp8", "--report", "a.pdf"], "--report 'a.pdf': the suffix says the form"),
        (["--to", "mxfp8", "--out", ""], "cannot write"),
        (["--to", "tensor fixed(scale=nan) fp4"], "scale=nan: must be a float32 above 0"),
        (["--to", "mxfp8", "--report", "a.html", "--json"], "name the file .json"),
        (["--to", "mxfp8", "--fail-on", "x<1"], "measures: sqnr"),
        (["--to", "mxfp8", "--only", "bias", "--axis", "1"], "'bias': axis=1"),
        (["--to", "deepseek.weight", "--only", "bias"], "one row, or skip the tensor"),
    ],
)
def test_refusals_are_one_line(checkpoint: Path, args: list[str], rule: str) -> None:
    done = call(checkpoint, *args)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert rule in done.stderr
    assert os.listdir(checkpoint.parent) == ["model.npz"]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "is empty"),
        (b"no checkpoint at all", "is no checkpoint"),
        (b"\xff" * 16, "is no checkpoint"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "a header of"),
        (b"\x80\x02}q\x00.", "needs pickle"),
        (b"GGUF" + bytes(20), "is GGUF"),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, data: bytes, rule: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    done = call(tmp_path / "a.safetensors", "--to", "bf16", "--out", tmp_path / "b.safetensors")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert rule in done.stderr
    assert os.listdir(tmp_path) == ["a.safetensors"]


# --- processes -----------------------------------------------------------------------------------

@pytest.mark.skipif(os.name == "nt", reason="sends the signal of Ctrl-C")
def test_progress_and_interruption(tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    huge(path, 1 << 20, 1 << 14)
    seen = interrupted("convert", path, "--to", "mxfp4", "--codes", "--out",
                       tmp_path / "out.safetensors")  # fmt: skip
    assert b"B/s" in seen
    assert b"huge.safetensors" in seen
    assert b"interrupted" in seen
    assert b"Traceback" not in seen
    assert os.listdir(tmp_path) == ["huge.safetensors"]
