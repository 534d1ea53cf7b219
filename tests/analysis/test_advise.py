"""Advice: formats, scales, loss scale, updates, memory; against plain counting and real errors."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import fpemu
from fpemu.analysis import Trace, advise
from fpemu.analysis.advice import STATUSES, Advice
from fpemu.analysis.advice.noise import noise_of
from fpemu.analysis.advice.policies import scaled_cast
from fpemu.analysis.advice.search import Alternative, evolve, front, greedy
from fpemu.analysis.parts import Parts
from fpemu.analysis.updates import update_tally
from fpemu.cast import make_cast
from fpemu.errors import InputError
from fpemu.policies import Rule, find_policy

# --- traces ----------------------------------------------------------------------------------


def normal(rng: np.random.Generator, scale: float, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def run(
    gradients: dict[str, float],
    activations: dict[str, float] | None = None,
    *,
    carried: float | None = None,
    steps: int = 3,
) -> Trace:
    """A trace of linear layers whose gradients and results have the standard deviations given."""
    rng, trace = np.random.default_rng(0), Trace()
    for step in range(steps):
        times = carried or 1.0
        if carried:
            trace.scalar(step, "loss_scale", carried)
        for layer, size in gradients.items():
            result = (activations or {}).get(layer, 1.0)
            trace.record(layer, "activation", normal(rng, result, 32, 16), step)
            trace.record(f"{layer}.weight", "weight", normal(rng, 0.1, 16, 16), step)
            trace.record(layer, "activation_gradient", normal(rng, size * times, 32, 16), step)
            trace.record(f"{layer}.weight", "weight_gradient", normal(rng, size * times, 16, 16),
                         step)  # fmt: skip
            trace.record(f"{layer}.weight", "update", normal(rng, 1e-4, 16, 16), step)
    return trace


def topics(advice: Advice) -> list[str]:
    return [line.topic for line in advice.lines]


# --- statuses --------------------------------------------------------------------------------


def line_of(advice: Advice, topic: str) -> str:
    return next(line.text for line in advice.lines if line.topic == topic)


def test_a_safe_run_is_called_safe_and_nothing_is_changed() -> None:
    advice = advise(run({"fc1": 1e-2, "fc2": 1e-1}), formats=["fp16", "bf16"])
    assert advice.status == "safe"
    assert advice.headline == "float16 is safe for this run as it is: change nothing."
    assert (advice.keep, advice.loss_scale_advised) == ((), 1.0)
    assert topics(advice)[0] == "verdict"
    assert {tensor.scaled for tensor in advice.tensors} == {""}
    base = find_policy("torch.autocast.cuda.float16")
    policy = advice.policy()
    assert policy.overrides == base.overrides == ()
    assert policy.operations == base.operations


def test_small_gradients_need_a_loss_scale_that_is_safe_for_each_of_them() -> None:
    trace = run({"fc1": 1e-7, "fc2": 1e-5})
    advice = advise(trace, formats=["fp16"])
    assert advice.status == "safe_with_loss_scale"
    assert advice.keep == ()
    safe = advice.loss_scale
    assert safe is not None
    assert safe.low is not None
    assert safe.high is not None
    assert safe.low <= advice.loss_scale_advised <= safe.high
    for scale, good in ((advice.loss_scale_advised, True), (safe.low / 2, False), (1.0, False)):
        lost = []
        for record in trace.records():
            if record.kind.endswith("gradient"):
                outcome = record.tally.outcome("fp16", scale)
                assert not outcome.overflow
                lost.append(outcome.lost_fraction)
        # by tensor over all steps: no step alone is far from that
        assert (max(lost) <= 2 * advice.tolerance) == good
    assert advice.policy().loss_scale == advice.loss_scale_advised
    assert advice.headline.endswith(f"({advice.loss_scale_advised:.0f}).")


@pytest.mark.parametrize("carried", [2.0**10, 2.0**20])
def test_gradients_that_carried_a_loss_scale_are_judged_without_it(carried: float) -> None:
    plain = advise(run({"fc1": 1e-7, "fc2": 1e-5}), formats=["fp16"])
    scaled = advise(run({"fc1": 1e-7, "fc2": 1e-5}, carried=carried), formats=["fp16"])
    assert scaled.loss_scale_advised == plain.loss_scale_advised
    assert scaled.status == plain.status


def test_an_activation_beyond_the_range_keeps_its_layer() -> None:
    trace = run({"fc1": 1e-2, "fc2": 1e-2, "fc3": 1e-2}, {"fc2": 1e5})
    advice = advise(trace, formats=["fp16", "bf16"])
    assert advice.status == "needs_changes"
    [kept] = advice.keep
    overflow = trace.total("fc2", "activation").outcome("fp16").overflow
    assert (kept.layer, kept.to, kept.wanted) == ("fc2", "bfloat16", "float16")
    assert kept.reason == f"in float16, {overflow:,} values of its activation fc2 overflow"
    assert kept.damage >= 1.0
    policy = advice.policy()
    assert str(policy.cast("activation", "linear", "fc2")) == "bfloat16"
    assert str(policy.cast("activation", "linear", "fc1")) == "float16"


def test_layers_to_keep_are_ranked_by_damage() -> None:
    trace = run({f"fc{k}": 1e-2 for k in range(4)}, {"fc1": 1e5, "fc3": 1e5})
    trace.record("fc3.weight", "weight", np.full((16, 16), 1e6, np.float32), step=0)
    advice = advise(trace, formats=["fp16"])
    assert [one.layer for one in advice.keep] == ["fc3", "fc1"]
    assert [one.to for one in advice.keep] == ["float32", "float32"]
    assert advice.keep[0].damage > advice.keep[1].damage
    assert advice.policy().rule("linear", "fc3") is Rule.FLOAT32
    assert advice.policy().rule("linear", "fc2") is Rule.LOWER


def test_gradients_that_one_loss_scale_cannot_hold_keep_the_fewest_layers() -> None:
    trace = run({"fc1": 1e-7, "fc2": 1e-6, "fc3": 1e-6, "loud": 1e6})
    advice = advise(trace, formats=["fp16", "bf16"])
    assert [one.layer for one in advice.keep] == ["loud"]
    assert advice.loss_scale_advised > 1.0
    rows = [t for t in advice.tensors if t.kind.endswith("gradient") and t.layer != "loud"]
    assert all(row.underflow_percent + row.saturated_percent <= 0.1 for row in rows)
    assert {row.scaled for row in rows} == {"loss"}


def test_infinity_in_the_run_is_broken_unless_a_scaler_skipped_the_step() -> None:
    trace = run({"fc1": 1e-2})
    trace.record("fc1", "activation_gradient", np.float32([np.inf, 1.0]), step=3)
    assert advise(trace, formats=["fp16"]).status == "broken"
    trace.event(3, "", "skip", "the scaler skipped the step")
    assert advise(trace, formats=["fp16"]).status == "safe"


def test_a_trace_without_values_gives_no_advice() -> None:
    empty = Trace()
    assert advise(empty).status == "no_data"
    empty.record("fc1", "activation", np.zeros((2, 2), np.float32), step=0)
    advice = advise(empty)
    assert (advice.status, advice.lines) == ("no_data", ())
    assert {advice.status} < set(STATUSES)


def test_losses_and_what_autocast_keeps_wide_are_not_judged() -> None:
    trace = run({"fc1": 1e-2})
    trace.record("mul@train.py:4", "activation", np.float32(1e6), step=0)  # a scalar
    trace.record("attention.softmax@model.py:9", "activation", np.float32([1e-30, 1.0]), step=0)
    advice = advise(trace, formats=["fp16"])
    assert advice.status == "safe"
    [softmax] = [t for t in advice.tensors if "softmax" in t.name]
    assert (softmax.to, softmax.reason) == ("float32", "autocast computes it in float32")
    assert not any(t.name.startswith("mul") for t in advice.tensors)


# --- formats and their scales ----------------------------------------------------------------


def test_the_trace_s_own_format_comes_first() -> None:
    trace = run({"fc1": 1e-2})
    assert [str(f) for f in advise(trace).formats] == ["float16", "bfloat16"]
    trace.metadata["to"] = make_cast("e4m3fn").to_json()
    wanted = [str(f) for f in advise(trace).formats]
    assert wanted == ["float8_e4m3fn", "float8_e5m2", "bfloat16"]


def test_eight_bits_get_scales_of_their_own_where_each_tensor_is_safe() -> None:
    trace = run({"fc1": 1e-6, "fc2": 1e-3}, {"fc1": 1e4})
    advice = advise(trace, formats=["e4m3fn", "e5m2", "bf16"])
    assert (advice.status, advice.keep, advice.loss_scale_advised) == ("needs_changes", (), 1.0)
    for row in advice.tensors:
        if row.to == "float32":
            assert row.kind == "weight_gradient"
            continue
        outcome = trace.total(row.name, row.kind).outcome(row.to, row.scale)
        assert not outcome.overflow
        assert outcome.lost_fraction <= advice.tolerance
        assert row.underflow_percent == pytest.approx(100 * outcome.underflow_fraction)
        assert (row.low or math.inf) <= row.scale <= (row.high or 0.0)
        assert row.margin_bits == min(math.log2(row.high / row.scale),
                                      math.log2(row.scale / row.low))  # fmt: skip
    assert {row.gradient_to for row in advice.layers} == {"float8_e5m2"}
    assert "the gradients of its results, in float8_e5m2, by 2^" in line_of(advice, "scales")
    assert advice.layers[0].activation_scale < 2**-4


def test_a_wide_spread_that_eight_bits_lose_keeps_the_layer() -> None:
    rng, trace = np.random.default_rng(1), run({"fc1": 1e-2})
    spread = (rng.choice([-1, 1], (64, 64)) * np.exp2(rng.uniform(-30, 10, (64, 64))))
    trace.record("fc2", "activation", spread.astype(np.float32), step=0)
    trace.record("fc2.weight", "weight", normal(rng, 0.1, 16, 16), step=0)
    advice = advise(trace, formats=["e4m3fn", "bf16"])
    assert [(one.layer, one.to) for one in advice.keep] == [("fc2", "bfloat16")]
    assert "of the non-zero values of what it reads" in advice.keep[0].reason
    assert "underflow" in advice.keep[0].reason


def test_a_format_of_another_bias_is_a_scale() -> None:
    x = normal(np.random.default_rng(3), 1e-3, 5000)
    for name, scale in (("e4m3fn", 2.0**12), ("e5m2", 2.0**-7), ("fp4", 2.0**9), ("fp6", 64.0)):
        if name == "fp6":
            name = "float6_e2m3fn"
        cast = make_cast(f"{name}:overflow=saturate")
        want = fpemu.round(x * np.float32(scale), cast) / np.float32(scale)
        np.testing.assert_array_equal(fpemu.round(x, scaled_cast(cast, scale)), want)


def test_scales_at_which_values_leave_float32_go_as_far_as_they_can() -> None:
    cast = scaled_cast(make_cast("e5m2"), 2.0**300)
    assert cast.format.smallest_subnormal == 2.0**-149
    assert scaled_cast(make_cast("e5m2"), 2.0**-300).format.max <= np.finfo(np.float32).max


# --- layers ----------------------------------------------------------------------------------


def test_layers_are_modules_and_operations_outside_of_them() -> None:
    trace = Trace()
    one = np.float32([[1.0, 2.0]])
    for name, kind in (
        ("blocks.0.fc.weight", "weight"), ("blocks.0.fc", "activation"),
        ("blocks.0.add@model.py:3", "activation"), ("blocks.0.add@model.py:3#2", "activation"),
        ("blocks.0.fc.weight.exp_avg", "optimizer_state"), ("lstm[0]", "activation"),
        ("Net.relu@model.py:9", "activation"), ("fc.input", "activation"), ("fc", "activation"),
        ("q.matmul@model.py:7.input0", "activation"), ("alone", "weight"),
    ):  # fmt: skip
        trace.record(name, kind, one, step=0)
    advice = advise(trace, formats=["fp16"])
    found = {row.layer: (row.module, row.operation, row.matmul) for row in advice.layers}
    assert found == {
        "blocks.0.fc": ("blocks.0.fc", None, True),
        "blocks.0": ("blocks.0", None, False),
        "lstm": ("lstm", None, False),
        "Net.relu": (None, "relu", False),
        "fc": ("fc", None, False),
        "q.matmul": (None, "matmul", True),
        "alone": ("alone", None, True),
    }


def test_an_operation_outside_of_modules_is_kept_by_its_name() -> None:
    trace = run({"fc1": 1e-2})
    trace.record("Net.add@model.py:9", "activation", np.float32([[7e4, 1.0]]), step=0)
    policy = advise(trace, formats=["fp16", "bf16"]).policy()
    assert policy.rule("add", "") is policy.rule("add", "any") is Rule.FLOAT32
    assert policy.rule("mul", "") is Rule.KEEP


# --- the predicted signal to noise ratio -----------------------------------------------------


DATA = {
    "normal": lambda rng: rng.standard_normal(60_000),
    "uniform": lambda rng: rng.uniform(-1, 1, 60_000),
    "lognormal": lambda rng: rng.lognormal(0, 2, 60_000) * rng.choice([-1, 1], 60_000),
    "laplace": lambda rng: rng.laplace(0, 1, 60_000),
    "positive": lambda rng: np.maximum(rng.standard_normal(60_000), 0),
    "powers": lambda rng: np.exp2(rng.integers(-4, 5, 60_000)),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("to", ["fp16", "bf16", "e4m3fn", "e5m2", "float4_e2m1fn",
                                "e4m3fn:toward_zero"])  # fmt: skip
def test_the_prediction_is_within_0_6_db_while_little_is_lost(kind: str, to: str) -> None:
    x = DATA[kind](np.random.default_rng(7)).astype(np.float32)
    cast, counts = make_cast(to), fpemu.tally(x)
    tried = 0
    for scale in (2.0**k for k in range(-18, 12, 3)):
        outcome = counts.outcome(cast, scale)
        if outcome.overflow + outcome.saturated or outcome.underflow_fraction > 0.2:
            continue
        true = fpemu.error(x, fpemu.round(x * np.float32(scale), cast) / np.float32(scale)).sqnr
        [noise] = noise_of(Parts.of(counts), cast, [scale])
        tried += 1
        if math.isinf(true):
            assert noise.sqnr_db is None
        else:
            assert noise.sqnr_db == pytest.approx(true, abs=0.6)
    assert tried or to == "float4_e2m1fn"


def test_the_prediction_is_rough_but_finite_where_much_saturates() -> None:
    x = np.random.default_rng(8).standard_normal(50_000).astype(np.float32)
    for scale in (2.0**8, 2.0**10):
        cast = make_cast("e4m3fn:overflow=saturate")
        true = fpemu.error(x, fpemu.round(x * np.float32(scale), cast) / np.float32(scale)).sqnr
        [noise] = noise_of(Parts.of(fpemu.tally(x)), cast, [scale])
        assert noise.sqnr_db == pytest.approx(true, abs=4)


# --- updates ---------------------------------------------------------------------------------


def test_counted_updates_are_used_and_the_estimate_says_that_it_is_one() -> None:
    trace = run({"fc1": 1e-2})
    rng = np.random.default_rng(0)
    weight, update = normal(rng, 0.1, 16, 16), normal(rng, 1e-4, 16, 16)
    [row] = advise(trace, formats=["bf16"]).updates
    assert row.estimated
    trace.count("fc1.weight", "update", 0, update_tally(weight, update))
    [exact] = advise(trace, formats=["bf16"]).updates
    assert not exact.estimated
    held = fpemu.round(weight, "bf16")
    lost = fpemu.round(held + update.astype(np.float64), "bf16") == held
    assert exact.lost_percent == pytest.approx(100 * lost.mean())
    assert row.lost_percent == pytest.approx(exact.lost_percent, abs=6)
    assert row.lost_stochastic_percent == pytest.approx(exact.lost_stochastic_percent, abs=6)
    assert exact.advice == "stochastic rounding, or a float32 master copy"
    [line] = [one for one in advise(trace, formats=["bf16"]).lines if one.topic == "updates"]
    assert "counted" in line.why


def test_large_updates_can_be_held_and_tiny_ones_need_a_master_copy() -> None:
    rng, trace = np.random.default_rng(0), Trace()
    weight = normal(rng, 0.1, 64, 64)
    for name, size in (("large", 1e-1), ("tiny", 1e-9)):
        trace.record(f"{name}.weight", "weight", weight, step=0)
        trace.count(f"{name}.weight", "update", 0, update_tally(weight, weight * np.float32(size)))
    rows = {row.name: row.advice for row in advise(trace, formats=["bf16"]).updates}
    assert rows == {"large.weight": "can be held in it", "tiny.weight": "a float32 master copy"}


# --- memory and the front --------------------------------------------------------------------


def test_memory_is_by_kind_and_format() -> None:
    advice = advise(run({"fc1": 1e-2, "fc2": 1e-2}, {"fc2": 1e6}), formats=["fp16"])
    rows = {(row.kind, row.format): (row.bytes, row.float32_bytes) for row in advice.memory}
    assert rows["activation", "float16"] == (32 * 16 * 2, 32 * 16 * 4)
    assert rows["activation", "float32"] == (32 * 16 * 4, 32 * 16 * 4)
    assert rows["master_weight", "float32"] == (16 * 16 * 4, 0)
    whole = [row for row in advice.memory if row.kind != "model"]
    assert rows["model", ""] == (sum(r.bytes for r in whole), sum(r.float32_bytes for r in whole))
    assert not any(row.kind == "update" for row in advice.memory)
    said = line_of(advice, "memory")
    assert f"{rows['model', ''][0]:,} bytes, {16 * 16 * 4:,} of them for float32 master" in said


def brute(table: list[list[Alternative]]) -> list[tuple[int, float]]:
    """Every assignment; of those that no other beats, memory and damage."""
    every = {
        (sum(one.memory for one in picks), sum(sorted(one.damage for one in picks)))
        for picks in itertools.product(*table)
    }
    best = [p for p in every if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in every)]
    return sorted(best)


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_the_front_of_four_layers_and_three_formats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = [
        [Alternative(name, int(bits * size), float(damage)) for name, bits, damage in zip(
            ("float32", "float16", "float8_e4m3fn"), (4, 2, 1), (0.0, *np.sort(rng.random(2))),
            strict=True)]
        for size in rng.integers(1, 50, 4)
    ]  # fmt: skip
    found = evolve(table, seed=seed)
    assert [(p.memory, p.damage) for p in found] == brute(table)
    corners = greedy(table)
    assert front(corners) == corners
    assert {corners[0].memory, corners[-1].damage} == {found[0].memory, found[-1].damage}
    assert evolve(table, seed=seed) == found


def test_the_front_of_an_advice_is_that_of_every_assignment() -> None:
    spread = {"fc1": 1e-4, "fc2": 1e-2, "fc3": 3e-3, "fc4": 1e-1}
    trace, formats = run(spread), ["e5m2", "bf16"]
    advice = advise(trace, formats=formats, memory=0.5)
    options: list[list[Alternative]] = []
    for layer in spread:
        one = Trace()  # of the layer alone: what adds up is right if each part is
        for record in trace.records():
            if record.name.startswith(layer):
                one.add(record)
        row = advise(one, formats=formats, memory=0.5).pareto
        options.append([Alternative("", p.memory_bytes, p.damage) for p in row])
    want = brute(options)
    got = [(p.memory_bytes, p.damage) for p in advice.pareto]
    assert len(got) <= 24
    assert {memory for memory, _ in got} <= {memory for memory, _ in want}
    by_memory = dict(want)
    assert all(damage == pytest.approx(by_memory[memory]) for memory, damage in got)
    assert got[0][0] == want[0][0]
    assert got[-1] == pytest.approx(want[-1])


def test_a_memory_goal_is_kept_with_the_least_damage() -> None:
    trace = run({"fc1": 1e-4, "fc2": 1e-2, "fc3": 3e-3})
    free = advise(trace, formats=["bf16", "e5m2"])
    whole = free.memory[-1].float32_bytes
    tight = advise(trace, formats=["bf16", "e5m2"], memory=0.4)
    [picked] = [choice for choice in tight.pareto if choice.chosen]
    assert picked.memory_bytes <= 0.4 * whole
    better = [c for c in tight.pareto if c.memory_bytes <= 0.4 * whole]
    assert picked.damage == min(c.damage for c in better)
    assert {row.layer: row.to for row in tight.layers} == dict(picked.formats)
    assert {row.to for row in free.layers} == {"bfloat16"}
    assert "search" in topics(tight)
    assert advise(trace, formats=["bf16", "e5m2"], memory=0.4 * whole).pareto == tight.pareto


def test_a_goal_that_no_format_reaches_is_said_to_be_out_of_reach() -> None:
    advice = advise(run({"fc1": 1e-2}), formats=["fp16"], memory=100)
    [line] = [one for one in advice.lines if one.topic == "search"]
    assert line.text.startswith("The memory goal of 100 bytes cannot be reached")


def test_evaluate_decides_among_the_finalists() -> None:
    trace = run({"fc1": 1e-4, "fc2": 1e-2})
    asked: list[str] = []

    def evaluate(policy) -> float:
        asked.append(policy.name)
        kept = policy.rule("linear", "fc1") is Rule.FLOAT32
        return 1.0 if kept else 2.0

    advice = advise(trace, formats=["fp16"], memory=0.9, evaluate=evaluate)
    assert 2 <= len(asked) <= 8
    [picked] = [choice for choice in advice.pareto if choice.chosen]
    assert picked.measured == 1.0
    assert dict(picked.formats)["fc1"] == "float32"
    assert {row.layer: row.to for row in advice.layers} == dict(picked.formats)
    measured = [choice.measured for choice in advice.pareto if choice.measured is not None]
    assert sorted(measured) == sorted([1.0] * measured.count(1.0) + [2.0] * measured.count(2.0))


def test_a_run_that_broke_is_the_worst_and_a_wrong_answer_is_refused() -> None:
    trace = run({"fc1": 1e-2})
    advice = advise(trace, formats=["fp16"], evaluate=lambda policy: math.nan)
    assert {c.measured for c in advice.pareto if c.measured is not None} == {math.inf}
    json.dumps(advice.to_json(), allow_nan=False)
    with pytest.raises(InputError, match="evaluate returned None: it must return a number"):
        advise(trace, formats=["fp16"], evaluate=lambda policy: None)


# --- policies --------------------------------------------------------------------------------


def test_a_policy_is_made_of_any_base() -> None:
    trace = run({"fc1": 1e-7, "fc2": 1e-5, "odd[0]": 1e-5}, {"fc2": 1e6, "odd[0]": 1e6})
    advice = advise(trace, formats=["fp16", "bf16"])
    for base in ("torch.half", "apex.O2", "uniform:fp16", find_policy("caffe2.float16")):
        policy = advice.policy(base)
        assert policy.loss_scale == advice.loss_scale_advised
        for module in ("fc2", "odd[0]"):
            assert str(policy.cast("weight", "linear", module)) == "bfloat16"
        assert str(policy.cast("weight", "linear", "odd0")) == "float16"
    own = advise(trace, formats=["fp16", "bf16"]).policy("keras.mixed_float16")
    assert own.name.startswith("keras.")


def test_eight_bits_are_for_products_whatever_the_base() -> None:
    advice = advise(run({"fc1": 1e-6}), formats=["e4m3fn", "e5m2"])
    [row] = advice.layers
    lists = "torch.autocast.cuda.float16; compute: e4m3fn"
    for base in (None, "uniform:e4m3fn", "fp8_hybrid", lists):
        policy = advice.policy(base)
        assert policy.rule("linear", "fc1") is Rule.LOWER
        assert policy.rule("mse_loss") in (Rule.KEEP, Rule.FLOAT32)
        assert str(policy.result_cast("linear", "fc1")) == "float32"
        gradient = policy.cast("gradient", "linear", "fc1")
        assert gradient is not None
        assert gradient.format.bias == 15 + round(math.log2(row.gradient_scale))
        assert type(policy).from_json(policy.to_json()) == policy


def test_names_that_no_module_can_have_are_left_out_of_the_policy() -> None:
    advice = advise(run({"my layer": 1e-2}, {"my layer": 1e6}), formats=["fp16"])
    assert [one.layer for one in advice.keep] == ["my layer"]
    assert advice.policy().overrides == ()


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formats": []}, "at least one is needed"),
        ({"formats": ["e8m0"]}, "advice is for signed formats"),
        ({"formats": ["fp16:stochastic"]}, "stochastic"),
        ({"formats": ["fp17"]}, "unknown format"),
        ({"tolerance": 2}, "must be a fraction"),
        ({"memory": 0}, "must be bytes, or below 1 the share"),
        ({"memory": "small"}, "must be bytes, or below 1 the share"),
        ({"memory": math.nan}, "must be bytes, or below 1 the share"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message) -> None:
    with pytest.raises((InputError, fpemu.FpemuError), match=message):
        advise(run({"fc1": 1e-2}, steps=1), **options)


def test_json_holds_everything_and_no_nan() -> None:
    advice = advise(run({"fc1": 1e-7}, {"fc1": 1e6}), formats=["fp16", "bf16"], memory=0.9)
    facts = json.loads(json.dumps(advice.to_json(), allow_nan=False))
    assert facts["schema"] == 1
    assert facts["formats"] == ["float16", "bfloat16"]
    assert {"status", "headline", "lines", "tensors", "layers", "keep", "loss_scale", "updates",
            "memory", "pareto", "tolerance", "loss_scale_advised"} < set(facts)  # fmt: skip
    assert facts["tensors"][0]["name"] == "fc1"
    assert facts["pareto"][0]["formats"].keys() == {"fc1"}
