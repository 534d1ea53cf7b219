"""On a CUDA device: bits, kinds of arrays, streams, sizes. Run with: pytest -m gpu

The comparisons are those of benchmarks/gpu.py, on fewer inputs. The CPU's results, with which
arrays of every kind are compared, are held against the exact definition by the other tests.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_gpu import FORMATS
from on_gpu.instructions import INSTRUCTIONS, Instruction
from on_gpu.libraries import KINDS, NARROW, Kind
from support import assert_same_bits, directed_inputs, wide_range

import fpemu
from fpemu.errors import InputError
from fpemu.scaling import find_recipe, recipes

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"
STEP = 4093  # a prime: a million patterns
CASTS = [
    "float16",
    "bfloat16:rounding=toward_zero",
    "tf32:rounding=nearest_away",
    "float8_e4m3fn:overflow=saturate",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "binary8p4se",
]
X = np.concatenate([wide_range(100_001, seed=8), directed_inputs(fpemu.finfo("float8_e4m3fn"))])


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    from on_gpu.machine import why_not

    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    reason = request.param.why_not()
    if reason:
        pytest.skip(reason)
    found: Kind = request.param
    return found


@pytest.fixture
def torch() -> Any:
    from on_gpu.frameworks import why_no_torch

    reason = why_no_torch()
    if reason:
        pytest.skip(reason)
    return importlib.import_module("torch")


def kind_named(name: str) -> Kind:
    found = next(kind for kind in KINDS if kind.name == name)
    if found.why_not():
        pytest.skip(found.why_not())
    return found


# --- bits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_the_float64_arithmetic_is_exact(name: str) -> None:
    from on_gpu.second import against_exact

    for check in against_exact(name, 20_000):
        assert (check.inputs, check.differences) == (20_000, 0), check


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_round_and_encode_are_the_float64_arithmetic(name: str, special: bool) -> None:
    from on_gpu.inputs import every
    from on_gpu.sweep import sweep

    for check in sweep(name, every(STEP, 1 << 19), special=special):
        assert check.inputs == -(-(2**32) // STEP)
        assert check.differences == 0, check


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_presets_are_the_instructions(instruction: Instruction) -> None:
    from on_gpu.convert import against_instruction
    from on_gpu.inputs import every
    from on_gpu.machine import card

    capability = tuple(card(0)["capability"])
    if capability < instruction.capability:
        pytest.skip(f"capability {capability} lacks {instruction.name}")
    for check in against_instruction(instruction, every(STEP, 1 << 19)):
        assert check.differences == 0, check


@pytest.mark.parametrize("dtype", NARROW)
def test_presets_are_the_casts_of_torch(torch: Any, dtype: str) -> None:
    from on_gpu.frameworks import against_torch

    for check in against_torch(dtype, step=STEP, chunk=1 << 19, device=0):
        assert check.differences == 0, check


# --- kinds of arrays -----------------------------------------------------------------------------


@pytest.mark.parametrize("to", CASTS)
def test_every_kind_of_array_gets_the_bits_of_the_cpu(kind: Kind, to: str) -> None:
    x = X[:-1].reshape(2, -1) if X.size % 2 else X.reshape(2, -1)
    there = kind.put(x)
    rounded = fpemu.round(there, to)
    assert isinstance(rounded, kind.result())
    assert tuple(rounded.shape) == x.shape
    assert_same_bits(kind.get(rounded), fpemu.round(x, to), x, to)
    codes = fpemu.encode(there, to)
    assert_same_bits(kind.get(codes), fpemu.encode(x, to), x, to)
    form = fpemu.cast.make_cast(to).format
    assert_same_bits(kind.get(fpemu.decode(codes, form)), fpemu.decode(kind.get(codes), form))


def test_float64_is_rounded_once(kind: Kind) -> None:
    x = np.random.default_rng(1).integers(0, 2**64, 10_000, np.uint64).view(np.float64)
    x = np.concatenate([x, directed_inputs(fpemu.finfo("float16"), np.float64)])
    if kind.name == "jax":
        jax: Any = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
    try:
        for to in ("float16", "float8_e5m2:rounding=up"):
            got = fpemu.round(kind.put(x), to)
            assert_same_bits(kind.get(got), fpemu.round(x, to), x, to)
    finally:
        if kind.name == "jax":
            jax.config.update("jax_enable_x64", False)


def test_stochastic_bits_are_those_of_the_cpu(kind: Kind) -> None:
    for to, options in (
        ("bfloat16", {"seed": 3}),
        ("float8_e4m3fn", {"seed": 2**64 - 1, "offset": 2**32 - 50_000}),
        ("float16", {"seed": 0, "random_bits": 13}),
    ):
        options["rounding"] = "stochastic"
        got, want = fpemu.round(kind.put(X), to, **options), fpemu.round(X, to, **options)
        assert_same_bits(kind.get(got), want, X, f"{to} {options}")
        got, want = fpemu.encode(kind.put(X), to, **options), fpemu.encode(X, to, **options)
        assert_same_bits(kind.get(got), want, X, f"{to} {options}")


def test_tallies_and_counts_are_those_of_the_cpu(kind: Kind) -> None:
    random = np.random.default_rng(2)
    normal = random.standard_normal(200_003, np.float32)
    for x in (X, normal, np.maximum(normal, 0), np.float32(1e-39) * normal, X[:0], X[:1], -X[:7]):
        assert fpemu.tally(kind.put(x)) == fpemu.tally(x)
        rounded, outcome = fpemu.round(kind.put(x), "e4m3fn", count=True)
        want, counted = fpemu.round(x, "e4m3fn", count=True)
        assert outcome == counted
        assert_same_bits(kind.get(rounded), want, x)


def test_results_are_written_to_out(kind: Kind) -> None:
    if not kind.writable:
        pytest.skip(f"{kind.name}: no array of its own kind can be written to")
    there, out = kind.put(X), kind.put(np.zeros_like(X))
    assert fpemu.round(there, "float16", out=out) is out
    assert_same_bits(kind.get(out), fpemu.round(X, "float16"), X)
    assert fpemu.round(there, "bfloat16", out=there) is there
    assert_same_bits(kind.get(there), fpemu.round(X, "bfloat16"), X)
    codes = kind.put(np.zeros(X.size, np.uint8))
    assert fpemu.encode(out, "e5m2", out=codes) is codes
    assert_same_bits(kind.get(codes), fpemu.encode(fpemu.round(X, "float16"), "e5m2"))


@pytest.mark.parametrize("name", recipes)
def test_recipes_give_the_bits_of_the_cpu(name: str) -> None:
    """Codes, scales and values along both axes; blocks are cut short at an end."""
    kind, recipe = kind_named("numba"), find_recipe(name)
    width = 320 if recipe.rotation else 300
    x = np.resize(X[np.isfinite(X)], (320, width))
    x[0, :3] = np.nan, np.inf, -0.0
    x[64:200, 40:180] = 0
    for axis in (-1, 0):
        there, want = recipe.quantize(kind.put(x), axis=axis), recipe.quantize(x, axis=axis)
        codes, scales = kind.get(there.codes), kind.get(there.scales)
        finite = np.isfinite(want.dequantize()) & np.isfinite(x)  # a NaN's sign may be another
        assert_same_bits(codes[finite], want.codes[finite], x[finite], name)
        assert_same_bits(scales, want.scales)
        assert_same_bits(kind.get(there.dequantize()), want.dequantize(), x)
        assert_same_bits(kind.get(recipe.round(kind.put(x), axis=axis)),
                         recipe.round(x, axis=axis), x)  # fmt: skip


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "te.block.weight", "torchao.float8.rowwise"])
def test_recipes_take_every_kind_of_array(kind: Kind, name: str) -> None:
    recipe = find_recipe(name)
    x = np.random.default_rng(3).standard_normal((130, 260), np.float32)
    want = recipe.quantize(x, packed=True)
    there = recipe.quantize(kind.put(x), packed=True)
    assert_same_bits(kind.get(there.codes), want.codes)
    assert_same_bits(kind.get(there.scales), want.scales)
    assert_same_bits(kind.get(there.dequantize()), want.dequantize())
    drawn = find_recipe(f"{recipe.block} exponent fp4:overflow=saturate,rounding=stochastic")
    options = {"seed": 4, "offset": 2**32 - 5000}
    got = drawn.round(kind.put(x), **options)
    assert_same_bits(kind.get(got), drawn.round(x, **options), x)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (1, 1), (5, 7, 3)])
def test_every_shape_is_taken(kind: Kind, shape: tuple[int, ...]) -> None:
    x = np.resize(np.float32([1.1, -2.7, 1e-9, 70000, np.inf]), shape)
    got = fpemu.round(kind.put(x), "e5m2")
    assert isinstance(got, kind.result())
    assert tuple(got.shape) == shape
    assert_same_bits(kind.get(got).reshape(shape), np.asarray(fpemu.round(x, "e5m2")))
    assert tuple(fpemu.encode(kind.put(x), "e5m2").shape) == shape


CUTS: dict[str, Any] = {
    "every second": np.s_[::2],
    "misaligned": np.s_[1:],
    "misaligned and short": np.s_[3:6],
    "turned": np.s_[:, ::3],
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_views_are_taken(kind: Kind, cut: Any) -> None:
    x = X[:90_000].reshape(300, 300).T if isinstance(cut, tuple) else X
    x = x[cut]
    dense = x.flags.c_contiguous
    if kind.name in ("interface", "dlpack", "jax"):
        pytest.skip(f"{kind.name}: views are made by its owner's kind")
    base = kind.put(X[:90_000].reshape(300, 300) if isinstance(cut, tuple) else X)
    there = (base.T if isinstance(cut, tuple) else base)[cut]
    if not kind.strided and not dense:
        with pytest.raises(InputError, match="contiguous"):
            fpemu.round(there, "e4m3fn")
        return
    for options in ({}, {"rounding": "stochastic", "seed": 5}):
        got = kind.get(fpemu.round(there, "e4m3fn", **options))
        assert_same_bits(got, fpemu.round(np.ascontiguousarray(x), "e4m3fn", **options), x)
    assert fpemu.tally(there) == fpemu.tally(np.ascontiguousarray(x))


def test_numbers_of_other_words_are_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match="int32"):
        fpemu.round(kind.put(np.arange(4, dtype=np.int32)), "e4m3fn")


# --- PyTorch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_tensors_keep_their_dtype_where_it_holds_the_result(torch: Any, dtype: str) -> None:
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    words = np.arange(1 << (8 * own.itemsize), dtype=np.uint32).astype(f"u{own.itemsize}")
    x = words.view(own)
    kind = kind_named("torch")
    for to in ("float4_e2m1fn", "float8_e4m3fn", "bfloat16", "float32"):
        got, want = fpemu.round(kind.put(x), to), fpemu.round(x, to)
        assert str(got.dtype) == f"torch.{want.dtype.name}"
        assert got.device == kind.put(x).device
        assert_same_bits(kind.get(got), want, x, to)
    assert fpemu.tally(kind.put(x)) == fpemu.tally(x)


def test_work_is_done_in_the_current_stream(torch: Any) -> None:
    """The tensor is only filled after a long wait in the stream; another stream would be early."""
    want = torch.from_numpy(np.asarray(fpemu.round(np.full(100_000, 1.1, np.float32), "e4m3fn")))
    stream = torch.cuda.Stream()
    x = torch.zeros(100_000, device="cuda")
    fpemu.round(x, "e4m3fn")  # compiled before the clock runs
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)  # about half a second
        x.fill_(1.1)
        rounded = fpemu.round(x, "e4m3fn")
        again = rounded.clone()
        assert not stream.query(), "the call waited for the device"
        counted = fpemu.tally(x)
    stream.synchronize()
    assert torch.equal(again.cpu(), want)
    assert counted.zero == 0
    assert counted.total == 100_000


def test_the_result_can_be_used_at_once_in_the_same_stream(torch: Any) -> None:
    for seed in range(20):
        x = torch.randn(1 << 20, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        y = fpemu.round(x * 3, "bfloat16") + 1
        assert torch.equal(y, (x * 3).to(torch.bfloat16).float() + 1)


def test_dense_orders_of_axes_stay(torch: Any) -> None:
    x = torch.randn(4, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    got = fpemu.round(x, "bfloat16")
    assert got.stride() == x.stride()
    assert torch.equal(got, x.to(torch.bfloat16).float())


def test_tensors_of_another_device_are_refused_as_out(torch: Any) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises(InputError, match="another device"):
        fpemu.round(x, "e4m3fn", out=torch.zeros(4))


def test_gradients_are_refused_as_on_the_cpu(torch: Any) -> None:
    with pytest.raises(InputError, match="requires grad"):
        fpemu.round(torch.ones(4, device="cuda", requires_grad=True), "e4m3fn")


def test_every_device_is_used_by_its_own_arrays(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device: a second one is needed")
    x = torch.linspace(-5, 5, 10_001, device="cuda:1")
    assert torch.cuda.current_device() == 0
    rounded = fpemu.round(x, "e5m2")
    assert rounded.device == x.device
    assert torch.equal(rounded, x.to(torch.float8_e5m2).float())
    assert fpemu.tally(x) == fpemu.tally(x.cpu())
    assert torch.cuda.current_device() == 0


# --- other streams and sizes ---------------------------------------------------------------------


def test_cupy_works_in_its_current_stream() -> None:
    kind_named("cupy")
    cupy: Any = importlib.import_module("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1 << 24, cupy.float32)
        for _ in range(20):
            x += 0.1
        rounded = fpemu.round(x, "bfloat16")
        host = rounded.get()
    assert_same_bits(host, fpemu.round(x.get(), "bfloat16"))


def test_arrays_of_numba_are_used_in_their_own_stream() -> None:
    from on_gpu.compare import words_in

    cuda: Any = importlib.import_module("fpemu.kernels.cuda_target").cuda
    stream = cuda.stream()
    x = cuda.to_device(X, stream=stream)
    assert words_in(x).stream == int(stream.handle) != 0
    got = fpemu.round(x, "float16")
    stream.synchronize()
    assert_same_bits(got.copy_to_host(), fpemu.round(X, "float16"), X)


def test_more_than_2_31_elements() -> None:
    """Indices have 64 bits, and random bits go on where a shard would."""
    from on_gpu.compare import words_in
    from on_gpu.inputs import fill
    from on_gpu.machine import free_bytes

    size = (1 << 31) + 5003
    if free_bytes(0) < 3 * 4 * size:  # two arrays, and something to spare
        pytest.skip("less than 24 GiB of the device's memory are free")
    cuda: Any = importlib.import_module("fpemu.kernels.cuda_target").cuda
    words = cuda.device_array(size, np.uint32)
    fill(words_in(words), 12345, 2654435761)
    x = words.view(np.float32)
    out = cuda.device_array(size, np.float32)
    ends = [slice(0, 4001), slice((1 << 31) - 2000, (1 << 31) + 2000), slice(size - 4001, size)]
    for options in ({}, {"rounding": "stochastic", "seed": 9}):
        fpemu.round(x, "e4m3fn", out=out, **options)
        for part in ends:
            at = {"offset": part.start} if options else {}
            given, got = x[part].copy_to_host(), out[part].copy_to_host()
            assert_same_bits(got, fpemu.round(given, "e4m3fn", **options, **at), given, part)
    half = size // 2 + 1
    whole = fpemu.tally(x)
    assert whole.total == size
    assert whole == fpemu.tally(x[:half]) + fpemu.tally(x[half:])
    counted = fpemu.round(x, "e4m3fn", count=True, out=out)[1]
    assert counted == whole.outcome("e4m3fn")


# --- the script ----------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_the_script_finds_no_difference() -> None:
    done = run("--quick", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["checks"]
    assert all(check["inputs"] > 0 and check["differences"] == 0 for check in found["checks"])
    assert all(row["gigabytes_a_second"] > 0 for row in found["speed"])
    assert {"python", "numpy", "numba-cuda", "driver"} <= found["machine"]["versions"].keys()
    assert all(any(name in row["what"] for row in found["speed"]) for name in FORMATS)
