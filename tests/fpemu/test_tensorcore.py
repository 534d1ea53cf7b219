"""mma gives what the exact definition gives: every chip and format, shapes, special values."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import matrix_units
import numpy as np
import pytest
from support import assert_same_bits

import fpemu
from fpemu import tensorcore
from fpemu.kernels import pool
from fpemu.tensorcore import AlignedSum, Chip, Unit

Array = np.ndarray[Any, Any]

NVIDIA = sorted(matrix_units.NVIDIA)
OTHERS = [("cdna3", form) for form in ("float16", "bfloat16", "tf32", "float8_e4m3fnuz",
                                       "float8_e5m2fnuz")] + [("amx", "bfloat16")]  # fmt: skip


def numbers(shape: tuple[int, ...], form: str, seed: int, spread: float = 4.0) -> Array:
    """Values of a format, spread over binades, with zeros and subnormals among them."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape) * np.exp2(random.normal(0, spread, shape))
    x[random.random(shape) < 0.05] = 0.0
    tiny = random.random(shape) < 0.03
    x[tiny] = fpemu.finfo(form).smallest_subnormal * random.integers(-3, 4, shape)[tiny]
    return fpemu.round(x, form, overflow="saturate").astype(np.float32)


def defined(a: Array, b: Array, c: Array, add: Any) -> Array:
    """The product by the definition: add(row, column, c) for each element."""
    out = np.empty(c.shape, np.float32)
    for i, j in np.ndindex(*c.shape):
        out[i, j] = add(a[i].tolist(), b[:, j].tolist(), float(c[i, j]))
    return out


def check(chip: str, forms: tuple[str, str], out: str, a: Array, b: Array, c: Array,
          promote: int | None = None) -> None:  # fmt: skip
    got = tensorcore.mma(a, b, c, chip=chip, to=forms, out=out, promote=promote)
    if chip == "amx":
        want = defined(a, b, c, matrix_units.amx)
    elif chip == "cdna3":
        want = defined(a, b, c, lambda *x: matrix_units.cdna3(*x, forms))
    else:
        unit = matrix_units.NVIDIA[chip, forms[0], out]
        held = fpemu.round(c, out)
        want = defined(a, b, held, lambda *x: matrix_units.dot(*x, forms, unit, promote))
    assert_same_bits(got, want, what=(chip, forms, out))


# --- bit for bit -----------------------------------------------------------------------------


@pytest.mark.parametrize(("chip", "form", "out"), NVIDIA)
@pytest.mark.parametrize("spread", [0.5, 4.0, 12.0])
def test_the_tensor_cores_are_the_definition(chip: str, form: str, out: str, spread: float) -> None:
    a, b = numbers((3, 75), form, 1, spread), numbers((75, 5), form, 2, spread)
    c = numbers((3, 5), out, 3, spread)
    check(chip, (form, form), out, a, b, c)
    check(chip, (form, form), out, a, b, np.zeros_like(c))


@pytest.mark.parametrize(("chip", "form"), OTHERS)
@pytest.mark.parametrize("spread", [0.5, 4.0, 12.0])
def test_other_matrix_units_are_the_definition(chip: str, form: str, spread: float) -> None:
    a, b = numbers((3, 75), form, 1, spread), numbers((75, 5), form, 2, spread)
    c = numbers((3, 5), "float32", 3, spread)
    check(chip, (form, form), "float32", a, b, c)
    check(chip, (form, form), "float32", a, b, np.zeros_like(c))


@pytest.mark.parametrize(("chip", "form"), [
    (chip, form) for chip, form, out in NVIDIA if form in ("bfloat16", "tf32")
] + [case for case in OTHERS if case[1] in ("bfloat16", "tf32")])  # fmt: skip
def test_exponents_at_both_ends_of_float32(chip: str, form: str) -> None:
    """Overflow and subnormal results, and exponents below the least to which terms are aligned."""
    random = np.random.default_rng(5)
    for low, high in ((-70, -56), (50, 68), (-127, -120), (-75, -60)):
        a = fpemu.round(np.float32(random.standard_normal((4, 20))
                                   * np.exp2(random.integers(low, high, (4, 20)))), form)
        b = fpemu.round(np.float32(random.standard_normal((20, 6))
                                   * np.exp2(random.integers(low, high, (20, 6)))), form)
        c = np.float32(random.standard_normal((4, 6)) * 2.0 ** max(low + high, -140))
        c[0] = 0.0
        c[1] = -0.0
        with np.errstate(over="ignore"):
            check(chip, (form, form), "float32", a, b, c)


@pytest.mark.parametrize(("chip", "form", "out"), NVIDIA)
def test_cancellation_and_signs_of_zero(chip: str, form: str, out: str) -> None:
    a = np.float32([[1, -1, 1, -1], [1, 1, 1, 1], [0, -0.0, 0, 0], [1, 0, 0, 0]])
    b = np.float32([[1, 1.5, 0, -0.0], [1, 1.5, 0, 0], [1, 1.5, 0, -0.0], [1, 1.5, 0, -0.0]])
    for value in (0.0, -0.0, -6.0, 2.0**-14):
        check(chip, (form, form), out, a, b, np.full((4, 4), value, np.float32))
    assert not np.signbit(tensorcore.mma(-a[2:3], b, chip=chip, to=form, out=out)).any()


def test_a_negative_sum_that_is_cut_to_nothing_keeps_its_sign() -> None:
    a, b = np.float32([[2.0**-75]]), np.float32([[-(2.0**-76)]])
    got = tensorcore.mma(a, b, chip="hopper", to="bf16")
    assert got.view(np.uint32).tolist() == [[0x80000000]]
    check("hopper", ("bfloat16", "bfloat16"), "float32", a, b, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(("chip", "form", "out"), NVIDIA)
def test_the_largest_operands_of_all(chip: str, form: str, out: str) -> None:
    """Sums of a whole step of them are the largest integers that there are."""
    most = fpemu.finfo(form).max if form.startswith(("float8", "float16")) else 2.0**60 - 2.0**52
    a, b = np.full((2, 64), most, np.float32), np.full((64, 2), most, np.float32)
    a[1], b[:, 1] = -most, most / 2
    check(chip, (form, form), out, a, b, np.float32([[0.0, 1.0], [-1.0, 3.0]]))


def test_a_processor_that_flushes_subnormals_changes_nothing() -> None:
    """Other libraries set that mode for a whole thread: no float32 subnormal is computed with."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = np.full((2, 8), 2.0**-100, np.float32), np.full((8, 2), 1.5 * 2.0**-40, np.float32)
    c = np.float32([[2.0**-149, -(2.0**-130)], [3 * 2.0**-149, 0.0]])
    tiny = fpemu.round(np.float32([[1e-39, -3e-40]]), "bf16")
    one = np.ones((2, 1), np.float32)

    def results() -> list[Array]:
        found = [tensorcore.mma(a, b, c, chip=chip, to="bf16", threads=1)
                 for chip in ("hopper", "cdna3", "amx")]  # fmt: skip
        found.append(tensorcore.mma(tiny, one, chip="ampere", to="bf16", threads=1))
        found.append(tensorcore.mma(a, b, c, chip="h100", to="e5m2", promote=32, threads=1))
        return [x.view(np.uint32) for x in found]

    want = results()
    assert torch.set_flush_denormal(True)
    try:
        got = results()
    finally:
        torch.set_flush_denormal(False)
    for x, y in zip(got, want, strict=True):
        assert_same_bits(x, y)
    assert 0 < want[3].item() & 0x7FFFFFFF < 0x00800000, "a subnormal result"


# --- NaN, infinity, overflow -----------------------------------------------------------------


@pytest.mark.parametrize(("chip", "form", "out"), [
    case for case in NVIDIA if fpemu.finfo(case[1]).inf
] + [(chip, form, "float32") for chip, form in OTHERS if fpemu.finfo(form).inf])  # fmt: skip
def test_special_operands(chip: str, form: str, out: str) -> None:
    values = [np.nan, np.inf, -np.inf, 0.0, 1.0, -2.0]
    pairs = np.float32(list(itertools.product(values, values)))
    a = np.ascontiguousarray(pairs[:, :1])
    for more in (0.0, np.inf, -np.inf, np.nan, 3.0):
        rows = np.concatenate([a, np.full_like(a, 1.0)], axis=1)
        columns = np.float32([pairs[:, 1], np.full(len(pairs), more)])
        c = np.float32(np.resize([0.0, np.inf, -np.inf, np.nan, 1.0], (len(pairs), len(pairs))))
        check(chip, (form, form), out, rows, columns, c)


def test_every_nan_is_the_chips_own() -> None:
    a = np.array([[0xFFC00001, 0x7F800001, 0x3F800000]], np.uint32).view(np.float32).T
    b = np.float32([[1.0, np.inf, 0.0]])
    got = tensorcore.mma(a, b, chip="hopper", to="bf16").view(np.uint32)
    assert set(got[:2].ravel().tolist()) == {0x7FFFFFFF}
    c = np.full((1, 1), -np.nan, np.float32)
    for promote in (None, 128):
        got = tensorcore.mma([[1.0]], [[1.0]], c, chip="h100", to="e5m2", promote=promote)
        assert got.view(np.uint32).tolist() == [[0x7FFFFFFF]]
    got = tensorcore.mma([[1.0]], [[1.0]], np.inf, chip="h100", to="e5m2")
    assert got.tolist() == [[np.inf]]


def test_overflow_is_infinite() -> None:
    big = np.full((1, 4), 2.0**63, np.float32)
    got = tensorcore.mma(big, np.full((4, 1), 2.0**63, np.float32), chip="ampere", to="bf16")
    assert got.tolist() == [[np.inf]]  # 2**128
    three = -big[:, :3]
    got = tensorcore.mma(big[:, :3], three.T, chip="ampere", to="bf16")
    assert got.tolist() == [[-3 * 2.0**126]]
    half = np.full((1, 1), 256, np.float32)  # 65536 and c
    got = [tensorcore.mma(half, half, c, chip="volta", to="fp16", out="fp16").item()
           for c in (-32.0, -17.0, -16.0, 0.0)]  # fmt: skip
    assert got == [65504, 65504, np.inf, np.inf]


# --- how operands come in --------------------------------------------------------------------


def test_operands_go_through_the_cast() -> None:
    x = np.float32([[1 + 2.0**-11]])
    one = np.float32([[1.0]])
    got = {to: tensorcore.mma(x, one, chip="ampere", to=to).item()
           for to in ("tf32", "tensorcore.tf32", "cublas.tf32")}  # fmt: skip
    assert got == {"tf32": 1.0, "tensorcore.tf32": 1.0, "cublas.tf32": 1 + 2.0**-10}
    x = np.float32([[1 + 2.0**-11 + 2.0**-12]])
    assert tensorcore.mma(x, one, chip="ampere", to="tf32").item() == 1 + 2.0**-10
    assert tensorcore.mma(x, one, chip="ampere", to="tensorcore.tf32").item() == 1.0
    over = tensorcore.mma([[500.0]], [[1.0]], chip="hopper", to="e4m3fn:overflow=saturate")
    assert over.item() == 448.0


def test_float64_is_rounded_once() -> None:
    x = [[1 + 2.0**-11 + 2.0**-40]]  # float32 is the tie, which goes to 1
    assert tensorcore.mma(x, [[1.0]], chip="volta", to="fp16").item() == 1 + 2.0**-10
    c = 1 + 2.0**-24 + 2.0**-50
    assert tensorcore.mma([[0.0]], [[0.0]], c, chip="volta", to="fp16").item() == 1 + 2.0**-23


@pytest.mark.parametrize("chip", ["hopper", "ada", "blackwell"])
def test_the_two_fp8_formats_meet(chip: str) -> None:
    forms = ("float8_e4m3fn", "float8_e5m2")
    for first, second in (forms, forms[::-1]):
        a, b = numbers((3, 70), first, 1), numbers((70, 5), second, 2)
        check(chip, (first, second), "float32", a, b, np.zeros((3, 5), np.float32))


def test_narrow_floats_and_other_libraries() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = numbers((4, 32), "float16", 1), numbers((32, 4), "float16", 2)
    want = tensorcore.mma(a, b, chip="a100", to="fp16")
    assert_same_bits(tensorcore.mma(a.astype(np.float16), b, chip="a100", to="fp16"), want)
    got = tensorcore.mma(torch.tensor(a).half(), torch.tensor(b).half(), chip="a100", to="fp16")
    assert isinstance(got, torch.Tensor)
    assert got.dtype is torch.float32
    assert_same_bits(got.numpy(), want)
    for mixed in ((a, torch.tensor(b)), (a, b, torch.zeros(4))):
        got = tensorcore.mma(*mixed, chip="a100", to="fp16")
        assert isinstance(got, torch.Tensor)
        assert_same_bits(got.numpy(), want)


# --- shapes ----------------------------------------------------------------------------------

SHAPES = [
    ((3, 8), (8, 2)), ((2, 3, 8), (8, 2)), ((3, 8), (2, 8, 4)), ((2, 3, 8), (2, 8, 4)),
    ((2, 1, 3, 8), (5, 8, 4)), ((1, 3, 8), (4, 8, 2)), ((5, 8), (8, 1)), ((40, 8), (8, 3)),
    ((1, 8), (8, 70)), ((2, 40, 8), (2, 8, 3)), ((70, 40), (40, 300)), ((3, 0), (0, 2)),
    ((0, 8), (8, 2)), ((3, 8), (8, 0)), ((0, 3, 8), (8, 2)), ((0, 3, 8), (0, 8, 2)),
    ((2, 3, 0), (0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes_are_those_of_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Small whole numbers, of which every sum is exact: numpy has the same."""
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, left).astype(np.float32)
    b = random.integers(-4, 5, right).astype(np.float32)
    want = a @ b
    for to in ("fp16", "e4m3fn"):
        got = tensorcore.mma(a, b, chip="hopper", to=to)
        assert got.shape == want.shape
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)
        c = random.integers(-4, 5, want.shape[-2:]).astype(np.float32)
        np.testing.assert_array_equal(tensorcore.mma(a, b, c, chip="hopper", to=to), want + c)


def test_no_products_leave_c() -> None:
    a, b = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    got = tensorcore.mma(a, b, np.float32([[1.5], [-0.0]]), chip="volta", to="fp16")
    assert_same_bits(got, np.float32([[1.5] * 3, [-0.0] * 3]))
    assert_same_bits(tensorcore.mma(a, b, chip="volta", to="fp16"), np.zeros((2, 3), np.float32))


def test_layout_does_not_matter() -> None:
    a, b = numbers((6, 40), "float16", 1), numbers((40, 33), "float16", 2)
    want = tensorcore.mma(a, b, chip="a100", to="fp16")
    strided = np.zeros((12, 80), np.float32)
    strided[::2, ::2] = a
    got = tensorcore.mma(strided[::2, ::2], np.asfortranarray(b), chip="a100", to="fp16")
    assert_same_bits(got, want)
    assert_same_bits(tensorcore.mma(b.T, a.T, chip="a100", to="fp16"), np.ascontiguousarray(want.T))


@pytest.mark.parametrize(("chip", "to"), [
    ("hopper", "e5m2"), ("hopper", "bf16"), ("blackwell", "e4m3fn"), ("cdna3", "e4m3fnuz"),
    ("amx", "bf16"),
])  # fmt: skip
def test_threads_and_tiles_do_not_matter(chip: str, to: str) -> None:
    form = fpemu.finfo(to).name
    a, b = numbers((2, 150, 96), form, 1), numbers((2, 96, 530), form, 2)
    c = numbers((150, 530), "float32", 3)
    want = tensorcore.mma(a, b, c, chip=chip, to=to, threads=1)
    assert_same_bits(tensorcore.mma(a, b, c, chip=chip, to=to, threads=4), want)
    near = slice(255, 260)  # columns of two blocks
    for i in (0, 63, 64, 149):
        row = tensorcore.mma(a[1, [i]], b[1, :, near], c[[i], near], chip=chip, to=to)
        assert_same_bits(row, want[1, [i], near])


def test_one_thread_is_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounding of operands too stays on the caller's thread."""

    def no_pool(workers: int) -> None:
        raise AssertionError(f"{workers} threads were asked for")

    monkeypatch.setattr(pool, "_pool", no_pool)
    a, b = np.ones((1, 4 * pool.SMALL), np.float32), np.ones((4 * pool.SMALL, 1), np.float32)
    got = tensorcore.mma(a, b, chip="blackwell", to="bf16", threads=1)
    assert got.item() == 4 * pool.SMALL
    with pytest.raises(AssertionError, match="2 threads were asked for"):
        tensorcore.mma(a, b, chip="blackwell", to="bf16", threads=2)


def test_a_repeated_matrix_is_read_once() -> None:
    """One matrix that 1,000 others are multiplied with takes no memory for each."""
    a, b = numbers((1, 64, 256), "float16", 1), numbers((1000, 256, 1), "float16", 2)
    tensorcore.mma(a, b[:1], chip="volta", to="fp16")
    tracemalloc.start()
    try:
        got = tensorcore.mma(a, b, chip="volta", to="fp16", threads=1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 12e6, "1,000 copies of its codes alone are 33 MB"
    for i in (0, 999):
        want = tensorcore.mma(a[0], b[i], chip="volta", to="fp16")
        assert_same_bits(got[i], want)


def test_c_is_not_changed() -> None:
    c = np.zeros((2, 2), np.float32)
    tensorcore.mma(np.ones((2, 2)), np.ones((2, 2)), c, chip="volta", to="fp16")
    assert not c.any()


# --- promotion -------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["hopper", "ada", "blackwell"])
@pytest.mark.parametrize("promote", [32, 128])
def test_promoted_sums_are_the_definition(chip: str, promote: int) -> None:
    form = "float8_e4m3fn"
    a, b = numbers((3, 300), form, 1, 1.0), numbers((300, 5), form, 2, 1.0)
    check(chip, (form, form), "float32", a, b, numbers((3, 5), "float32", 3), promote)


def test_promotion_is_what_deepgemm_does() -> None:
    """Four steps of 32 on the tensor core from zero, then a float32 addition."""
    a, b = numbers((4, 512), "float8_e4m3fn", 1, 1.0), numbers((512, 6), "float8_e4m3fn", 2, 1.0)
    total = np.zeros((4, 6), np.float32)
    for k in range(0, 512, 128):
        part = np.zeros((4, 6), np.float32)
        for step in range(k, k + 128, 32):
            span = slice(step, step + 32)
            part = tensorcore.mma(a[:, span], b[span], part, chip="hopper", to="e4m3fn")
        total += part
    assert_same_bits(tensorcore.mma(a, b, chip="hopper", to="e4m3fn", promote=128), total)


# --- chips of one's own ----------------------------------------------------------------------


def test_a_chip_of_your_own() -> None:
    """With room for everything, it is exact: numpy's float64 product, cut to float32."""
    wide = Chip("wide", (Unit("bfloat16", AlignedSum(group=1024, fraction_bits=39)),))
    a, b = numbers((5, 64), "bfloat16", 1, 1.0), numbers((64, 9), "bfloat16", 2, 1.0)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    words = exact.view(np.uint64) & ~np.uint64((1 << 29) - 1)
    want = words.view(np.float64).astype(np.float32)
    assert_same_bits(tensorcore.mma(a, b, chip=wide, to="bf16"), want)
    assert not wide.verified


def test_a_chip_may_sum_in_any_format() -> None:
    rule = AlignedSum(group=1, fraction_bits=30, result="bfloat16", rounding="nearest_even")
    chip = Chip("bf16_sums", (Unit(("bfloat16", "float16"), rule),))
    a, b = numbers((1, 60), "bfloat16", 1, 1.0), numbers((60, 1), "float16", 2, 1.0)
    total = np.float32(0)
    for x, y in zip(a[0].tolist(), b[:, 0].tolist(), strict=True):
        total = fpemu.round(np.float64(total) + np.float64(x) * np.float64(y), "bf16")
    assert tensorcore.mma(a, b, chip=chip, to=("bf16", "fp16")).item() == total


def test_the_table_of_chips() -> None:
    assert list(tensorcore.chips) == [
        "volta", "ampere", "ada", "hopper", "blackwell", "cdna3", "amx"
    ]  # fmt: skip
    assert tensorcore.find_chip("A100") is tensorcore.chips["ampere"]
    verified = [name for name, chip in tensorcore.chips.items() if chip.verified]
    assert verified == ["volta", "ampere", "hopper"]
    for name in ("cdna3", "amx"):
        assert "not verified against recordings" in tensorcore.chips[name].note
    for name, form, out in NVIDIA:
        unit = tensorcore.chips[name].unit(form, out=out)
        assert unit.sum.group == matrix_units.NVIDIA[name, form, out].group
    assert len({hash(chip) for chip in tensorcore.chips.values()}) == 7
