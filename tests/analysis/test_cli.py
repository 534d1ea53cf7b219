"""The command line: exit codes, one-line refusals, and numbers computed in another way."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import fpemu
from fpemu.analysis import cli
from fpemu.analysis.cli import COMMANDS, main
from fpemu.analysis.formats import facts
from fpemu.analysis.formats.sheet import nan_codes
from fpemu.analysis.number import explain, read_number
from fpemu.analysis.number.text import bit_fields
from fpemu.analysis.trace import Trace
from fpemu.analysis.typed import read_scale
from fpemu.cast import make_cast
from fpemu.errors import InputError
from fpemu.rounding import Real, value_of

ROOT = Path(fpemu.__file__).parents[1]

# what shares no code with fpemu: ml_dtypes' and numpy's own types
PEERS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float6_e2m3fn": ml_dtypes.float6_e2m3fn,
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
}


def call(*args: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, list(args))


def said(*args: str) -> Any:
    result = call(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def process(*args: str, **environment: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "fpemu.analysis.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths} | environment,
    )


# --- the group ---------------------------------------------------------------------------------


def test_help_names_every_command_without_loading_one() -> None:
    script = (
        "import sys\n"
        "from fpemu.analysis.cli import main\n"
        "try:\n    main(['--help'], prog_name='fpemu')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'numpy', 'numba', 'matplotlib', 'rich', 'jinja2', 'ml_dtypes'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert line[:40] in done.stdout
    assert done.stdout.endswith("loaded []\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_agrees_with_its_line(name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert f"fpemu {name}" in result.stdout or f"main {name}" in result.stdout
    assert result.stdout == call(name, "-h").stdout


def test_no_command_prints_the_help() -> None:
    result = call()
    assert result.exit_code == 0
    assert result.stdout == call("--help").stdout


def test_version() -> None:
    assert call("--version").stdout == f"fpemu, version {fpemu.__version__}\n"


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (["nosuch"], "nosuch"),
        (["--nosuch"], "--nosuch"),
        (["formats", "--nosuch"], "--nosuch"),
        (["formats", "fp17"], "did you mean"),
        (["formats", "e4m3"], "ambiguous"),
        (["formats", "binary99p3"], "3 to 15 bits"),
        (["round", "1"], "--to"),
        (["round", "--nosuch", "--to", "fp16"], "--nosuch"),
        (["round", "1", "2", "--to", "fp16"], "2"),
        (["round", "abc", "--to", "fp16"], "'abc'"),
        (["round", "1", "--to", "fp17"], "did you mean"),
        (["round", "1", "--to", "fp16:sideways"], "sideways"),
        (["round", "1", "--to", "fp16", "--rounding", "sideways"], "sideways"),
        (["round", "1", "--to", "fp16", "--rounding", "stochastic"], "stochastic"),
        (["demo", "--to", "fp17"], "did you mean"),
        (["demo", "--to", "e5m2:stochastic"], "stochastic"),
        (["demo", "--steps", "0"], "--steps"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--loss-scale", "3"], "power of two"),
        (["demo", "--inject", "hiden1:3"], "did you mean 'hidden1'"),
        (["demo", "--inject", "720"], "0 to 719"),
        (["report", "/no/such/trace"], "/no/such/trace"),
    ],
)
def test_refusals_are_one_line_and_exit_code_2(
    args: list[str], needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("fpemu: ")
    assert needed in line


def test_interruption_is_130_and_nothing_is_left_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fpemu.analysis.demo.experiment.run", interrupted)
    result = call("demo", "--out", str(tmp_path / "out"))
    assert result.exit_code == 130
    assert result.stderr.strip() == "fpemu: interrupted"
    assert list((tmp_path / "out").iterdir()) == []


def test_errors_inside_a_command_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a fault of fpemu's own")

    monkeypatch.setattr("fpemu.analysis.formats.sheet.facts", broken)
    assert isinstance(call("formats", "--json").exception, RuntimeError)


def test_a_closed_pipe_is_quiet() -> None:
    with process("formats", "--json") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # before it has written anything
        assert child.stderr.read() == b""
        assert child.wait(60) == 141


def test_a_terminal_without_unicode_gets_ascii() -> None:
    with process("round", "0.1", "--to", "fp16", PYTHONIOENCODING="ascii") as child:
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert b"0x2e66" in out
    assert max(out) < 128


def test_main_can_be_called_as_a_function() -> None:
    main(["formats", "fp4"], standalone_mode=False)
    with pytest.raises(fpemu.FpemuError):
        main(["formats", "nosuch"], standalone_mode=False)
    assert cli.__all__ == ["main"]


# --- what is typed -----------------------------------------------------------------------------


def test_casts_are_read_by_format_rules_and_preset() -> None:
    assert make_cast("fp16") == fpemu.Cast("float16")
    assert make_cast("e5m2:up,overflow=saturate").rounding is fpemu.Rounding.UP
    for name, cast in fpemu.casts.items():
        assert make_cast(name) == cast


@pytest.mark.parametrize("text", ["1", "1024", "2^10", "2**10", "0.125", "2^-3", "1e0"])
def test_scales_are_read(text: str) -> None:
    assert read_scale(text) == eval(text.replace("^", "**"))


@pytest.mark.parametrize("text", ["0", "-1", "3", "2^101", "2^", "nan", "inf", "x", "1e400", ""])
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="power of two"):
        read_scale(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("-.5", Fraction(-1, 2)),
        ("+3.", Fraction(3)),
        ("6e-8", Fraction(6, 10**8)),
        ("1E+3", Fraction(1000)),
        ("1/3", Fraction(1, 3)),
        ("-22/7", Fraction(-22, 7)),
        ("0x1.8p3", Fraction(12)),
        ("-0X.8", Fraction(-1, 2)),
        ("0xFFp-8", Fraction(255, 256)),
        ("1e-9999", Fraction(1, 10**9999)),
        (" 65504 ", Fraction(65504)),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction) -> None:
    found = read_number(text)
    assert Fraction(found.numerator, found.denominator) * (-1 if found.sign else 1) == value


@given(st.floats(allow_nan=False))
def test_floats_are_read_back_from_either_notation(x: float) -> None:
    for text in (repr(x), x.hex()):
        found = read_number(text)
        assert float(found) == x
        assert found.sign == (math.copysign(1, x) < 0)


def test_special_numbers_are_read() -> None:
    assert read_number("-inf") == Real(1, 1, 0)
    assert read_number("Infinity") == Real(0, 1, 0)
    assert read_number("NaN") == Real(0, 0, 0)
    assert read_number("-0") == Real(1, 0, 1)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "e5", "1e", "1e99999", "0x", "0x.", "0xg", "1/0", "1/00", "1/-2", "1.5/2", "1_0",
     "١", "²", "1 2", "--1", "9" * 1001, "0x1p999999", "nano"],
)  # fmt: skip
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be a number"):
        read_number(text)


# --- fpemu round -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_round_says_what_other_libraries_say(name: str) -> None:
    rng = np.random.default_rng(7)
    dtype = PEERS[name]
    bits = fpemu.finfo(name).bits
    for x in rng.normal(0, 1, 40).astype(np.float32) * 2.0 ** rng.integers(-12, 12, 40):
        expected = np.asarray(np.float32(x)).astype(dtype)
        found = explain(read_number(repr(float(x))), fpemu.Cast(name))
        code = int(expected.view(f"u{expected.itemsize}")) & ((1 << bits) - 1)
        if np.isnan(expected.astype(np.float32)):  # every NaN counts as equal
            assert found.value.is_nan
        else:
            assert found.result.code == code, (name, x)
            assert float(found.value) == float(expected.astype(np.float32))


def test_round_takes_the_number_exactly_and_not_its_nearest_float64() -> None:
    tie = 1 + Fraction(1, 2**11)  # between 1 and 1 + 2^-10: to the even code, 1
    assert said("round", "1.00048828125", "--to", "fp16")["value"] == 1.0
    assert float(tie + Fraction(1, 10**30)) == float(tie)
    above = said("round", "1.000488281250000000000000000001", "--to", "fp16")
    assert above["value"] == 1 + 2**-10
    assert said("round", "0.1", "--to", "float32")["error"]["absolute"] == pytest.approx(
        float(Fraction(float(np.float32(0.1))) - Fraction(1, 10)), rel=1e-15
    )


@pytest.mark.parametrize("name", ["float16", "e4m3fn", "e5m2", "fp4", "e3m2", "e4m3fnuz",
                                  "binary8p4se", "binary5p3ue", "e8m0"])  # fmt: skip
def test_neighbours_are_the_next_values_of_the_format(name: str) -> None:
    form = fpemu.finfo(name)
    cast = fpemu.Cast(form)
    values = fpemu.values(form)
    finite = np.unique(values[np.isfinite(values)]).astype(float).tolist()
    picked = np.unique(np.linspace(0, len(finite) - 2, 60).astype(int))
    for low, high in ((finite[i], finite[i + 1]) for i in picked):
        between = Fraction(low) + (Fraction(high) - Fraction(low)) / 3
        found = explain(Real(int(between < 0), abs(between.numerator), between.denominator), cast)
        assert found.below is not None
        assert found.above is not None
        assert (float(found.below.value), float(found.above.value)) == (low, high)
        assert found.below.distance == between - Fraction(low)
        assert found.up_chance == Fraction(1, 3)
        assert value_of(form, found.above.code) == found.above.value
        on = explain(read_number(high.hex()), cast)
        assert on.exact
        assert on.error == 0
        assert on.below is not None
        assert float(on.below.value) == low
        assert on.above is None if high == finite[-1] else float(on.above.value) > high  # type: ignore[union-attr]


@pytest.mark.parametrize("x", [0.1, -0.3, 1e-7, 3e-8, 60000.0, 1.0, -2049.0])
def test_ulp_errors_are_numpys_spacing(x: float) -> None:
    found = explain(read_number(repr(x)), fpemu.Cast("float16"))
    near = abs(np.float16(x))
    below = near if float(near) <= abs(x) else np.nextafter(near, np.float16(0))
    spacing = float(np.spacing(below))
    assert found.ulp == Fraction(spacing)
    error = abs(Fraction(float(np.float16(x))) - Fraction(repr(x)))
    assert found.error == error
    assert found.ulp_error == error / Fraction(spacing)


def test_round_shows_code_bits_and_neighbours() -> None:
    shown = call("round", "0.1", "--to", "fp16").stdout
    for needed in ("0.0999755859375", "0x2e66", "│ 0 1 0 1 1 │ 1 0 0 1 1 0 0 1 1 0 │",
                   "1 + 614/1024", "0.10003662109375", "0.4 ulp", "40 % above"):  # fmt: skip
        assert needed in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16", "e8m0", "fp4", "binary15p8ue"])
@pytest.mark.parametrize("number", ["1/3", "-1e-46", "7e40", "nan", "-inf", "-0", "1e-9999"])
def test_round_fits_a_terminal_of_80_columns(name: str, number: str) -> None:
    result = call("round", number, "--to", name)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout


@pytest.mark.parametrize("name", fpemu.formats)
def test_bit_fields_are_the_code(name: str) -> None:
    form = fpemu.finfo(name)
    for code in (0, 1, form.max_code, (1 << form.bits) - 1):
        fields = bit_fields(form, code)
        assert "".join(fields.values()) == f"{code:0{form.bits}b}"
        assert len(fields["exponent"]) == form.exponent_bits
        assert len(fields.get("fraction", "")) == form.mantissa_bits


def test_round_takes_rules_and_negative_numbers() -> None:
    assert said("round", "-500", "--to", "e4m3fn", "--overflow", "saturate")["value"] == -448.0
    assert said("round", "-500", "--to", "e4m3fn")["value"] == "nan"
    assert said("round", "-inf", "--to", "e5m2")["value"] == "-inf"
    assert said("round", "-1.1", "--to", "e5m2", "--rounding", "up")["value"] == -1.0
    assert said("round", "1e-5", "--to", "fp16", "--subnormals", "flush")["outcome"] == "underflow"
    assert said("round", "-4", "--to", "e8m0", "--negative", "abs")["value"] == 4.0
    assert said("round", "1e400", "--to", "fp16")["below"]["distance"].startswith("1.0000")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from(list(PEERS)))
def test_other_roundings_surround_the_number(x: float, name: str) -> None:
    found = explain(read_number(repr(x)), fpemu.Cast(name))
    values = {mode.value: float(value_of(found.cast.format, result.code))
              for mode, result in found.others.items()}  # fmt: skip
    form = found.cast.format
    if form.min <= x <= form.max:
        assert values["down"] <= x <= values["up"]
        assert abs(values["toward_zero"]) <= abs(x)
        assert values["nearest_even"] in (values["down"], values["up"])
        assert found.ulp_error is not None
        assert found.ulp_error <= Fraction(1, 2)


# --- fpemu formats -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_formats_say_what_finfo_of_other_libraries_says(name: str) -> None:
    found = said("formats", name)
    peer = np.finfo(PEERS[name]) if name == "float16" else ml_dtypes.finfo(PEERS[name])
    assert found["max"] == float(peer.max)
    assert found["min"] == float(peer.min)
    assert found["smallest_normal"] == float(peer.smallest_normal)
    assert found["smallest_subnormal"] == float(peer.smallest_subnormal)
    assert found["eps"] == float(peer.eps)
    assert found["bits"] == peer.bits
    codes = np.arange(1 << found["bits"], dtype=f"u{np.dtype(PEERS[name]).itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs among the codes
        values = codes.view(PEERS[name]).astype(np.float64)
    assert found["values"] == len(np.unique(values[np.isfinite(values)]))
    assert found["inf"] == bool(np.isinf(values).any())
    nans = np.flatnonzero(np.isnan(values)).tolist()
    assert set(found["codes"]["nan"]) <= set(nans)
    assert (found["codes"]["nan"] == []) == (nans == [])
    assert values[found["codes"]["one"]] == 1.0


def test_nan_codes_are_the_ends_of_what_decodes_to_nan() -> None:
    for form in [*fpemu.formats.values(), fpemu.p3109(8, 3), fpemu.p3109(6, 3, signed=False)]:
        if form.bits > 16:
            continue
        nans = [code for code in range(1 << form.bits) if value_of(form, code).is_nan]
        named = nan_codes(form)
        assert set(named) <= set(nans)
        runs = [list(run) for _, run in itertools.groupby(enumerate(nans), lambda p: p[1] - p[0])]
        ends = [code for run in runs for code in dict.fromkeys((run[0][1], run[-1][1]))]
        assert named == ends


def test_same_values_means_the_same_values() -> None:
    found = facts(fpemu.finfo("e4m3fnuz"))
    assert found["same_values_as"] == ["binary8p4sf"]
    assert facts(fpemu.finfo("binary8p3sf"))["same_values_as"] == ["float8_e5m2fnuz"]
    for name in fpemu.formats:
        form = fpemu.finfo(name)
        for other in facts(form)["same_values_as"]:
            a, b = fpemu.values(form), fpemu.values(fpemu.finfo(other))
            assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_of_formats_fits_and_is_whole(columns: int) -> None:
    shown = call("formats", columns=columns).stdout
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown
    for name in fpemu.formats:
        [line] = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
        form = fpemu.finfo(name)
        assert f"{form.exponent_bits}+{form.mantissa_bits}" in line
        assert ("inf" in line) == form.inf
        assert ("NaN" in line) == form.has_nan


@pytest.mark.parametrize("name", [*fpemu.formats, "binary3p1se", "binary15p8ue", "binary8p8uf"])
def test_one_format_fits_and_names_its_codes(name: str) -> None:
    result = call("formats", name)
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    form = fpemu.finfo(name)
    assert f"0x{form.max_code:0{-(-form.bits // 4)}x}" in shown
    assert f"{form.emin} to {form.emax}" in shown


def test_small_formats_list_their_values() -> None:
    assert "0.5 1 1.5 2 3 4 6" in call("formats", "fp4").stdout


def test_all_formats_as_json() -> None:
    assert [row["name"] for row in said("formats")] == list(fpemu.formats)


# --- fpemu demo --------------------------------------------------------------------------------


def test_demo_end_to_end(tmp_path: Path) -> None:
    with process("demo", "--quick", "--json", "--out", str(tmp_path / "demo")) as child:
        out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert err == b""  # no progress bar where there is no terminal
    found = json.loads(out)
    assert found["verdict"]["status"] == "safe_with_loss_scale"
    assert [row["run"] for row in found["runs"]] == ["float32", "float16", "float16"]
    assert min(row["test_accuracy_percent"] for row in found["runs"]) > 90
    assert all(Path(file).stat().st_size for file in found["files"])
    trace = Trace.load(tmp_path / "demo" / "run.fpemu")
    lost = {(row["name"], row["kind"], row["scale"]): row["outcome"] for row in found["lost"]}
    total = trace.total("output", "activation_gradient")
    assert lost["output", "activation_gradient", 1.0] == total.outcome("float16").to_json()
    assert lost["output", "activation_gradient", 1.0]["underflow"] > 1000


def test_demo_prints_runs_losses_verdict_and_files(tmp_path: Path) -> None:
    out = str(tmp_path)
    args = ["demo", "--quick", "--steps", "40", "--inject", "hidden2:11", "--out", out]
    result = call(*args, columns=100)
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    for needed in ("NOT SAFE", "at step 11", "of hidden2 (activation) overflow", "test accuracy",
                   "activation gradients", "report.html", "10.24432/C50P49"):  # fmt: skip
        assert needed in text
    assert max(map(len, result.stdout.splitlines())) <= 100
    names = ["exponents.png", "histogram.png", "report.html", "run.fpemu", "scales.png",
             "underflow.png"]  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_demo_refuses_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = call("demo", "--quick", "--out", str(tmp_path / "taken"))
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("fpemu: cannot write to folder")
    assert "--out" in line
