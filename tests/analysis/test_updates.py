"""Updates lost in a weight's format, against the exact definition, element by element."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.analysis.trace import Trace
from fpemu.analysis.update_loop import UNIT
from fpemu.analysis.updates import FORMATS, UpdateTally, update_tally
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.rounding import round_exact
from tests.support import ODD, directed_inputs, sample

WIDTHS = [*FORMATS, "tf32", "float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e3m2fn",
          "float4_e2m1fn"]  # fmt: skip


def plainly(weights: np.ndarray, updates: np.ndarray, form: fpemu.Format) -> dict[str, int]:
    """The definition in exact numbers: round the weight, add, round again, compare codes."""
    cast = Cast(form, overflow="saturate")
    lost = units = changed = odd = 0
    for w, d in zip(map(float, weights), map(float, updates), strict=True):
        if not (math.isfinite(w) and math.isfinite(d)):
            odd += 1
            continue
        if d == 0:
            continue
        changed += 1
        code = round_exact(cast, w).code & ~(1 << form.magnitude_bits)
        sign = -1 if math.copysign(1, w) < 0 and code else 1
        held = sign * form.exact_magnitude(code)
        total = held + Fraction(d)
        new = round_exact(cast, total)
        value = form.exact_magnitude(new.code & ~(1 << form.magnitude_bits))
        lost += (value == abs(held) and (total >= 0) == (held >= 0 or value == 0)) or (
            value == 0 and held == 0
        )
        outward = code == 0 or (d > 0) == (held > 0)
        next_code = code + 1 if outward else code - 1
        if next_code > form.max_code:
            continue
        gap = abs(form.exact_magnitude(next_code) - abs(held))
        units += min(math.floor(abs(Fraction(d)) / gap * UNIT), UNIT)
    return {"changed": changed, "nonfinite": odd, "lost": lost, "units": units}


def check(weights: np.ndarray, updates: np.ndarray, forms: list[fpemu.Format]) -> None:
    found = update_tally(weights, updates, forms)
    for k, form in enumerate(forms):
        want = plainly(weights, updates, form)
        got = {"changed": found.changed, "nonfinite": found.nonfinite, "lost": found.losses[k],
               "units": found.units[k]}  # fmt: skip
        assert got == want, form.name


# --- the counts ------------------------------------------------------------------------------


def pairs(form: fpemu.Format, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights at and between values of a format, updates about the gaps there, of both signs."""
    rng = np.random.default_rng(seed)
    weights = sample(directed_inputs(form), n, seed)
    weights = weights[np.isfinite(weights)]
    sizes = rng.choice([0.25, 0.499, 0.5, 0.50001, 0.75, 0.999, 1.0, 1.5, 3.0, 0.0], len(weights))
    with np.errstate(all="ignore"):  # infinity is wanted too
        gaps = np.maximum(np.abs(weights), form.smallest_normal) * form.eps
        updates = (gaps * sizes * rng.choice([-1, 1], len(weights))).astype(np.float32)
        near = np.exp2(np.floor(np.log2(gaps, where=gaps > 0, out=np.zeros_like(gaps)))) * sizes
        exact = (near * rng.choice([-1, 1], len(weights))).astype(np.float32)
    return np.concatenate([weights, weights]), np.concatenate([updates, exact])


@pytest.mark.parametrize("name", WIDTHS)
def test_each_format_loses_what_the_definition_says(name: str) -> None:
    form = fpemu.finfo(name)
    check(*pairs(form, 700, seed=form.bits), [form])


@pytest.mark.parametrize("form", [f for f in ODD if f.signed and f.zero], ids=str)
def test_formats_that_nobody_ships(form: fpemu.Format) -> None:
    weights, updates = pairs(form, 300, seed=1)
    if form.smallest_subnormal < 2.0**-148 or form.emin < -126:
        with pytest.raises(InputError, match="half gaps are float32 numbers"):
            update_tally(weights, updates, form)
    else:
        check(weights, updates, [form])


def test_wide_data_with_zeros_nan_infinity_and_subnormals() -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 32, (2, 1500), dtype=np.uint64).astype(np.uint32)
    weights, updates = bits.view(np.float32)
    weights[:40], updates[20:60] = 0.0, -0.0
    weights[60:70], updates[70:80] = np.nan, np.inf
    weights[80:200] = bits[0, 80:200] % (1 << 23)  # as numbers: large ones
    weights[200:260] = (bits[0, 200:260] % (1 << 23)).view(np.float32)
    updates[260:320] = (bits[1, 260:320] % (1 << 23)).view(np.float32)
    check(weights, updates, [fpemu.finfo(name) for name in FORMATS])


@settings(max_examples=60, deadline=None)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(FORMATS),
)
def test_any_weight_and_update(weight: float, update: float, name: str) -> None:
    check(np.float32([weight]), np.float32([update]), [fpemu.finfo(name)])


def test_ratios_are_those_of_exact_fractions() -> None:
    weights, updates = pairs(fpemu.finfo("bfloat16"), 400, seed=3)
    weights[:5], updates[3:8] = 0.0, 0.0
    want: dict[int, int] = {}
    for w, d in zip(weights, updates, strict=True):
        if w and d:
            ratio = abs(Fraction(float(d)) / Fraction(float(w)))
            k = ratio.numerator.bit_length() - ratio.denominator.bit_length()
            k -= ratio < Fraction(2) ** k
            want[k] = want.get(k, 0) + 1
    assert update_tally(weights, updates).ratio_histogram == dict(sorted(want.items()))


def test_draws_leave_as_many_weights_as_stochastic_rounding_does() -> None:
    rng = np.random.default_rng(8)
    weights = fpemu.round(rng.standard_normal(200_000).astype(np.float32), "bf16")
    updates = (weights * rng.uniform(0, 2**-8, weights.size)).astype(np.float32)
    new = fpemu.round((weights.astype(np.float64) + updates), "bf16", rounding="stochastic", seed=1)
    moved = int((new != weights).sum())
    kept = update_tally(weights, updates, "bf16").kept_stochastic["bfloat16"]
    assert abs(kept - moved) < 5 * math.sqrt(weights.size) / 2  # five deviations of the draws


# --- adding, storing -------------------------------------------------------------------------


def test_parts_add_up_in_any_order_and_on_threads() -> None:
    rng = np.random.default_rng(2)
    weights, updates = rng.standard_normal((2, 1_200_003)).astype(np.float32)
    updates *= np.float32(1e-3)
    whole = update_tally(weights, updates, threads=1)
    assert update_tally(weights, updates, threads=2) == whole
    cuts = [slice(0, 7), slice(7, 500_001), slice(500_001, None)]
    parts = [update_tally(weights[cut], updates[cut]) for cut in cuts]
    assert sum(parts) == whole == parts[2] + (parts[0] + parts[1])
    shaped = update_tally(weights[:12].reshape(3, 4).T, updates[:12].reshape(3, 4).T)
    assert shaped == update_tally(weights[:12], updates[:12])


def test_nothing_adds_nothing() -> None:
    nothing = update_tally(np.float32([]), np.float32([]))
    some = update_tally(np.float32([1.0]), np.float32([1e-9]))
    assert nothing + some == some == some + nothing
    assert nothing.lost_percent("fp16") == nothing.lost_stochastic_percent("fp16") == 0.0


def test_json_reads_back_and_a_trace_keeps_it(tmp_path) -> None:
    found = update_tally(np.float32([1, 2, 0, np.nan]), np.float32([1e-3, 0.5, 1e-8, 1]))
    assert UpdateTally.from_json(json.loads(json.dumps(found.to_json()))) == found
    trace = Trace()
    for step in (0, 1):
        trace.count("fc.weight", "update", step, found)
    trace.save(tmp_path / "run.fpemu")
    stored = [one.value for one in Trace.load(tmp_path / "run.fpemu").counted("updates")]
    assert stored == [found, found]


@pytest.mark.parametrize(
    "change",
    [{"changed": 9}, {"changed": -1}, {"losses": [5, 0, 0, 0]}, {"formats": ["float16"]},
     {"ratios": [99]}, {"low_ratio": -999}, {"total": 1.5}, {"total": True}, {"units": None}],
)  # fmt: skip
def test_facts_that_no_tally_has_are_refused(change: dict[str, object]) -> None:
    facts = update_tally(np.float32([1, 2]), np.float32([1e-3, 0.5])).to_json()
    with pytest.raises(InputError, match="is no UpdateTally; give what"):
        UpdateTally.from_json(facts | change)


def test_what_cannot_be_counted_is_refused_in_one_line() -> None:
    one = np.float32([1.0])
    with pytest.raises(InputError, match=r"weight has shape \(1,\), update has \(2,\)"):
        update_tally(one, np.float32([1.0, 2.0]))
    with pytest.raises(InputError, match="float64"):
        update_tally(one.astype(np.float64), one)
    for form in ("float32", "float8_e8m0fnu"):
        with pytest.raises(InputError, match="not for float32 itself"):
            update_tally(one, one, form)
    found = update_tally(one, one)
    with pytest.raises(InputError, match="do not add up"):
        found + update_tally(one, one, "fp16")
    with pytest.raises(InputError, match="were not counted in 'tf32'; counted: float16"):
        found.lost_percent("tf32")
