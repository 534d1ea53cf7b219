"""Replays, against plain loops over the arrays that a trace was made of, and against real runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

import fpemu
from fpemu.analysis import lossscale
from fpemu.analysis.cli import main
from fpemu.analysis.lossscale.replayed import Replay
from fpemu.analysis.lossscale.trajectory import marks, span, spark
from fpemu.analysis.trace import Trace
from fpemu.errors import FpemuError, InputError
from fpemu.tallies import Tally

#: What shares no code with fpemu.
PEERS = {"float16": np.float16, "float8_e5m2": ml_dtypes.float8_e5m2}

Arrays = dict[int, dict[str, np.ndarray]]  # step -> name -> true gradient


def gradients(seed: int, steps: int, layers: int = 3) -> Arrays:
    """Gradients over many binades, whose size wanders from step to step."""
    random = np.random.default_rng(seed)
    size, made = random.normal(-12, 4, layers), {}
    for step in range(steps):
        size = size + random.normal(0, 1.5, layers)
        made[step] = {
            f"fc{layer}.weight": np.float32(
                random.normal(0, 1, 40) * 2.0 ** (size[layer] + random.uniform(-8, 0, 40))
            )
            for layer in range(layers)
        }
        made[step]["fc0.weight"][:3] = 0.0
    return made


def recorded(arrays: Arrays, scales: dict[int, float] | None = None, **metadata: Any) -> Trace:
    """A trace of gradients times a loss scale, as float32; values beyond it are infinite there."""
    trace = Trace(metadata=metadata)
    for step, tensors in arrays.items():
        scale = 1.0 if scales is None else scales[step]
        if scales is not None:
            trace.scalar(step, "loss_scale", scale)
        for name, array in tensors.items():
            with np.errstate(over="ignore"):
                trace.record(name, "weight_gradient", np.float32(array * np.float64(scale)), step)
    return trace


class Counted:
    """What a cast of ml_dtypes or numpy does to a gradient at a scale."""

    def __init__(self, array: np.ndarray, scale: float, to: str) -> None:
        exact = array.astype(np.float64) * scale
        with np.errstate(over="ignore"):
            cast = exact.astype(PEERS[to]).astype(np.float64)
        self.nonzero = int((array != 0).sum())
        self.underflow = int(((cast == 0) & (array != 0)).sum())
        self.overflow = int(np.isinf(cast).sum())


def by_hand(arrays: Arrays, text: str, to: str, window: int = 1) -> list[tuple[Any, ...]]:
    """(step, scale, overflow, skipped, lost %, underflow %) of each step, as a plain loop."""
    state, rows, steps = lossscale.scaler(text), [], sorted(arrays)
    for start in range(0, len(steps), window):
        part = steps[start : start + window]
        counts = {
            step: [Counted(array, state.scale, to) for array in arrays[step].values()]
            for step in part
        }
        over = {step: any(c.overflow for c in counts[step]) for step in part}
        skipped = any(over.values()) and state.skips
        for step in part:
            nonzero = sum(c.nonzero for c in counts[step])
            underflow = sum(c.underflow for c in counts[step])
            lost = nonzero if skipped else underflow + sum(c.overflow for c in counts[step])
            rows.append(
                (step, state.scale, over[step], skipped, 100 * lost / nonzero,
                 100 * underflow / nonzero)
            )  # fmt: skip
        if len(part) == window:
            state = state.adjust(any(over.values()))
    return rows


def rows_of(replay: Replay) -> list[tuple[Any, ...]]:
    return [
        (s.step, s.scale, s.overflow, s.skipped, s.lost_percent, s.underflow_percent)
        for s in replay.steps
    ]


TEXTS = [
    "torch:growth_interval=3",
    "torch:init_scale=2^24,growth_interval=2,backoff_factor=0.25",
    "keras:initial_scale=2^30,dynamic_growth_steps=2",
    "mxnet:scale_seq_len=2",
    "deepspeed:scale_window=3,init_scale=2^22,min_scale=2^-9",
    "static:scale=2^17",
    "static:scale=2^20,skip=true",
    "none",
]


@pytest.mark.parametrize("to", PEERS)
@pytest.mark.parametrize("text", TEXTS)
def test_each_step_is_what_a_cast_of_the_arrays_gives(text: str, to: str) -> None:
    arrays = gradients(1, 30)
    want = by_hand(arrays, text, to)
    assert rows_of(lossscale.replay(recorded(arrays), text, to=to)) == want
    # recorded times any loss scale, powers of two, the replay is of the same gradients
    scales = {step: 2.0 ** (step % 5 - 3) for step in arrays}
    done = lossscale.replay(recorded(arrays, scales), text, to=to)
    assert rows_of(done) == want
    assert [s.recorded_scale for s in done.steps] == list(scales.values())
    assert len({row[2] for row in want}) == 2 or text == "none"  # some overflow, some do not


@pytest.mark.parametrize("text", ["torch:init_scale=2^20,growth_factor=1.5,growth_interval=2",
                                  "static:scale=1000000", "static:scale=3"])  # fmt: skip
def test_scales_between_powers_of_two(text: str) -> None:
    """Overflow is exact; what is lost is counted at the power of two below."""
    arrays = gradients(2, 40)
    want = by_hand(arrays, text, "float16")
    done = lossscale.replay(recorded(arrays), text)
    for got, row in zip(rows_of(done), want, strict=True):
        assert got[:4] == row[:4]
        assert got[5] >= row[5]  # an upper bound of the underflow
        lower = 2.0 ** math.floor(math.log2(row[1]))
        counts = [Counted(a, lower, "float16") for a in arrays[row[0]].values()]
        assert got[5] == 100 * sum(c.underflow for c in counts) / sum(c.nonzero for c in counts)
    assert "no power of two times the recorded one" in done.note
    # the same scale as recorded is a ratio of 1, whatever it is
    same = lossscale.replay(recorded(arrays, dict.fromkeys(arrays, 3.0)), "static:scale=3")
    assert "no power of two" not in same.note
    assert not same.open_loop


@pytest.mark.parametrize("carried", [3.0, 1.25, 0.7109375])
def test_a_recorded_scale_that_is_no_power_of_two(carried: float) -> None:
    arrays = {
        step: {
            name: array.astype(ml_dtypes.bfloat16).astype(np.float32) for name, array in t.items()
        }
        for step, t in gradients(15, 30).items()
    }  # of 8 bits, so that the products with the loss scale are exact
    text = "torch:init_scale=2^20,growth_interval=2"
    done = lossscale.replay(recorded(arrays, dict.fromkeys(arrays, carried)), text)
    for got, row in zip(rows_of(done), by_hand(arrays, text, "float16"), strict=True):
        assert got[:4] == row[:4]
        lower = carried * 2.0 ** math.floor(math.log2(row[1] / carried))
        counts = [Counted(a, lower, "float16") for a in arrays[row[0]].values()]
        assert got[5] == 100 * sum(c.underflow for c in counts) / sum(c.nonzero for c in counts)


def test_the_largest_value_that_fits_at_a_ratio_is_exact() -> None:
    """65520 is the first float16 to overflow: 65520 / 3 times 3 does, the float32 below not."""
    edge = np.float32(21840.0)
    for value, overflow in ((edge, True), (np.nextafter(edge, np.float32(0)), False)):
        for sign in (1, -1):
            trace = Trace()
            trace.record("fc.weight", "weight_gradient", np.float32([sign * value]), 0)
            [step] = lossscale.replay(trace, "static:scale=3", to="float16").steps
            assert step.overflow is overflow
            assert step.overflowed == (("fc.weight",) if overflow else ())
    trace = Trace()
    trace.record("fc.weight", "weight_gradient", np.float32([21835.0]), 0)
    with pytest.raises(InputError, match="rounds the two signs differently"):
        lossscale.replay(trace, "static:scale=3", to="float16:up")


def test_gradients_that_are_never_scaled_up_to_infinity() -> None:
    """A saturating cast shows a scaler no overflow: it clamps, and the scale only grows."""
    trace = recorded(gradients(3, 12))
    done = lossscale.replay(trace, "torch:growth_interval=1", to="e5m2:overflow=saturate")
    assert done.overflow_steps == 0
    assert done.final_scale == 2.0**28
    assert done.lost_percent > done.underflow_percent


def test_scales_of_zero_and_infinity() -> None:
    trace = recorded(gradients(4, 4))
    zero = lossscale.replay(trace, "torch:init_scale=1e-60")
    assert [(s.scale, s.overflow, s.underflow_percent) for s in zero.steps] == [
        (0.0, False, 100.0)
    ] * 4
    keras = lossscale.scaler("keras:initial_scale=2^127,dynamic_growth_steps=1").adjust(False)
    infinite = lossscale.replay(trace, keras, to="bfloat16")
    assert [(s.scale, s.overflow, s.skipped) for s in infinite.steps] == [
        (math.inf, True, True)
    ] * 4
    told = json.loads(json.dumps(infinite.to_json(), allow_nan=False))
    assert told["final_scale"] == told["steps"][0]["scale"] == "inf"
    assert spark(infinite.steps, 9, *span(infinite.steps)) == "∞∞∞∞"
    assert spark(zero.steps, 9, *span(zero.steps)) == "0000"


@pytest.mark.parametrize("window", [2, 3, 7])
def test_accumulation_windows(window: int) -> None:
    arrays, text = gradients(5, 31), "torch:growth_interval=2,init_scale=2^22"
    done = lossscale.replay(recorded(arrays), text, accumulate=window)
    assert rows_of(done) == by_hand(arrays, text, "float16", window)
    for start in range(0, 31, window):
        part = done.steps[start : start + window]
        assert len({s.scale for s in part}) == len({s.skipped for s in part}) == 1
        assert part[0].skipped == any(s.overflow for s in part)
    assert done.skipped_steps > done.overflow_steps > 0


def test_a_window_that_the_trace_cuts_off_changes_nothing() -> None:
    trace = recorded({step: {"fc.weight": np.float32([1e6])} for step in range(3)})
    done = lossscale.replay(trace, "torch:init_scale=8", accumulate=2)
    assert [s.scale for s in done.steps] == [8.0, 8.0, 4.0]
    assert done.final_scale == 4.0
    assert lossscale.replay(trace, "torch:init_scale=8", accumulate=4).final_scale == 8.0


def test_layers_have_scalers_of_their_own() -> None:
    arrays, text = gradients(6, 30), "torch:growth_interval=2,init_scale=2^22"
    done = lossscale.replay(recorded(arrays), text, per_layer=True)
    assert [part.layer for part in done.layers] == ["fc0", "fc1", "fc2"]
    alone = {
        part.layer: by_hand(
            {s: {n: a for n, a in t.items() if n.startswith(part.layer)}
             for s, t in arrays.items()}, text, "float16",
        )
        for part in done.layers
    }  # fmt: skip
    for part in done.layers:
        mine = [(row[0], row[1], row[2], row[5]) for row in alone[part.layer]]
        assert [(s.step, s.scale, s.overflow, s.underflow_percent) for s in part.steps] == mine
    for i, step in enumerate(done.steps):
        rows = [alone[layer][i] for layer in alone]
        assert step.scale == min(row[1] for row in rows)
        assert step.overflow == any(row[2] for row in rows) == step.skipped
        assert all(part.steps[i].skipped == step.skipped for part in done.layers)
        assert step.overflowed == tuple(f"{layer}.weight" for layer in alone if alone[layer][i][2])
    assert done.totals.nonzero == sum(part.totals.nonzero for part in done.layers)
    assert done.totals.underflow == sum(part.totals.underflow for part in done.layers)
    assert done.totals.lost == sum(part.totals.lost for part in done.layers)
    assert "3 layers" in done.note
    assert done.final_scale == min(part.final_scale for part in done.layers)


def test_totals_and_names() -> None:
    arrays = gradients(7, 20)
    done = lossscale.replay(recorded(arrays), "torch:growth_interval=3,init_scale=2^20")
    nonzero = lost = underflow = 0
    for step in done.steps:
        counts = {n: Counted(a, step.scale, "float16") for n, a in arrays[step.step].items()}
        nonzero += sum(c.nonzero for c in counts.values())
        underflow += sum(c.underflow for c in counts.values())
        lost += sum(c.nonzero if step.skipped else c.underflow for c in counts.values())
        assert step.overflowed == tuple(n for n, c in counts.items() if c.overflow)
    assert (done.totals.nonzero, done.totals.lost, done.totals.underflow) == (
        nonzero, lost, underflow
    )  # fmt: skip
    assert done.lost_percent == 100 * lost / nonzero
    assert done.underflow_percent == 100 * underflow / nonzero
    assert done.skipped_steps == sum(s.skipped for s in done.steps) > 0
    assert done.spoiled_steps == 0
    static = lossscale.replay(recorded(arrays), "static:scale=2^20")
    assert static.spoiled_steps == static.overflow_steps > 0 == static.skipped_steps
    assert "This scaler skips no step" in static.note


def test_several_at_once_are_each_alone() -> None:
    trace = recorded(gradients(8, 15))
    together = lossscale.replays(trace, [*TEXTS, lossscale.scaler("histogram")])
    for text, done in zip([*TEXTS, "histogram"], together, strict=True):
        assert done == lossscale.replay(trace, text)
    assert lossscale.replays(trace, "none") == (together[-2],)


def test_the_histogram_scaler_follows_the_gradients() -> None:
    """Known from the gradients before: the largest power of two 2 binades below overflow."""
    arrays = gradients(9, 40)
    for scales in (None, {step: 2.0 ** (step % 7 - 3) for step in arrays}):
        done = lossscale.replay(recorded(arrays, scales), "histogram:window=4,margin=2")
        amax = [max(float(np.abs(a).max()) for a in t.values()) for t in arrays.values()]
        for i, step in enumerate(done.steps[1:], 1):
            if any(s.overflow for s in done.steps[max(0, i - 4) : i]):
                continue  # backed off: bounded by the overflow, not by the gradients
            behind = max(amax[max(0, i - 4) : i])
            want = 2.0 ** (math.floor(math.log2(65520 / behind * (1 - 2**-30))) - 2)
            assert step.scale == want
        assert done.overflow_steps < len(done.steps) / 4
        dynamic = lossscale.replay(recorded(arrays), "torch:growth_interval=1")
        assert done.overflow_steps < dynamic.overflow_steps


@pytest.mark.parametrize("to", ["float16", "float8_e4m3fn:overflow=saturate", "float16:up"])
def test_the_histogram_scaler_sees_the_same_by_tally_and_by_room(to: str) -> None:
    arrays = gradients(13, 25)
    done = lossscale.replay(recorded(arrays), lossscale.scaler("histogram", to=to), to=to)
    state = lossscale.scaler("histogram", to=to)
    for step, row in zip(arrays, done.steps, strict=True):
        assert row.scale == state.scale
        state = state.observe([fpemu.tally(a) for a in arrays[step].values()])
        state = state.adjust(row.overflow)


@dataclass(frozen=True, kw_only=True, repr=False)
class Watching(lossscale.Scaler):
    """A scaler of a user's: an eighth of what the largest gradient of the step before allows."""

    NAME, OBSERVES, FIRST = "watching", True, "start"

    start: float = 1.0
    amax_exponent: int = 0

    def observe(self, tallies: Iterable[Tally], recorded_scale: float = 1.0) -> Watching:
        largest = max(t.amax_exponent for t in tallies if t.amax_exponent is not None)
        return replace(self, amax_exponent=largest - int(math.log2(recorded_scale)))

    def _good(self) -> Watching:
        return replace(self, scale=2.0 ** (12 - self.amax_exponent))

    _overflowed = _good


def test_a_scaler_of_ones_own_sees_each_step() -> None:
    arrays = gradients(12, 20)
    trace = recorded(arrays, {step: 2.0 ** (step % 3) for step in arrays})
    done = lossscale.replay(trace, Watching(), to="float16")
    for before, step in itertools.pairwise(done.steps):
        amax = max(float(np.abs(a).max()) for a in arrays[before.step].values())
        assert step.scale == 2.0 ** (12 - math.floor(math.log2(amax)))
    layered = lossscale.replay(trace, Watching(), to="float16", per_layer=True)
    for before, step in itertools.pairwise(layered.layers[1].steps):
        amax = float(np.abs(arrays[before.step]["fc1.weight"]).max())
        assert step.scale == 2.0 ** (12 - math.floor(math.log2(amax)))


# --- what is not known --------------------------------------------------------------------------


def infinite_at(step: int) -> Trace:
    """Gradients of 2.0 carried times 2^16: infinite in float16 at one step."""
    trace = Trace()
    for i in range(5):
        trace.scalar(i, "loss_scale", 2.0**16)
        value = math.inf if i == step else 2.0**14 if i != step + 1 else 2.0**15
        trace.record("fc.weight", "weight_gradient", np.float32([value, 8.0]), i)
    return trace


@pytest.mark.parametrize(
    ("scale", "unknown", "overflow"),
    [(2.0**16, "neighbours", True), (2.0**17, "fits", True), (2.0**16, "fits", True),
     (2.0**15, "neighbours", False), (2.0**15, "overflow", True), (2.0**15, "fits", False)],
)  # fmt: skip
def test_infinite_as_recorded(scale: float, unknown: str, overflow: bool) -> None:
    done = lossscale.replay(infinite_at(2), f"static:scale={scale}", unknown=unknown)
    assert done.steps[2].overflow is overflow
    assert done.steps[2].basis == ("recorded" if scale >= 2.0**16 else "assumed")
    assert ("of 1 step were infinite or NaN as recorded" in done.note) == (scale < 2.0**16)


def test_overflows_that_only_the_recorded_run_skipped_open_the_loop() -> None:
    done = lossscale.replay(infinite_at(2), "static:scale=2^16")
    assert done.open_loop
    assert "in which these overflows did not reach the weights" in done.note
    assert not lossscale.replay(infinite_at(2), "static:scale=2^16,skip=true").open_loop


def test_neighbours_that_overflow_make_the_unknown_overflow() -> None:
    trace = Trace()
    for step, value in enumerate([1.0, math.nan, 8.0]):
        trace.scalar(step, "loss_scale", 2.0**12)
        trace.record("fc.weight", "weight_gradient", np.float32([value * 2.0**12, 2.0**10]), step)
    for scale, overflow in ((2.0**11, False), (2.0**12, True)):
        assert lossscale.replay(trace, f"static:scale={scale}").steps[1].overflow is overflow
    # at 2^11 the step behind fits; were it 32, it would not
    trace.record("fc.weight", "weight_gradient", np.float32([32 * 2.0**12]), 2)
    assert lossscale.replay(trace, "static:scale=2^11").steps[1].overflow
    alone = Trace()
    alone.scalar(0, "loss_scale", 2.0**12)
    alone.record("fc.weight", "weight_gradient", np.float32([math.inf]), 0)
    assert lossscale.replay(alone, "static:scale=1").steps[0].overflow  # nothing is known


def test_steps_between_the_recorded_ones() -> None:
    arrays = {step: tensors for step, tensors in gradients(10, 31).items() if step % 5 == 0}
    text = "torch:growth_interval=4,init_scale=2^18"
    held = {step: arrays[step - step % 5] for step in range(31)}
    done = lossscale.replay(recorded(arrays), text)
    assert rows_of(done) == by_hand(held, text, "float16")
    assert [s.basis == "held" for s in done.steps] == [step % 5 != 0 for step in range(31)]
    assert "24 steps between the recorded ones" in done.note
    assert rows_of(lossscale.replay(recorded(arrays), text, gaps="skip")) == by_hand(
        arrays, text, "float16"
    )
    far = recorded({0: arrays[0], 10**9: arrays[5]})
    with pytest.raises(InputError, match='gaps="skip" takes the recorded ones alone'):
        lossscale.replay(far, text)
    assert len(lossscale.replay(far, text, gaps="skip").steps) == 2


def test_a_run_that_deepspeed_ends() -> None:
    trace = recorded({step: {"fc.weight": np.float32([1e6])} for step in range(9)})
    done = lossscale.replay(trace, "deepspeed:init_scale=4,hysteresis=1")
    assert [s.scale for s in done.steps] == [4.0, 2.0, 1.0]
    assert done.stopped == 2
    assert "The run ends at step 2" in done.note
    patient = lossscale.replay(trace, "deepspeed:init_scale=4,hysteresis=1", accumulate=2)
    assert patient.stopped == 5
    layers = lossscale.replay(trace, "deepspeed:init_scale=4,hysteresis=1", per_layer=True)
    assert layers.stopped == layers.layers[0].stopped == 2
    two = recorded({step: {"bad.weight": np.float32([1e6]), "fc.weight": np.float32([2.0**15])}
                    for step in range(9)})  # fmt: skip
    both = lossscale.replay(two, "deepspeed:init_scale=4,hysteresis=1", per_layer=True)
    assert both.stopped == 2
    assert [len(part.steps) for part in both.layers] == [3, 3]
    assert [part.final_scale for part in both.layers] == [1.0, 1.0]  # 4, then 2, then 1
    assert [s.scale for s in both.layers[1].steps] == [4.0, 2.0, 1.0]


# --- which gradients decide ---------------------------------------------------------------------


def test_weight_gradients_decide_unless_there_are_none() -> None:
    trace = Trace(metadata={"to": "float8_e5m2"})
    trace.record("fc", "activation_gradient", np.float32([3.0]), 0)
    text = "static:scale=2^15"
    [step] = lossscale.replay(trace, text).steps
    assert step.overflow
    trace.record("fc.weight", "weight_gradient", np.float32([1.0]), 0)
    done = lossscale.replay(trace, text)
    assert not done.steps[0].overflow
    assert (done.to, done.kinds) == ("float8_e5m2", ("weight_gradient",))
    both = lossscale.replay(trace, text, kinds=["activation_gradient", "weight_gradient"])
    assert both.steps[0].overflowed == ("fc",)
    layered = lossscale.replay(
        trace, text, kinds=["activation_gradient", "weight_gradient"], per_layer=True
    )
    assert [part.layer for part in layered.layers] == ["fc"]


def test_a_loss_scale_that_only_the_metadata_tell() -> None:
    arrays = gradients(14, 6)
    trace = Trace(metadata={"recorded_loss_scale": 256.0})
    for step, tensors in arrays.items():
        for name, array in tensors.items():
            trace.record(name, "weight_gradient", array * np.float32(256), step)
    done = lossscale.replay(trace, "torch")
    assert rows_of(done) == by_hand(arrays, "torch", "float16")
    assert {s.recorded_scale for s in done.steps} == {256.0}
    assert not lossscale.replay(trace, "static:scale=256").open_loop


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kinds": "activation_gradient"}, "recorded: weight_gradient"),
    ({"kinds": "weight_gradients"}, "unknown kind 'weight_gradients'; did you mean"),
    ({"kinds": "weight"}, "kind 'weight': a loss scale is replayed on gradients"),
    ({"accumulate": 0}, "accumulate=0: must be a whole number from 1 on"),
    ({"accumulate": 2.0}, "accumulate=2.0: must be a whole number"),
    ({"accumulate": True}, "accumulate=True: must be a whole number"),
    ({"unknown": "neighbour"}, "did you mean 'neighbours'"),
    ({"gaps": "fill"}, "must be one of hold, skip"),
    ({"to": "fp17"}, "unknown format 'fp17'"),
    ({"to": "fp16:stochastic"}, "cannot know the draws"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=str)
def test_refusals(given: dict[str, Any], message: str) -> None:
    trace = recorded(gradients(11, 2))
    with pytest.raises(FpemuError) as refused:
        lossscale.replay(trace, "torch", **given)
    assert message in str(refused.value)


def test_a_trace_without_gradients_is_refused() -> None:
    trace = Trace()
    trace.record("fc", "activation", np.float32([1.0]), 0)
    for call in (lambda: lossscale.replay(trace, "torch"), lambda: lossscale.standard(trace)):
        with pytest.raises(InputError, match="no gradients in the trace"):
            call()


def test_standard_has_the_best_static_scale() -> None:
    arrays = {0: {"fc.weight": np.float32([2.0**-40, 2.0**-12])}}
    texts = [str(one) for one in lossscale.standard(recorded(arrays))]
    assert texts[:2] == ["static", "static:scale=2^21"]  # 2^16 to 2^27 keep both
    assert {text.partition(":")[0] for text in texts[2:]} == {
        "torch", "keras", "tf_keras", "mxnet", "apex", "jmp", "deepspeed", "deepspeed_fused",
        "histogram",
    }  # fmt: skip
    assert str(lossscale.standard(recorded(arrays, to="e5m2"))[-1]) == "histogram:to=float8_e5m2"
    easy = {0: {"fc.weight": np.float32([1.0])}}
    assert [str(one) for one in lossscale.standard(recorded(easy))][:2] == ["static", "torch"]
    carried = recorded(arrays, {0: 2.0**9})
    assert str(lossscale.standard(carried)[1]) == "static:scale=2^21"


# --- beside real runs ---------------------------------------------------------------------------


def train(
    scaler: Any, *, emulated: bool, seed: int = 0, steps: int = 50, every: int = 1
) -> tuple[Trace, list[float], list[int]]:
    """Train a small network; return its trace, the scales in use, and the steps skipped."""
    torch = pytest.importorskip("torch", reason="trains a PyTorch model")
    from fpemu.analysis import watch
    from fpemu.torch import emulate

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.Generator().manual_seed(seed)
    scales, stepped = [], []
    optimizer.register_step_post_hook(lambda *_: stepped.append(len(scales) - 1))
    with contextlib.ExitStack() as stack:
        if emulated:
            stack.enter_context(emulate("torch.autocast.cuda.float16"))
        watched = stack.enter_context(watch(model, optimizer, kinds="weight_gradient", every=every))
        for step in range(steps):
            scales.append(scaler.get_scale() if scaler else 1.0)
            x = torch.randn(8, 6, generator=inputs) * (1 + 4 * (step % 7 == 3))
            loss = (model(x) - x[:, :3].sin()).square().mean()
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
            optimizer.zero_grad()
    return watched.trace, scales, sorted(set(range(steps)) - set(stepped))


SETTINGS: list[dict[str, Any]] = [
    {"growth_interval": 4},
    {"init_scale": 2.0**20, "growth_interval": 9, "backoff_factor": 0.25},
    {"init_scale": 1000.0, "growth_factor": 3.0, "growth_interval": 2},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_the_scaler_that_ran_gives_its_own_trajectory(given: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="trains a PyTorch model")
    real = torch.amp.GradScaler("cpu", **given)
    trace, scales, skipped = train(real, emulated=True)
    done = lossscale.replay(trace, lossscale.scaler("torch", **given), to="float16")
    assert [s.scale for s in done.steps] == [s.recorded_scale for s in done.steps] == scales
    assert [s.step for s in done.steps if s.skipped] == skipped
    assert len(skipped) > 1
    assert done.final_scale == real.get_scale()
    assert not done.open_loop
    assert done.note == "The loss scale is the recorded one at all 50 recorded steps."
    other = lossscale.replay(trace, "torch:init_scale=2^12,growth_interval=4")
    assert other.open_loop
    assert other.note.startswith("Open loop, an estimate:")


def test_the_error_of_an_open_loop_against_real_runs() -> None:
    """Replays of a float32 run, and of a run of another scaler, beside what really happened."""
    torch = pytest.importorskip("torch", reason="trains a PyTorch model")
    errors: dict[str, list[float]] = {"plain": [], "other": []}
    apart: list[int] = []
    for seed in range(2):
        sources = {
            "plain": train(None, emulated=False, seed=seed)[0],
            "other": train(
                torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3),
                emulated=True, seed=seed,
            )[0],
        }  # fmt: skip
        for given in SETTINGS[:2]:
            real = torch.amp.GradScaler("cpu", **given)
            _, scales, skipped = train(real, emulated=True, seed=seed)
            for source, trace in sources.items():
                done = lossscale.replay(trace, lossscale.scaler("torch", **given), to="float16")
                assert done.open_loop
                logs = np.log2([s.scale for s in done.steps]) - np.log2(scales)
                errors[source].append(float(np.abs(logs).mean()))
                apart.append(done.skipped_steps - len(skipped))
    print(f"mean |log2 scale| apart {errors}, skipped steps apart {apart}")
    assert np.mean(errors["plain"]) < 0.5  # binades
    assert np.mean(errors["other"]) < 1.0
    assert max(map(abs, apart)) <= 2  # of 5 to 9


def test_a_run_recorded_now_and_then() -> None:
    torch = pytest.importorskip("torch", reason="trains a PyTorch model")
    given = {"growth_interval": 10, "init_scale": 2.0**8}
    trace, scales, skipped = train(
        torch.amp.GradScaler("cpu", **given), emulated=True, steps=40, every=4
    )
    assert not skipped
    done = lossscale.replay(trace, lossscale.scaler("torch", **given), to="float16")
    assert [s.scale for s in done.steps] == scales[:37]
    assert not done.open_loop


# --- the command --------------------------------------------------------------------------------


def call(*args: str, columns: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["replay", *args])


@pytest.fixture
def file(tmp_path: Any) -> str:
    path = str(tmp_path / "run.fpemu")
    recorded(gradients(1, 30)).save(path)
    return path


def test_the_command_shows_one_in_full(file: str) -> None:
    result = call(file, "--scaler", "torch:growth_interval=3", "--to", "fp16")
    assert result.exit_code == 0, result.output
    done = lossscale.replay(Trace.load(file), "torch:growth_interval=3", to="fp16")
    words = " ".join(result.stdout.split())
    assert f"overflow {done.overflow_steps} steps of 30" in words
    assert spark(done.steps, 108, *span(done.steps)) in result.stdout
    assert marks(done.steps, 108).strip() in result.stdout
    first = next(s for s in done.steps if s.overflow)
    assert f"step {first.step} at" in words
    assert first.overflowed[0] in words
    assert done.note.split(":")[0] in words


def test_the_command_shows_several_side_by_side(file: str) -> None:
    result = call(file, "--scaler", "torch", "--scaler", "static:scale=2^20", columns=160)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(line.startswith("torch ") for line in lines)
    assert any("!" in line for line in lines if line.startswith("static:scale=2^20"))
    everything = call(file)
    assert all(str(one) in everything.stdout for one in lossscale.standard(Trace.load(file)))


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_every_width_holds(file: str, columns: int) -> None:
    for args in ([], ["--scaler", "torch:growth_interval=2", "--per-layer"],
                 ["--scaler", "static:scale=2^20"]):  # fmt: skip
        result = call(file, *args, columns=columns)
        assert result.exit_code == 0, result.output
        assert max(map(len, result.stdout.splitlines())) <= columns


def test_the_command_in_json(file: str) -> None:
    args = ["--scaler", "torch:growth_interval=3", "--per-layer", "--accumulate", "2", "--json"]
    result = call(file, *args, "--unknown", "fits", "--gaps", "skip")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    done = lossscale.replay(
        Trace.load(file), "torch:growth_interval=3", per_layer=True, accumulate=2, unknown="fits",
        gaps="skip",
    )  # fmt: skip
    assert told["schema"] == 1
    assert told["replays"] == [json.loads(json.dumps(done.to_json()))]


@pytest.mark.parametrize(
    ("args", "message"),
    [(["--scaler", "torhc"], "did you mean 'torch'"),
     (["--scaler", "torch:growth=2"], "unknown setting 'growth'"),
     (["--to", "fp17"], "unknown format 'fp17'"),
     (["--kind", "weight"], "is replayed on gradients"),
     (["--accumulate", "0"], "0 is not in the range")],
)  # fmt: skip
def test_the_command_refuses_in_one_line(file: str, args: Sequence[str], message: str) -> None:
    result = call(file, *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_trajectories_in_a_line() -> None:
    trace = recorded({s: {"fc.weight": np.float32([2.0])} for s in range(8)})
    done = lossscale.replay(trace, "torch:init_scale=2^18,growth_interval=3")
    logs = [int(math.log2(s.scale)) for s in done.steps]
    assert logs == [18, 17, 16, 15, 14, 14, 14, 15]
    assert spark(done.steps, 8, 14, 18) == "█▆▅▃▁▁▁▃"
    assert marks(done.steps, 8) == "xxxx   x"
    assert spark(done.steps, 4, 14, 18) == "▆▃▁▁"
    assert marks(done.steps, 4) == "xx x"
    assert spark(done.steps, 100, 14, 18) == spark(done.steps, 8, 14, 18)


@pytest.mark.parametrize(
    "given",
    [{"kinds": 3}, {"kinds": [3]}, {"unknown": np.zeros(3)}, {"unknown": ["fits"]}, {"gaps": None},
     {"accumulate": 2.0}, {"accumulate": True}, {"accumulate": np.ones((3, 300))}],
    ids=repr,
)  # fmt: skip
def test_options_of_no_kind_are_refused_in_one_line(given: dict[str, Any]) -> None:
    trace = Trace()
    trace.record("fc1.weight", "weight_gradient", np.float32([1.0]), step=0)
    with pytest.raises(InputError, match=next(iter(given))) as refused:
        lossscale.replay(trace, "torch", **given)
    assert "\n" not in str(refused.value)


def test_accumulate_may_be_any_integer() -> None:
    trace = Trace()
    for step in range(4):
        trace.record("fc1.weight", "weight_gradient", np.float32([1.0]), step)
    asked = (lossscale.replay(trace, "torch", accumulate=n) for n in (2, np.int64(2), np.uint8(2)))
    assert len({json.dumps(done.to_json()) for done in asked}) == 1
