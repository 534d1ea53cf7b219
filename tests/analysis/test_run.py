"""fpemu run: unmodified scripts, watched; the report is written however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="watching a script needs PyTorch, an extra")

from click.testing import CliRunner

import fpemu
from fpemu.analysis import Trace
from fpemu.analysis.report import html
from fpemu.analysis.run import outcome
from fpemu.analysis.run.command import run
from fpemu.analysis.run.script import run_script

DRAWING = html.render

SCRIPT = """
import sys, time
import torch
from torch import nn
from helper import width

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + self.fc(x)  # residual

if __name__ == "__main__":
    how, scale = sys.argv[1], float(sys.argv[2])
    torch.manual_seed(0)
    model = nn.Sequential(Block(), nn.ReLU(inplace=True), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        loss = model(torch.rand(4, width) * (scale if step == 3 else 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, flush=True)
        if step == 3 and how == "raise":
            raise ValueError("of the script")
        if step == 3 and how == "exit":
            sys.exit(7)
        if step == 3 and how == "say":
            sys.exit("said")
        if step == 3 and how == "interrupt":
            raise KeyboardInterrupt
        if step == 3 and how == "wait":
            time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("width = 8\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    # plots are drawn in one test: a second each
    monkeypatch.setattr(outcome.html, "render", partial(DRAWING, plots=False))
    return tmp_path


def fpemu_run(*args: str):
    before = list(sys.argv), list(sys.path)
    done = CliRunner().invoke(run, [*args])
    assert (sys.argv, sys.path) == before
    return done


def facts(folder: Path) -> dict:
    return json.loads((folder / "fpemu-run" / "report.json").read_text())


def test_a_script_is_run_as_it_is(folder: Path, monkeypatch):
    monkeypatch.setattr(outcome.html, "render", DRAWING)
    done = fpemu_run("--every", "2", "train.py", "on", "1")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [f"step {k}" for k in range(5)]  # stdout is the script's
    assert "wrote" in done.stderr
    assert "SAFE" in done.stderr
    assert sorted(os.listdir("fpemu-run")) == ["report.html", "report.json", "run.fpemu"]
    trace = Trace.load("fpemu-run/run.fpemu")
    assert trace.steps() == [0, 2, 4]
    assert {"0.fc", "0.fc.weight", "2", "2.bias.exp_avg"} <= set(trace.names())
    assert any(name.startswith("0.add@train.py:") for name in trace.names())
    assert trace.metadata["script"] == "train.py"
    assert facts(folder)["first_causes"] == []
    assert (folder / "fpemu-run" / "report.html").read_text().count("data:image/png") >= 8


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("raise", 1, "ValueError: of the script"),
        ("exit", 7, ""),
        ("say", 1, "said"),
        ("interrupt", 130, "KeyboardInterrupt"),
    ],
)
def test_the_report_is_written_however_a_script_ends(folder: Path, how, code, said):
    done = fpemu_run("--every", "1", "train.py", how, "1")
    assert done.exit_code == code
    assert said in done.stderr
    assert "runpy" not in done.stderr
    assert Trace.load("fpemu-run/run.fpemu").steps() == [0, 1, 2, 3]
    assert facts(folder)["verdict"]["status"] == "safe"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_script_and_not_the_report(folder: Path, number):
    # in the background of a shell Ctrl-C is ignored, and so by all that is started there
    handler = "default_int_handler" if number == signal.SIGINT else "SIG_DFL"
    code = (
        f"import signal; signal.signal({int(number)}, signal.{handler}); "
        "from fpemu.analysis.cli import main; main(prog_name='fpemu')"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code, "run", "--every", "1", "train.py", "wait", "1"],
        env=os.environ | {"PYTHONPATH": str(Path(fpemu.__file__).parents[1])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while "step 3" not in started.stdout.readline():
            assert started.poll() is None
        time.sleep(0.2)
        started.send_signal(number)
        _, error = started.communicate(timeout=240)
    finally:
        started.kill()
    assert started.returncode == 128 + number, error
    assert "wrote" in error
    assert facts(folder)["verdict"]["status"] == "safe"


def test_fail_on_makes_the_exit_code_one(folder: Path):
    done = fpemu_run("--to", "float16", "--fail-on", "nan", "train.py", "on", "4e4")
    assert done.exit_code == 0
    done = fpemu_run("--to", "float16", "--fail-on", "overflow", "train.py", "on", "4e4")
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 5
    assert "--fail-on: overflow in float16 at step 3, forward, in " in done.stderr
    cause = facts(folder)["first_causes"][0]
    assert (cause["step"], cause["phase"], cause["to"]) == (3, "forward", "float16")
    assert cause["source"].startswith("train.py:")
    done = fpemu_run("--to", "float16", "--fail-on", "overflow", "train.py", "exit", "4e4")
    assert done.exit_code == 7  # the script's own code stands


def test_stop_on_stops_the_script(folder: Path):
    done = fpemu_run("--to", "float16", "--stop-on", "overflow", "train.py", "on", "4e4")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["step 0", "step 1", "step 2"]
    assert done.stderr.startswith("fpemu: --stop-on: overflow in float16 at step 3, forward, in ")
    assert "Traceback" not in done.stderr
    assert "before it" in done.stderr
    assert len(facts(folder)["first_causes"]) == 1


def test_a_script_under_a_policy(folder: Path):
    pytest.importorskip("fpemu.torch.emulation", reason="emulation is not there")
    done = fpemu_run("--emulate", "torch.autocast.cuda.float16", "train.py", "on", "1")
    assert done.exit_code == 0, done.output
    trace = Trace.load("fpemu-run/run.fpemu")
    assert trace.metadata["policy"] == "torch.autocast.cuda.float16"
    layer = next(r for r in trace.records(name="0.fc", kind="activation"))
    assert layer.tally.outcome("float16").subnormal == 0
    rounded = layer.tally.histogram[:, 120:, :]  # float16 has 10 mantissa bits: few slots
    assert rounded.sum()
    assert layer.moments.amax == float(fpemu.round(layer.moments.amax, "float16"))
    assert fpemu_run("--emulate", "nothing", "train.py", "on", "1").exit_code != 0


def test_a_script_without_a_model(folder: Path):
    (folder / "plain.py").write_text("print('hello')\n")
    done = fpemu_run("plain.py")
    assert done.exit_code == 0
    assert done.stdout == "hello\n"
    assert "nothing was recorded" in done.stderr
    assert facts(folder)["verdict"]["status"] == "no_data"


def test_tensors_that_cannot_be_counted_do_not_stop_a_script(folder: Path):
    text = SCRIPT.replace("x + self.fc(x)", "torch.fft.ifft(torch.fft.fft(x + self.fc(x))).real")
    (folder / "train.py").write_text(text)
    done = fpemu_run("--every", "1", "train.py", "on", "1")
    assert done.exit_code == 0, done.output
    left_out = Trace.load("fpemu-run/run.fpemu").metadata["not_watched"]
    assert any("complex" in why for why in left_out.values())


def test_processes_of_torchrun_write_files_of_their_own(folder: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert fpemu_run("train.py", "on", "1").exit_code == 0
    assert (folder / "fpemu-run" / "run-rank1.fpemu").exists()


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["missing.py"], "is not there"),
        (["."], "is a folder"),
        (["--to", "float17", "train.py"], "float17"),
        (["--out", "train.py", "train.py"], "cannot write to folder"),
    ],
)
def test_bad_input_runs_nothing(folder: Path, args, match):
    done = fpemu_run(*args)
    assert done.exit_code != 0
    assert not done.stdout
    assert match in str(done.exception) + done.stderr


def test_a_trace_that_no_watch_recorded_is_not_replaced(folder: Path):
    os.mkdir("fpemu-run")
    with Trace.create("fpemu-run/run.fpemu"):
        pass
    done = fpemu_run("train.py", "on", "1")
    assert "would be replaced" in str(done.exception)


def test_run_script_restores_what_it_changed(folder: Path):
    (folder / "odd.py").write_text("import sys; sys.argv.append('x'); sys.path.append('y')")
    before = list(sys.argv), list(sys.path), signal.getsignal(signal.SIGTERM)
    assert run_script("odd.py", ["a"]).code == 0
    assert (sys.argv, sys.path, signal.getsignal(signal.SIGTERM)) == before


PLACES = """
import os, sys, pickle
import torch
class Local: pass
model = torch.nn.Linear(2, 1)
model(torch.ones(1, 2)).sum().backward()
pickle.dumps(Local())
print(sys.argv[0], os.path.isabs(__file__), sys.modules["__main__"].Local is Local)
os.mkdir("elsewhere"); os.chdir("elsewhere")
"""


def test_a_script_may_leave_its_folder(folder: Path):
    (folder / "leave.py").write_text(PLACES)
    main = sys.modules["__main__"]
    done = fpemu_run("leave.py")
    os.chdir(folder)
    assert (done.exit_code, done.stdout) == (0, "leave.py True True\n"), done.stderr
    assert "wrote fpemu-run/report.html" in done.stderr
    assert facts(folder)["verdict"]["status"] == "safe"
    assert sys.modules["__main__"] is main


def test_what_is_no_python_is_told_as_python_tells_it(folder: Path):
    (folder / "odd.py").write_text("x = (\n")
    done = fpemu_run("odd.py")
    assert done.exit_code == 1
    said = done.stderr.partition("fpemu: nothing")[0].splitlines()
    assert said[0] == f'  File "{folder / "odd.py"}", line 1'
    assert said[-1] == "SyntaxError: '(' was never closed"


def test_making_a_model_is_no_step_of_it(folder: Path):
    assert fpemu_run("train.py", "on", "1").exit_code == 0
    trace = Trace.load("fpemu-run/run.fpemu")
    assert not [name for name in trace.names() if "uniform" in name]
    (folder / "make.py").write_text("import torch; torch.nn.Linear(2, 2)\n")
    assert "nothing was recorded" in fpemu_run("make.py").stderr
