"""whatif rows and safe scales, against the exact scalar definition counted one by one."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.analysis.scales import SCALES, SafeScales, best_scale, safe_scales
from fpemu.analysis.trace import Trace
from fpemu.analysis.what_if import whatif
from fpemu.cast import make_cast
from fpemu.errors import InputError, UnknownFormatError
from fpemu.rounding import round_exact

LOST = ("underflow", "saturated", "overflow", "invalid")


def wide(seed: int, n: int = 60) -> np.ndarray:
    """Magnitudes over 80 binades, both signs, with zeros, NaN and infinity among them."""
    rng = np.random.default_rng(seed)
    x = np.exp2(rng.uniform(-60, 20, n)) * rng.choice([-1, 1], n)
    x[rng.integers(0, n, n // 10)] = 0.0
    x[:3] = np.nan, np.inf, -np.inf
    return x.astype(np.float32)


def counted(x: np.ndarray, to: str, scale: float) -> Counter[str]:
    """Outcomes by the exact definition, value by value, scaled as fractions."""
    cast = make_cast(to)
    factor = Fraction(scale)
    return Counter(
        round_exact(cast, Fraction(float(v)) * factor if math.isfinite(v) and v else v).outcome
        for v in map(float, x.ravel())
    )


@pytest.fixture(scope="module")
def trace() -> Trace:
    made = Trace()
    for step in (0, 5, 9):
        made.record("fc1", "activation", np.abs(wide(step)), step)
        made.record("fc1", "weight_gradient", wide(100 + step), step)
        made.record("fc2", "activation", wide(200 + step, 40).reshape(8, 5), step)
    return made


@pytest.mark.parametrize(
    "to", ["float16", "bfloat16", "e4m3fn", "e5m2:overflow=saturate", "fp4", "fp16:toward_zero",
           "e4m3fnuz", "fp16:subnormals=flush"],
)  # fmt: skip
def test_rows_count_what_the_exact_definition_does(trace: Trace, to: str) -> None:
    rows = whatif(trace, formats=[to], scales=[2.0**-9, 1, 2.0**13], per_step=True)
    assert len(rows) == 9 * 3
    values = {("fc1", "activation"): lambda s: np.abs(wide(s)),
              ("fc1", "weight_gradient"): lambda s: wide(100 + s),
              ("fc2", "activation"): lambda s: wide(200 + s, 40)}  # fmt: skip
    for row in rows:
        want = counted(values[row.name, row.kind](row.step), to, row.scale)
        assert {k: v for k, v in row.outcome.to_json().items() if v and k != "total"} == want
        nonzero = sum(want.values()) - want["nan"] - want["inf"] - want["zero"]
        assert row.lost_percent == 100 * sum(want[k] for k in LOST) / nonzero
        for part in ("underflow", "subnormal", "saturated", "overflow"):
            assert getattr(row, f"{part}_percent") == 100 * want[part] / nonzero
        assert row.to == str(make_cast(to))


def test_all_steps_together_are_the_sum_of_the_steps(trace: Trace) -> None:
    options = {"formats": ["fp16", "e5m2"], "scales": [1.0, 1024.0]}
    merged = whatif(trace, **options)
    assert [row.step for row in merged] == [None] * len(merged)
    stepped = whatif(trace, per_step=True, **options)
    for row in merged:
        key = (row.name, row.kind, row.to, row.scale)
        parts = [s.outcome for s in stepped if (s.name, s.kind, s.to, s.scale) == key]
        assert len(parts) == 3
        assert row.outcome == parts[0] + parts[1] + parts[2]


def test_rows_come_in_the_order_of_recording_formats_and_scales(trace: Trace) -> None:
    rows = whatif(trace, formats=["e5m2", "fp16"], scales=[4, 1])
    keys = [(row.name, row.kind, row.to, row.scale) for row in rows]
    assert keys == [
        (name, kind, to, scale)
        for name, kind in trace.tensors()
        for to in ("float8_e5m2", "float16")
        for scale in (4.0, 1.0)
    ]


def test_names_and_kinds_select(trace: Trace) -> None:
    rows = whatif(trace, formats=["fp16"], scales=[1], names=["fc1"], kinds=["activation"])
    assert [(row.name, row.kind) for row in rows] == [("fc1", "activation")]
    assert rows == whatif(trace, formats="fp16", scales=1, names="fc1", kinds="activation")
    where = "is not in trace 'in memory'; did you mean"
    with pytest.raises(InputError, match=f"name 'fc3' {where} 'fc"):
        whatif(trace, names=["fc3"])
    with pytest.raises(InputError, match=f"name 'fc3' {where} 'fc"):
        trace.total(name="fc3")
    with pytest.raises(InputError, match=f"kind 'activations' {where}"):
        whatif(trace, kinds=["activations"])
    with pytest.raises(InputError, match="name 1 is not in trace"):
        whatif(trace, names=[1])
    with pytest.raises(InputError, match="names 1: give one or a list of them"):
        whatif(trace, names=1)


@pytest.mark.parametrize("scale", [3, 0, -1, math.inf, math.nan, 0.3, 2.0**301, "abc", None])
def test_only_powers_of_two_scale_exactly(trace: Trace, scale: float) -> None:
    with pytest.raises(InputError, match="must be a power of two"):
        whatif(trace, scales=[scale])
    with pytest.raises(InputError, match="must be a power of two"):
        safe_scales(fpemu.tally(np.float32([1])), "fp16", scales=[1, scale])


def test_formats_are_checked(trace: Trace) -> None:
    with pytest.raises(UnknownFormatError, match="ambiguous"):
        whatif(trace, formats=["e4m3"])
    with pytest.raises(InputError, match="stochastic"):
        whatif(trace, formats=["fp16:stochastic"])
    mine, other = (replace(fpemu.finfo(name), name="mine") for name in ("e4m3fn", "e5m2"))
    with pytest.raises(InputError, match="two different casts are both called 'mine': rename"):
        whatif(trace, formats=[mine, other])
    assert {row.to for row in whatif(trace, formats=[mine, mine], scales=1)} == {"mine"}


def test_an_empty_trace_has_no_rows() -> None:
    assert whatif(Trace()) == []


def test_a_row_is_json_ready(trace: Trace) -> None:
    [row] = whatif(trace, formats=["fp16"], scales=[1], names=["fc2"])
    assert json.loads(json.dumps(row.to_json(), allow_nan=False)) == row.to_json()
    assert row.to_json()["outcome"]["total"] == 120


# --- safe scales -------------------------------------------------------------------------------


def is_safe(xs: list[np.ndarray], to: str, scale: float, tolerance: float) -> bool:
    """The definition, in words: no overflow, and no tensor loses more than the tolerance."""
    for x in xs:
        want = counted(x, to, scale)
        nonzero = sum(want.values()) - want["nan"] - want["inf"] - want["zero"]
        if want["overflow"] or sum(want[k] for k in LOST) > tolerance * nonzero:
            return False
    return True


@pytest.mark.parametrize(("to", "tolerance"), [("fp16", 0.0), ("fp16", 0.1), ("e5m2", 0.2)])
def test_the_run_is_safe_and_ends_where_it_says(to: str, tolerance: float) -> None:
    rng = np.random.default_rng(4)
    xs = [np.exp2(rng.normal(mean, 2, 60)).astype(np.float32) for mean in (-22, -16)]
    scales = [2.0**k for k in range(-4, 36)]
    found = safe_scales(map(fpemu.tally, xs), to, tolerance=tolerance, scales=scales)
    safe = [is_safe(xs, to, scale, tolerance) for scale in scales]
    assert any(safe)
    assert not all(safe)
    inside = [found.low <= scale <= found.high for scale in scales]
    assert inside == safe  # here the safe scales are one run
    assert (found.low_open, found.high_open) == (False, False)
    assert found.best in scales
    assert is_safe(xs, to, found.best, tolerance)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-30, 15), min_size=1, max_size=12),
    st.sampled_from(["fp16", "e4m3fn", "e5m2:overflow=saturate"]),
    st.sampled_from([0.0, 0.15]),
)
def test_every_answer_agrees_with_the_definition(
    exponents: list[float], to: str, tolerance: float
) -> None:
    x = np.exp2(np.array(exponents)).astype(np.float32)
    scales = [2.0**k for k in range(-8, 24)]
    found = safe_scales(fpemu.tally(x), to, tolerance=tolerance, scales=scales)
    safe = [is_safe([x], to, scale, tolerance) for scale in scales]
    if not found.safe:
        assert not any(safe)
        assert (found.low, found.high) == (None, None)
        return
    first, last = scales.index(found.low), scales.index(found.high)
    assert all(safe[first : last + 1])
    assert first == 0 or not safe[first - 1]
    assert last == len(scales) - 1 or not safe[last + 1]
    assert found.low <= found.best <= found.high
    assert found.unscaled == safe[scales.index(1.0)]
    if found.unscaled:
        assert found.best == 1.0


def test_one_overflow_in_many_is_not_safe() -> None:
    x = np.ones(1 << 17, np.float32)
    x[77] = 70000.0
    found = safe_scales(fpemu.tally(x), "fp16")
    assert found.high == 0.5
    assert safe_scales(fpemu.tally(x), "fp16:overflow=saturate").unscaled  # clamped: 0.0008 %


def test_all_zero_and_broken_values_are_safe_at_every_scale() -> None:
    for values in ([0.0, -0.0], [np.nan, np.inf], []):
        found = safe_scales(fpemu.tally(np.float32(values)), "fp16")
        assert (found.low, found.high, found.best) == (SCALES[0], SCALES[-1], 1.0)
        assert found.low_open
        assert found.high_open


def test_without_a_safe_scale_the_best_overflows_nowhere_and_loses_fewest() -> None:
    x = np.float32([2.0**-40, 2.0**-20, 2.0**-19, 1.0])
    found = safe_scales(fpemu.tally(x), "fp16")
    assert not found.safe
    assert not found.unscaled
    assert found == SafeScales("float16", None, None, 1.0, 25.0, False, False)
    assert best_scale(fpemu.tally(x), "fp16") == 1.0


def test_several_tallies_share_one_scale() -> None:
    small, large = (fpemu.tally(np.float32([2.0**k])) for k in (-30, 10))
    alone = safe_scales(small, "fp16")
    assert (alone.low, alone.best) == (2.0**6, 2.0 ** ((6 + 39) // 2))
    both = safe_scales([small, large], "fp16")
    assert not both.safe  # 2^6 lifts the small one, and takes the large one out
    assert safe_scales([small, fpemu.tally(np.float32([2.0**3]))], "fp16").best == 2.0**9


@pytest.mark.parametrize("tolerance", [-0.1, 1.5, math.nan])
def test_a_tolerance_is_a_fraction(tolerance: float) -> None:
    with pytest.raises(InputError, match="must be a fraction"):
        safe_scales(fpemu.tally(np.float32([1])), "fp16", tolerance=tolerance)


def test_no_scales_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        safe_scales(fpemu.tally(np.float32([1])), "fp16", scales=[])
