"""The last bit that counts: each width and least exponent of the tables, one bit to either side.

A sum is brought to a tie, or to one step below a number; one more term, 2**-k, decides it if it
counts. Random operands hardly ever show that in float16 sums and near the least exponents.
"""

from __future__ import annotations

import matrix_units
import pytest

from fpemu import tensorcore

HALF = sorted(chip for chip, _, out in matrix_units.NVIDIA if out == "float16")
LOW = sorted((chip, form) for chip, form, _ in matrix_units.NVIDIA if form in ("bfloat16", "tf32"))
CDNA3 = ("float16", "bfloat16", "tf32", "float8_e4m3fnuz", "float8_e5m2fnuz")

#: 2**n - 1 as a product of two numbers of 7 bits at most.
FACTORS = {6: (9, 7), 7: (127, 1), 8: (15, 17), 9: (7, 73), 10: (33, 31), 11: (23, 89)}

Terms = list[tuple[float, float]]


def power(exponent: int) -> tuple[float, float]:
    """Two factors of about the same size whose product is 2**exponent."""
    return 2.0 ** (exponent // 2), 2.0 ** (exponent - exponent // 2)


def summed(chip: str, form: str, out: str, terms: Terms, c: float = 0.0) -> float:
    """The sum of products on top of c, which the exact definition has to give too."""
    a, b = ([factor for factor, _ in terms], [factor for _, factor in terms])
    got = tensorcore.mma([a], [[y] for y in b], c, chip=chip, to=form, out=out)
    if chip == "cdna3":
        want = matrix_units.cdna3(a, b, c, (form, form))
    else:
        want = matrix_units.dot(a, b, c, (form, form), matrix_units.NVIDIA[chip, form, out])
    assert got.item() == want
    return want


@pytest.mark.parametrize("chip", HALF)
def test_bits_that_a_term_keeps_in_float16_sums(chip: str) -> None:
    """1 + 2**-11 lies between two float16."""
    bits = {"volta": 23, "ampere": 24, "ada": 24}.get(chip, 25)
    for k in range(bits - 2, bits + 3):
        terms = [(1.0, 1.0), power(-11), power(-k)]
        assert summed(chip, "float16", "float16", terms) == 1 + (2.0**-10 if k <= bits else 0)
        terms = [(1.0, -1.0), (power(-11)[0], -power(-11)[1]), power(-k)]
        assert summed(chip, "float16", "float16", terms) == -1  # the tie, or less
        assert summed(chip, "float16", "float16", terms[1:], -1.0) == -1


@pytest.mark.parametrize("chip", HALF)
def test_the_least_exponent_of_float16_sums(chip: str) -> None:
    """2**-25 lies between zero and the smallest float16."""
    last = {"volta": 23 + 19, "ampere": 24 + 20, "ada": 24 + 20}.get(chip, 25 + 21)
    for k in range(last - 2, last + 3):
        terms = [power(-25), power(-k)]
        assert summed(chip, "float16", "float16", terms) == (2.0**-24 if k <= last else 0)


@pytest.mark.parametrize(("chip", "form"), LOW)
def test_the_least_exponent_of_float32_sums(chip: str, form: str) -> None:
    """2**-149 - 2**-k and 2**-k reach the smallest float32 if both count."""
    last = 25 + 133 if chip in ("hopper", "blackwell") else 24 + 132
    for k in range(last - 1, last + 3):
        x, y = FACTORS[k - 149]
        below = (x * 2.0 ** -(k // 2), y * 2.0 ** -(k - k // 2))
        terms = [below, power(-k)]
        assert summed(chip, form, "float32", terms) == (2.0**-149 if k <= last else 0)
        assert summed(chip, form, "float32", terms[:1], 2.0**-149) == 2.0**-149


@pytest.mark.parametrize("form", CDNA3)
def test_bits_of_the_whole_in_staged_sums(form: str) -> None:
    """31 below the sum's highest, and 32 below the largest exponent of products and accumulator."""
    for k in range(29, 35):
        c, tie, last = 2.0**14, power(14 - 24), power(14 - k)
        up = c + 2.0**-9 if k <= 31 else c
        assert summed("cdna3", form, "float32", [tie, last], c) == up
        less = (2.0**2, -(2.0**2))  # the sum begins a binade lower, and its ties do
        lower = c - 2.0**4
        up = lower + 2.0**-10 if k <= 32 else lower
        assert summed("cdna3", form, "float32", [less, power(14 - 25), last], c) == up


@pytest.mark.parametrize("form", CDNA3)
def test_when_staged_sums_leave_an_accumulator_out(form: str) -> None:
    """Cut downward, a negative one takes one from the last bit however small it is, or none."""
    drops = form.startswith("float8")
    for k in range(23, 29):
        want = 1 - 2.0 ** -min(k, 24)
        if drops and k > 25:
            want = 1.0
        assert summed("cdna3", form, "float32", [(1.0, 1.0)], -(2.0**-k)) == want
        assert summed("cdna3", form, "float32", [(1.0, 1.0)], 2.0**-k) == (
            1 + 2.0**-23 if k == 23 else 1.0
        )
