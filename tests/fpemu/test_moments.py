"""The moments, against exact rational arithmetic and longer floats; the extremes are exact."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import wide_range

import fpemu
from fpemu.errors import InputError
from fpemu.kernels.cpu_moments import BLOCK
from fpemu.moments import Moments, moments, squared_error

Array = np.ndarray[Any, Any]

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def exact_sums(x: Array) -> tuple[Fraction, list[Fraction]]:
    """Mean and central sums of powers 2 to 4, as fractions."""
    numbers = [Fraction(float(v)) for v in x[np.isfinite(x)]]
    mean = sum(numbers, Fraction(0)) / len(numbers)
    return mean, [sum(((v - mean) ** p for v in numbers), Fraction(0)) for p in (2, 3, 4)]


def assert_close(m: Moments, x: Array) -> None:
    mean, (m2, m3, m4) = exact_sums(x)
    size = max(abs(float(v)) for v in x[np.isfinite(x)])
    spread = math.sqrt(m2 / m.count)
    assert m.mean == pytest.approx(float(mean), rel=1e-12, abs=size * 1e-15)
    assert m.m2 == pytest.approx(float(m2), rel=1e-11, abs=m.count * (size * 1e-15) ** 2)
    assert m.m3 == pytest.approx(float(m3), rel=1e-9, abs=m.count * spread**3 * 1e-9)
    assert m.m4 == pytest.approx(float(m4), rel=1e-10, abs=m.count * (size * 1e-15) ** 4)


def samples() -> dict[str, Array]:
    random = np.random.default_rng(0)
    normal = random.standard_normal(2 * BLOCK + 7)
    samples = {
        "normal": normal,
        "far from zero": 1000 + normal * 1e-2,
        "spread": normal * np.exp2(random.uniform(-60, 60, normal.size)),
        "extreme": random.choice([-1, 1, 0.5], 2500) * 3.4e38,
        "subnormal": random.integers(-5000, 5000, 2500) * 2.0**-149,
        "mixed subnormal": random.choice([1e-45, -1e-40, 1e-36], 2500),
        "outlier": np.where(np.arange(normal.size) == 3000, 1e20, normal),
        "with specials": np.where(np.arange(normal.size) % 3, normal, np.inf),
        "few": np.array([1.5, np.nan, -2.25]),
    }
    return {name: x.astype(np.float32) for name, x in samples.items()}


@pytest.mark.parametrize("name", samples())
def test_moments_of(name: str) -> None:
    x = samples()[name]
    m = moments(x)
    finite = x[np.isfinite(x)]
    assert m.count == finite.size
    assert_close(m, x)
    wide = finite.astype(np.longdouble)
    assert m.std == pytest.approx(float(wide.std()), rel=1e-10)
    assert m.rms == pytest.approx(float(np.sqrt((wide**2).mean())), rel=1e-10)
    assert m.kurtosis == pytest.approx(
        float(((wide - wide.mean()) ** 4).mean() / wide.var() ** 2), rel=1e-9
    )


@given(st.lists(FLOATS, min_size=1), st.lists(FLOATS, min_size=1))
def test_merging(first: list[float], second: list[float]) -> None:
    a, b = np.float32(first), np.float32(second)
    x = np.concatenate([a, b])
    merged, whole = moments(a) + moments(b), moments(x)
    assert_close(merged, x)
    assert (merged.count, merged.amax, merged.smallest_nonzero) == (
        whole.count, whole.amax, whole.smallest_nonzero,
    )  # fmt: skip
    assert merged + Moments() == merged == Moments() + merged


def test_merging_many_shards() -> None:
    x = np.float32(np.random.default_rng(2).standard_normal(60_000) + 5)
    merged, whole = sum(moments(part) for part in np.array_split(x, 97)), moments(x)
    for field in ("mean", "m2", "m3", "m4"):
        assert getattr(merged, field) == pytest.approx(getattr(whole, field), rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 40_000])
def test_extremes_are_exact(size: int) -> None:
    x = wide_range(size)
    finite = np.abs(x[np.isfinite(x)])
    m = moments(x)
    assert m.amax == (float(finite.max()) if finite.size else 0.0)
    assert m.smallest_nonzero == (float(finite[finite > 0].min()) if finite.any() else 0.0)


def test_threads_do_not_change_a_bit() -> None:
    x = wide_range(600_001)
    assert moments(x, threads=1) == moments(x, threads=3)
    assert squared_error(x, x[::-1], threads=1) == squared_error(x, x[::-1], threads=2)


def test_nothing_finite_or_nothing_at_all() -> None:
    for x in ([], [np.nan, np.inf, -np.inf]):
        m = moments(np.float32(x))
        assert (m.count, m.m2, m.amax, m.smallest_nonzero) == (0, 0.0, 0.0, 0.0)
        assert all(map(math.isnan, (m.mean, m.std, m.rms, m.kurtosis)))
        assert m == Moments()
    zeros = moments(np.float32([0.0, -0.0]))
    assert (zeros.count, zeros.mean, zeros.rms, zeros.amax, zeros.smallest_nonzero) == (
        2, 0.0, 0.0, 0.0, 0.0,
    )  # fmt: skip
    same = moments(np.full(10_000, 0.1, np.float32))
    assert same.std == 0.0
    assert math.isnan(same.kurtosis)


def test_json_there_and_back() -> None:
    for m in (Moments(), moments(np.float32([1, 2, 4])), moments(np.float32([0]))):
        assert Moments.from_json(json.loads(json.dumps(m.to_json(), allow_nan=False))) == m
    good = Moments().to_json()
    for bad in ({}, [], good | {"extra": 1}, good | {"count": 1.5}, good | {"m2": "x"},
                good | {"count": True}):  # fmt: skip
        with pytest.raises(InputError, match="moments"):
            Moments.from_json(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [{"m2": -1.0}, {"m4": -1e-300}, {"amax": -3}, {"smallest_nonzero": -1.0}, {"count": -1},
     {"count": 2**63}, {"count": 10**5000}, {"mean": 10**400}, {"mean": None}, {"mean": math.nan},
     {"m3": math.inf}, {"m3": math.nan}, {"m2": 10**5000}],
)  # fmt: skip
def test_json_that_no_array_gives_is_refused(bad: dict[str, Any]) -> None:
    good = moments(np.float32([1, 2, 4])).to_json()
    [name] = bad
    with pytest.raises(InputError, match=f"^moments: {name}=.* must be") as caught:
        Moments.from_json(good | bad)
    assert len(str(caught.value)) < 150


def test_json_of_extreme_arrays_is_taken() -> None:
    rng, top = np.random.default_rng(5), float(np.finfo(np.float32).max)
    for x in ([top, -top], [top] * 100, [1e-45, 0.0], [3.1] * 7 + [3.2], rng.normal(9e8, 1, 999)):
        parts = [moments(np.float32(part)) for part in np.array_split(np.array(x), 3)]
        for m in (sum(parts), moments(np.float32(x))):
            assert Moments.from_json(m.to_json()) == m


def test_input_is_that_of_the_tally() -> None:
    x = np.float32(np.random.default_rng(3).standard_normal((30, 40)))
    assert moments(x[::2, ::-1]) == moments(x[::2, ::-1].copy())
    assert moments(np.float16([1, 2])) == moments(np.float32([1, 2]))
    assert moments(np.float32(3)).count == 1
    for bad in (np.ones(3), np.arange(3), np.ones(3, complex)):
        with pytest.raises(InputError, match="dtype"):
            moments(bad)


def test_squared_error() -> None:
    x = np.float32(np.random.default_rng(4).standard_normal(BLOCK + 3))
    q = fpemu.round(x, "e4m3fn")
    exact = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, q, strict=True))
    assert squared_error(x, q) == pytest.approx(float(exact), rel=1e-13)
    x[7], q[9], x[-1], q[-1] = np.inf, np.nan, np.inf, np.inf
    finite = np.isfinite(x) & np.isfinite(q)
    expected = ((np.float64(x[finite]) - q[finite]) ** 2).sum()
    assert squared_error(x, q) == pytest.approx(float(expected), rel=1e-13)
    assert squared_error(x[:0], q[:0]) == 0.0
    with pytest.raises(InputError, match="shape"):
        squared_error(x, q[:-1])
