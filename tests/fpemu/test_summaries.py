"""summarize: the tally is the tally; the moments are those of exact rational sums."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpemu
from fpemu.errors import InputError
from fpemu.moments import Moments
from fpemu.summaries import summarize

INF, NAN = np.inf, np.nan


def exact(x: np.ndarray) -> Moments:
    """Moments in rational arithmetic."""
    finite = [Fraction(float(v)) for v in x.ravel() if np.isfinite(v)]
    if not finite:
        return Moments()
    mean = sum(finite) / len(finite)
    powers = [float(sum((v - mean) ** k for v in finite)) for k in (2, 3, 4)]
    sizes = [abs(v) for v in finite]
    smallest = min((float(v) for v in sizes if v), default=0.0)
    return Moments(len(finite), float(mean), *powers, float(max(sizes)), smallest)


def assert_summary(x: np.ndarray, threads: int | None = None) -> None:
    tally, found = summarize(x, threads=threads)
    assert tally == fpemu.tally(x)
    want = exact(x)
    assert (found.count, found.amax, found.smallest_nonzero) == (
        want.count, want.amax, want.smallest_nonzero,
    )  # fmt: skip
    if not want.count:
        assert np.isnan(found.mean)
        return
    spread = max(want.m2, 1e-300) ** 0.5
    assert found.mean == pytest.approx(want.mean, rel=1e-12, abs=1e-12 * want.amax)
    floor = want.count * (want.amax * 1e-12) ** 2
    assert found.m2 == pytest.approx(want.m2, rel=1e-10, abs=floor)
    assert found.m3 == pytest.approx(want.m3, rel=1e-9, abs=1e-10 * spread**3 + floor)
    assert found.m4 == pytest.approx(want.m4, rel=1e-9, abs=floor)


@pytest.mark.parametrize(
    "values",
    [
        [], [0.0], [0.0, -0.0], [1.0], [-1.5, 1.5], [NAN], [INF, -INF, NAN], [INF, 2.0, -3.0],
        [1e-45], [1e-45, 1.0], [2.0**-126, 1.0], [3.4028235e38, -3.4028235e38], [7.0] * 5000,
        [1e6 + k / 16 for k in range(3000)], [0.0] * 4999 + [1.0], [NAN] * 2048 + [1.0, 2.0],
    ],
)  # fmt: skip
def test_directed(values):
    assert_summary(np.array(values, np.float32))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1023, 2047, 2048, 2049, 10_001])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_sizes(size, scale):
    rng = np.random.default_rng(size)
    x = (rng.normal(0.5, 1, size) * scale).astype(np.float32)
    x[rng.random(size) < 0.1] = 0
    assert_summary(x)


@given(st.lists(st.floats(width=32), max_size=80))
def test_any_numbers(values):
    x = np.array(values, np.float32)
    tally, moments = summarize(x)
    want = exact(x)
    assert tally == fpemu.tally(x)
    assert (moments.count, moments.amax, moments.smallest_nonzero) == (
        want.count, want.amax, want.smallest_nonzero,
    )  # fmt: skip


def test_large_ones_on_any_number_of_threads():
    x = np.random.default_rng(0).standard_cauchy(1_200_001).astype(np.float32)
    first = summarize(x, threads=1)
    assert first[0] == fpemu.tally(x)
    assert all(summarize(x, threads=n) == first for n in (2, 3, 8))


def test_counters_are_clean_between_calls_and_threads():
    arrays = [np.random.default_rng(k).normal(0, 2.0**k, 5000).astype(np.float32) for k in range(8)]
    want = [fpemu.tally(x) for x in arrays]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [t for t, _ in pool.map(summarize, arrays)] == want


def test_narrow_and_strided_arrays():
    x = np.random.default_rng(1).normal(0, 1, (40, 60)).astype(np.float16)
    assert_summary(x)
    assert_summary(x[::2, 1::3].astype(np.float32)[:, ::-1])


@pytest.mark.parametrize("x", [np.float64([1]), np.int32([1]), np.complex64([1])])
def test_refused(x):
    with pytest.raises(InputError):
        summarize(x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_counts_for_itself():
    """In a process of its own: other tests bring libraries that warn of every fork."""
    script = (
        "import os, warnings, numpy as np; from fpemu.summaries import summarize\n"
        "warnings.simplefilter('ignore', DeprecationWarning)  # of forks beside threads: the case\n"
        "x = np.random.default_rng(0).normal(0, 1, 700_000).astype(np.float32)\n"
        "want = summarize(x)\n"
        "child = os.fork()\n"
        "if not child: os._exit(0 if summarize(x) == want else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert summarize(x) == want\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
