"""First safe steps, spans and overrides, against counting and searching step by step."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.analysis import Trace, schedule
from fpemu.analysis.schedule.places import place
from fpemu.analysis.schedule.spans import Span, shared, spans
from fpemu.cast import make_cast
from fpemu.errors import InputError, UnknownFormatError
from fpemu.policies import Policy, find_policy
from fpemu.rounding import round_exact, value_of

# --- spans -------------------------------------------------------------------------------------


def within(span: Span, step: int) -> bool:
    return span.first_step <= step and (span.last_step is None or step <= span.last_step)


@given(st.lists(st.booleans(), max_size=14), st.integers(1, 4), st.integers(1, 3))
def test_a_span_is_where_enough_neighbours_are_safe(
    safe: list[bool], patience: int, every: int
) -> None:
    steps = [every * k for k in range(len(safe))]
    found = spans(steps, safe, patience)
    for k, step in enumerate(steps):
        windows = range(max(0, k - patience + 1), min(k, len(safe) - patience) + 1)
        want = any(all(safe[first : first + patience]) for first in windows)
        assert any(within(span, step) for span in found) is want
    assert sum(span.last_step is None for span in found) == bool(found and all(safe[-patience:]))


_ENDS = st.lists(st.integers(0, 20), max_size=6, unique=True).map(sorted)


def spans_of(ends: list[int]) -> list[Span]:
    """Spans from pairs of ends; an odd one opens the last."""
    pairs = itertools.zip_longest(ends[::2], ends[1::2])
    return [Span(first, last) for first, last in pairs]


@given(st.lists(_ENDS.map(spans_of), min_size=1, max_size=3))
def test_shared_steps_are_those_in_every_sequence(several: list[list[Span]]) -> None:
    found = shared(several)
    for step in range(25):
        want = all(any(within(span, step) for span in one) for one in several)
        assert any(within(span, step) for span in found) is want


def test_nothing_is_shared_by_nobody() -> None:
    assert shared([]) == ()
    assert shared([[Span(0)], []]) == ()


# --- first safe --------------------------------------------------------------------------------

FORMATS = ["fp16", "e4m3fn:overflow=saturate", "e5m2"]
LOST = ("underflow", "saturated", "overflow", "invalid")


def drifting(step: int, seed: int, n: int = 40) -> np.ndarray:
    """Magnitudes that rise and fall by the steps, with zeros, NaN and infinity among them."""
    rng = np.random.default_rng([seed, step])
    x = np.exp2(rng.uniform(-12, 3, n) + 16 * math.sin(step / 3 + seed)) * rng.choice([-1, 1], n)
    x[rng.integers(0, n, 4)] = 0.0
    x[:2] = np.nan, np.inf
    return x.astype(np.float32)


def is_safe(x: np.ndarray, to: str, scale: float, tolerance: float) -> tuple[bool, float]:
    """Value by value, by the exact definition: whether a step is safe, and the percentage lost."""
    cast, values = make_cast(to), [float(v) for v in x if math.isfinite(v) and v]
    became = [round_exact(cast, Fraction(v) * Fraction(scale)).outcome for v in values]
    lost = sum(one in LOST for one in became) / len(values)
    return lost <= tolerance and "overflow" not in became, 100 * lost


TENSORS = {("fc1.weight", "weight"): 0, ("fc1", "activation"): 1, ("fc1", "activation_gradient"): 2}
STEPS = tuple(range(0, 60, 3))


def loss_scale(step: int) -> float:
    return 2.0 ** (step % 5)


@pytest.fixture(scope="module")
def trace() -> Trace:
    made = Trace()
    for step in STEPS:
        made.scalar(step, "loss_scale", loss_scale(step))
        for (name, kind), seed in TENSORS.items():
            carried = loss_scale(step) if kind == "activation_gradient" else 1.0
            made.record(name, kind, drifting(step, seed) * np.float32(carried), step)
    return made


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("patience", [1, 3])
def test_rows_are_what_a_search_by_the_exact_definition_finds(
    trace: Trace, tolerance: float, patience: int
) -> None:
    rows = schedule.first_safe(
        trace, formats=FORMATS, scales=[1, 2.0**6], tolerance=tolerance, patience=patience
    )
    assert len(rows) == len(TENSORS) * len(FORMATS) * 2
    seen = set()
    for row in rows:
        seed = TENSORS[row.name, row.kind]
        judged = [is_safe(drifting(step, seed), row.to, row.scale, tolerance) for step in STEPS]
        safe, lost = [one[0] for one in judged], [one[1] for one in judged]
        assert row.steps == len(STEPS)
        assert row.unsafe_steps == safe.count(False)
        assert row.worst_percent == max(lost)
        assert row.worst_step == STEPS[lost.index(max(lost))]
        unsafe = [step for step, ok in zip(STEPS, safe, strict=True) if not ok]
        assert row.last_unsafe == (max(unsafe) if unsafe else None)
        starts = [step for k, step in enumerate(STEPS) if all(safe[k:])
                  and len(STEPS) - k >= patience]  # fmt: skip
        assert row.step == (min(starts) if starts else None)
        for k, step in enumerate(STEPS):
            windows = range(max(0, k - patience + 1), min(k, len(safe) - patience) + 1)
            want = any(all(safe[w : w + patience]) for w in windows)
            assert any(within(span, step) for span in row.spans) is want
        seen.add((row.step is None, len(row.spans)))
    assert len(seen) > 2 or tolerance == 0, "the data tells rows apart"


def test_gradients_are_counted_without_the_loss_scale_they_carry() -> None:
    made = Trace(metadata={"recorded_loss_scale": 2.0**10})
    for step in range(4):
        made.record("fc1", "activation_gradient", np.float32([2.0**-20]), step)
        made.record("fc1", "activation", np.float32([2.0**-20]), step)
    rows = {row.kind: row for row in schedule.first_safe(made, formats="fp16")}
    assert rows["activation_gradient"].step is None
    assert rows["activation"].step == 0
    [scaled] = schedule.first_safe(made, formats="fp16", kinds="activation_gradient", scales=2**10)
    assert scaled.step == 0


def test_one_overflow_makes_a_step_unsafe_at_any_tolerance() -> None:
    made = Trace()
    for step in range(6):
        made.record("fc1", "activation", np.float32([1.0, 7e4 if step == 2 else 1.0]), step)
    [row] = schedule.first_safe(made, formats="fp16", tolerance=1.0)
    assert (row.step, row.last_unsafe, row.spans) == (3, 2, (Span(3),))
    [row] = schedule.first_safe(made, formats="fp16:overflow=saturate", tolerance=0.5)
    assert row.step == 0


def test_patience_is_counted_to_the_end_of_the_trace() -> None:
    made = Trace()
    for step in range(10):
        made.record("fc1", "weight", np.float32([1e-9 if step < 8 else 1.0]), step)
    for patience, want in ((2, 8), (3, None)):
        [row] = schedule.first_safe(made, formats="fp16", patience=patience)
        assert row.step == want


def test_rows_are_json_and_a_table(trace: Trace) -> None:
    rows = schedule.first_safe(trace, formats="fp16", tolerance=0.5)
    facts = json.loads(json.dumps([row.to_json() for row in rows]))
    assert [one["step"] for one in facts] == [row.step for row in rows]
    assert facts[0]["spans"] == [
        {"first_step": s.first_step, "last_step": s.last_step} for s in rows[0].spans
    ]
    lines = schedule.table(rows).splitlines()
    assert lines[0].split() == ["tensor", "kind", "format", "scale", "safe", "from", "unsafe",
                                "worst", "loss", "at", "step"]  # fmt: skip
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.startswith(row.name)
        assert f" {row.unsafe_steps} of {row.steps} " in line
    assert schedule.table([]) == ""


def test_what_cannot_be_asked_is_refused(trace: Trace) -> None:
    with pytest.raises(InputError, match="did you mean 'fc1'"):
        schedule.first_safe(trace, names="fc11")
    with pytest.raises(InputError, match="kind 'update' is not in trace"):
        schedule.first_safe(trace, kinds="update")
    with pytest.raises(UnknownFormatError, match="e4m4"):
        schedule.first_safe(trace, formats="e4m4")
    with pytest.raises(InputError, match="patience 0: must be an integer from 1 on"):
        schedule.first_safe(trace, patience=0)
    with pytest.raises(InputError, match="tolerance 2"):
        schedule.first_safe(trace, tolerance=2)
    with pytest.raises(InputError, match="power of two"):
        schedule.first_safe(trace, scales=3.0)
    odd = Trace(metadata={"recorded_loss_scale": 1000.0})
    odd.record("fc1", "weight_gradient", np.float32([1.0]), 0)
    with pytest.raises(InputError, match="powers of two only"):
        schedule.first_safe(odd)
    with pytest.raises(InputError, match="not a mix"):
        schedule.table([1])


# --- places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "products", "want"),
    [
        ("fc", "activation", False, ("fc", None, "activation")),
        ("blocks.0.fc.input", "activation", True, ("blocks.0.fc", None, "activation")),
        ("encoder.input", "activation", False, ("encoder.input", None, "activation")),
        ("a.matmul@m.py:3.input1", "activation", True, ("a", "matmul", "activation")),
        ("a.b.add@m.py:3#2", "activation_gradient", False, ("a.b", "add", "gradient")),
        ("square@m.py:3", "activation", False, ("", "square", "activation")),
        ("a.fc.weight", "weight", False, ("a.fc", None, "weight")),
        ("scale", "weight", False, ("", None, "weight")),
        ("a.fc.weight.exp_avg", "optimizer_state", False, ("a.fc", None, "state")),
    ],
)
def test_place(name: str, kind: str, products: bool, want: tuple[str, str | None, str]) -> None:
    assert place(name, kind, products=products) == want


@pytest.mark.parametrize("kind", ["weight_gradient", "update"])
def test_kinds_without_a_format_in_policies_have_no_place(kind: str) -> None:
    assert place("fc.weight", kind) is None


# --- overrides ---------------------------------------------------------------------------------


def test_overrides_say_at_each_recorded_step_what_the_exact_definition_says(trace: Trace) -> None:
    options = {"tolerance": 0.2, "patience": 2}
    made = schedule.policy(
        schedule.first_safe(trace, formats=["fp16", "e5m2"], **options), "uniform:float32"
    )
    kinds = {"weight": 0, "activation": 1, "gradient": 2}
    found = set()
    for kind, seed in kinds.items():
        good = {
            to: [is_safe(drifting(step, seed), to, 1.0, 0.2)[0] for step in STEPS]
            for to in ("fp16", "e5m2")
        }
        for k, step in enumerate(STEPS):
            fits = {
                to for to, safe in good.items()
                if any(all(safe[w : w + 2]) for w in (k - 1, k) if 0 <= w <= len(STEPS) - 2)
            }  # fmt: skip
            want = "float8_e5m2" if "e5m2" in fits else "float16" if fits else "float32"
            assert str(made.cast(kind, "linear", "fc1", step)) == want
            found.add(want)
            assert str(made.cast(kind, "linear", "fc2", step)) == "float32"
    assert found == {"float8_e5m2", "float16", "float32"}


def test_tensors_with_one_format_must_all_be_safe() -> None:
    made = Trace()
    for step in range(8):
        made.record("fc.weight", "weight", np.float32([1e-9 if step < 2 else 1.0]), step)
        made.record("fc.bias", "weight", np.float32([1e-9 if step > 5 else 1.0]), step)
    [override] = schedule.overrides(schedule.first_safe(made, formats="fp16"))
    assert (override.module, override.kind) == ("fc", "weight")
    assert (override.first_step, override.last_step) == (2, 5)


def test_module_names_are_no_patterns() -> None:
    made = Trace()
    for step in range(3):
        made.record("heads[0].weight", "weight", np.float32([1.0]), step)
    [override] = schedule.overrides(schedule.first_safe(made, formats="fp16"))
    assert override.matches("weight", "linear", "heads[0]")
    assert not override.matches("weight", "linear", "heads0")


def test_what_no_policy_reaches_gives_no_override() -> None:
    made = Trace()
    for step in range(3):
        for name, kind in (("fc.weight", "update"), ("fc.weight", "weight_gradient"),
                           ("mean@t.py:1", "activation"), ("scale", "weight")):  # fmt: skip
            made.record(name, kind, np.float32([1.0]), step)
    rows = schedule.first_safe(made, formats="fp16")
    assert [row.step for row in rows] == [0, 0, 0, 0]
    assert schedule.overrides(rows) == ()


def test_a_scale_becomes_a_part_of_the_cast() -> None:
    made, x = Trace(), np.float32([2.0**-12, 0.011, -0.3, 0.0])
    for step in range(3):
        made.record("fc.weight", "weight", x, step)
    [row] = schedule.first_safe(made, formats="e4m3fn", scales=2.0**9)
    [override] = schedule.overrides([row])
    assert row.step == 0
    assert schedule.first_safe(made, formats="e4m3fn")[0].step is None
    for value, got in zip(x, override.to(x), strict=True):
        rounded = round_exact(make_cast("e4m3fn"), Fraction(float(value)) * 2**9)
        want = value_of(fpemu.finfo("e4m3fn"), rounded.code)
        assert float(got) * 2**9 == float(want)
    bias = Trace()
    for step in range(3):
        bias.record("fc.bias", "weight", np.float32([1.0]), step)
    [other] = schedule.first_safe(bias, formats="e4m3fn")
    with pytest.raises(InputError, match="one cast for both"):
        schedule.overrides([row, other])


def test_a_schedule_is_a_policy_that_can_be_kept_as_text(trace: Trace) -> None:
    rows = schedule.first_safe(trace, formats=["bf16", "fp16"], tolerance=0.5)
    made = schedule.policy(rows, find_policy("uniform:float32"))
    assert made.overrides
    assert Policy.from_str(str(made)) == made
    assert Policy.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_rows_that_no_run_could_have_together_are_refused(trace: Trace) -> None:
    rows = schedule.first_safe(trace, formats="fp16", scales=[1, 1024])
    with pytest.raises(InputError, match="comes twice, at scales 1 and 1024"):
        schedule.overrides(rows)
    gradients = [row for row in rows if row.kind == "activation_gradient"]
    with pytest.raises(InputError, match="comes twice, at scales 1 and 1024"):
        schedule.overrides(gradients)
    others = schedule.first_safe(trace, formats="e5m2", kinds="activation_gradient")
    with pytest.raises(InputError, match="a run has one loss scale"):
        schedule.overrides([gradients[1], *others])
    assert schedule.overrides(gradients[1:]) is not None
    with pytest.raises(InputError, match="int is no row"):
        schedule.overrides([1])  # type: ignore[list-item]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-30, 3), min_size=1, max_size=12), st.integers(1, 4))
def test_a_first_safe_step_is_safe_and_the_one_before_is_not(
    exponents: list[int], patience: int
) -> None:
    made = Trace()
    for step, exponent in enumerate(exponents):
        made.record("fc", "activation_gradient", np.float32([2.0**exponent]), step)
    [row] = schedule.first_safe(made, formats="fp16", patience=patience)
    fits = [exponent >= -24 for exponent in exponents]
    if row.step is None:
        assert not all(fits[-patience:]) or len(fits) < patience
    else:
        assert all(fits[row.step :])
        assert row.step == 0 or not fits[row.step - 1]
        assert len(fits) - row.step >= patience
