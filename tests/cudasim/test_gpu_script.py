"""What benchmarks/gpu.py does on a GPU, on few inputs in numba's simulator.

The simulator runs no inline assembly and has no clock: conversions of the chip do not run here,
and times mean nothing.
"""

# ruff: noqa: E402  (the target is imported once it is known to be there)

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from second_algorithm import second_codes, second_round
from support import assert_same_bits, directed_inputs, sample

import fpemu

pytestmark = pytest.mark.cudasim
if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("the simulator needs NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda", reason="needs numba-cuda: the extra cuda12 or cuda13")

from numba import cuda
from on_gpu import FORMATS, frameworks, machine, speed
from on_gpu import second as second_module
from on_gpu import sweep as sweep_module
from on_gpu.compare import Check, Comparison
from on_gpu.inputs import ALL, every, given
from on_gpu.second import against_exact, second
from on_gpu.sweep import sweep

#: Every special pattern: they are few, and a sample would miss some.
SPECIAL = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
                    0x7FFFFFFF], np.uint32)  # fmt: skip


def patterns(name: str, count: int) -> np.ndarray:
    directed = sample(directed_inputs(fpemu.finfo(name)), count).view(np.uint32)
    return np.concatenate([SPECIAL, SPECIAL | np.uint32(1 << 31), directed])


@pytest.mark.parametrize("name", FORMATS)
def test_the_float64_arithmetic_gives_the_steps_of_the_second_algorithm(name: str) -> None:
    words = patterns(name, 1500)
    x, cast = words.view(np.float32), fpemu.Cast(name)
    values, codes = second(cuda.to_device(words), cast.format)
    assert_same_bits(values.copy_to_host(), second_round(cast, x), x, name)
    assert_same_bits(codes.copy_to_host(), second_codes(cast, x), x, name)


@pytest.mark.parametrize("name", FORMATS)
def test_the_float64_arithmetic_is_held_against_the_exact_definition(name: str) -> None:
    for check in against_exact(name, 400):
        assert (check.inputs, check.differences, check.first) == (400, 0, ""), check


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("special", [False, True])
def test_round_and_encode_are_swept(name: str, special: bool) -> None:
    words = patterns(name, 180)
    for check in sweep(name, given(words, 128), special=special):  # the last chunk is shorter
        assert (check.inputs, check.differences) == (words.size, 0), check


@pytest.mark.parametrize(
    ("verb", "right", "wrong", "shown"),
    [
        ("round", 2.0, 3.0, "got 0x40400000, want 0x40000000"),
        ("encode", 0x40, 0x41, "got 0x41, want 0x00000040"),
    ],
)
def test_a_wrong_bit_is_found_and_shown(
    verb: str, right: float, wrong: float, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(fpemu, verb)

    def broken(x: object, to: object) -> object:
        array = real(x, to).copy_to_host()
        array[array == right] = wrong
        return cuda.to_device(array)

    monkeypatch.setattr(fpemu, verb, broken)
    words = np.array([0x3F800000, 0x40000000, 0x40000001, 0x40400000], np.uint32)  # 1, 2, 2+, 3
    checks = sweep("float8_e5m2", given(words, 4), special=False)
    found = {c.what.split()[1].strip(","): c for c in checks}
    assert found.keys() == {"round", "encode"}
    good = found[{"round": "encode", "encode": "round"}[verb]]
    assert (good.inputs, good.differences) == (4, 0)
    assert (found[verb].inputs, found[verb].differences) == (4, 2)
    assert found[verb].first == f"input 0x40000000, {shown}"


def test_differences_are_counted_over_chunks_and_nans_are_equal_if_asked() -> None:
    got = np.array([1, 0x7FC00000, 0xFFFFFFFF, 5], np.uint32)
    want = np.array([1, 0x7F800001, 0x7F800000, 6], np.uint32)
    inputs = cuda.to_device(np.arange(10, 14, dtype=np.uint32))
    strict, loose = Comparison("strict"), Comparison("loose")
    for _ in range(2):
        strict.add(inputs, cuda.to_device(got), cuda.to_device(want))
        loose.add(inputs, cuda.to_device(got), cuda.to_device(want), nan_above=0x7F800000)
    assert (strict.check().inputs, strict.check().differences) == (8, 6)
    assert (loose.check().inputs, loose.check().differences) == (8, 4)  # infinity is not a NaN
    assert loose.check().first == "input 0x0000000c, got 0xffffffff, want 0x7f800000"


def test_codes_of_different_width_are_compared() -> None:
    inputs = cuda.to_device(np.arange(3, dtype=np.uint32))
    found = Comparison("widths")
    narrow, wide = np.array([1, 0x7F, 0xFF], np.uint8), np.array([1, 0x7F, 0xFE], np.uint32)
    found.add(inputs, cuda.to_device(narrow), cuda.to_device(wide))
    assert (found.check().differences, found.check().first) == (
        1, "input 0x00000002, got 0xff, want 0x000000fe",
    )  # fmt: skip


def test_every_step_is_a_pattern_of_its_own() -> None:
    step = 2**29 + 1
    made = [(start, words.copy_to_host()) for start, words in every(step, 3)]
    assert [start for start, _ in made] == [0, 3, 6]
    got = np.concatenate([words for _, words in made])
    assert_same_bits(got, (np.arange(8, dtype=np.uint64) * step).astype(np.uint32))
    assert 7 * step < ALL <= 8 * step
    ((_, first),) = every(1, 64, 50)
    assert_same_bits(first.copy_to_host(), np.arange(50, dtype=np.uint32))


@pytest.mark.parametrize("case", list(speed.cases()), ids=lambda case: case.what)
def test_every_case_of_the_speed_table_runs(case: speed.Case) -> None:
    n = 40
    arrays = speed.allocate(n)
    arrays.x[:] = np.linspace(-3, 3, n, dtype=np.float32)
    if case.fixed:
        case.call(arrays, n)  # seconds a call here: once is enough
        return
    (row,) = speed.measure(case, arrays, 1)
    moved = {"round": 8, "encode": 4, "decode": 4}[case.what.split()[0]]
    assert row.elements == (n // 2 if "float64" in case.what else n)
    assert moved * n <= row.bytes <= 8 * n, row
    assert row.to_json()["gigabytes_a_second"] > 0


def test_a_fixed_cost_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def seconds(call) -> float:
        before = len(sizes)
        call()
        return 7.0 + sizes[-1] if len(sizes) > before else 1.0 + sizes[-1] / 2  # a copy: no size

    monkeypatch.setattr(speed, "_seconds", seconds)
    case = speed.Case("any", 8, lambda arrays, n: sizes.append(n), fixed=True)
    whole, lean = speed.measure(case, speed.allocate(100), 3)
    assert (whole.elements, whole.bytes, whole.seconds, whole.copy_seconds) == (100, 800, 107, 51)
    assert (lean.elements, lean.bytes, lean.seconds, lean.copy_seconds) == (50, 400, 50, 25)
    assert (whole.share, lean.share) == (51 / 107, 0.5)


def test_the_size_is_a_power_of_two_that_fits() -> None:
    for free in (2**24, 10**9, 139 * 2**30):
        n = speed.elements(free)
        assert n.bit_count() == 1
        assert n == 2**16 or 24 * n <= free // 2
    assert speed.elements(139 * 2**30) == 2**29


def test_data_is_what_its_name_says() -> None:
    normal, relu, wide = (speed.data(kind, 4096) for kind in ("normal", "relu", "wide"))
    assert {x.dtype for x in (normal, relu, wide)} == {np.dtype(np.float32)}
    assert 0.45 < (relu == 0).mean() < 0.55
    assert 0.98 < normal.std() < 1.02
    assert np.isfinite(wide).all()
    assert np.ptp(np.frexp(wide)[1]) > 80


# --- the script itself ---------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/gpu.py on a machine that is made up, with few inputs and a clock that stands."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_script", path)
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setattr("sys.path", list(sys.path))  # the script adds to it
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    facts = {"card": "none", "capability": [7, 0], "processors": 1, "memory_bytes": 2**30,
             "free_bytes": 2**24}  # fmt: skip
    monkeypatch.setattr(machine, "why_not", lambda: "")
    monkeypatch.setattr(machine, "card", lambda device: facts)
    monkeypatch.setattr(frameworks, "why_no_torch", lambda: "not here")
    monkeypatch.setattr(module, "QUICK_STEP", ALL // 20)
    exact = second_module.against_exact
    monkeypatch.setattr(second_module, "against_exact", lambda name, count: exact(name, 30))
    monkeypatch.setattr(speed, "elements", lambda free, most: 16)
    monkeypatch.setattr(speed, "_seconds", lambda call: 0.001)
    return module


def test_it_prints_every_comparison_and_every_row(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--quick"]) == 0
    said = capsys.readouterr().out
    assert "30 comparisons, 0 with differences, 0 parts failed" in said
    assert "cvt.rn.f16.f32: compute capability 7.5 and later have it" in said
    assert "PyTorch's casts: not here" in said
    for case in speed.cases():
        assert f"  {case.what} " in said


def test_json_goes_to_stdout_alone(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--quick", "--json", "--no-speed"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "schema", "machine", "checks", "not_compared", "failed", "speed", "seconds",
    }  # fmt: skip
    assert len(found["checks"]) == 30
    assert found["speed"] == []
    assert found["machine"]["versions"]["numpy"] == np.__version__


def test_a_difference_is_exit_code_1(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_wrong(name: str, chunks: object, *, special: bool) -> list[Check]:
        return [Check(name, 20, int(name == "tf32" and special), "input 0x00000001")]

    monkeypatch.setattr(sweep_module, "sweep", one_wrong)
    assert script.main(["--quick", "--no-speed"]) == 1
    said = capsys.readouterr().out
    assert "1 with differences" in said
    assert "first: input 0x00000001" in said


def test_a_part_that_breaks_is_exit_code_1_and_the_others_go_on(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(name: str, chunks: object, *, special: bool) -> list[Check]:
        raise RuntimeError("no\nmemory")

    monkeypatch.setattr(sweep_module, "sweep", breaks)
    assert script.main(["--quick", "--no-speed"]) == 1
    said = capsys.readouterr()
    assert "failed: tf32: sweep: RuntimeError: no memory" in said.out
    assert "10 comparisons, 0 with differences, 10 parts failed" in said.out
    assert "Traceback" in said.err


def test_a_card_that_is_not_there_is_exit_code_2(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--device", "7"]) == 2
    assert "--device 7" in capsys.readouterr().err


def test_the_simulator_is_not_taken_for_a_gpu() -> None:
    assert "simulator" in machine.why_not()
