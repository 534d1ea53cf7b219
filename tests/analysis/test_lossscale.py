"""Loss scalers, against second forms written as loops, and the real PyTorch, Keras and JAX."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.analysis import lossscale
from fpemu.analysis.lossscale.room import room
from fpemu.analysis.lossscale.standard import FRAMEWORKS
from fpemu.errors import InputError

Overflows = list[bool]

#: One sequence of overflows, and log2 of the scale in use at each of its steps.
SHARED = [digit == "1" for digit in "1100000101000000"]
SEQUENCES = {
    "torch:growth_interval=4": "16 15 14 14 14 14 15 15 14 14 13 13 13 13 14 14",
    "keras:initial_scale=2^16,dynamic_growth_steps=4": (
        "16 15 14 14 14 14 15 15 14 14 13 13 13 13 14 14"
    ),
    "mxnet:scale_seq_len=4": "16 16 15 14 14 14 14 15 15 14 14 13 13 13 13 14",
    "deepspeed:scale_window=4": "16 16 15 15 15 15 15 16 16 16 15 15 15 15 15 16",
    "deepspeed:scale_window=4,consecutive_hysteresis=true": (
        "16 16 15 15 15 15 15 16 16 16 16 16 16 16 16 17"
    ),
    "deepspeed_fused:init_scale=2^16,scale_window=4": (
        "16 15 14 14 14 14 14 15 14 14 13 13 13 13 13 14"
    ),
    "tf_keras:dynamic_growth_steps=4": "15 14 13 13 13 13 14 14 13 13 12 12 12 12 13 13",
}


@pytest.mark.parametrize("text", SEQUENCES)
def test_the_shared_sequence(text: str) -> None:
    want = [2.0 ** int(log) for log in SEQUENCES[text].split()]
    assert lossscale.simulate(text, SHARED) == want


#: The table of defaults: first scale, interval, floor, cap.
DEFAULTS: dict[str, tuple[float, int, float, float]] = {
    "torch": (2.0**16, 2000, 0.0, 2.0**127),
    "tf_keras": (2.0**15, 2000, 1.0, 2.0**127),
    "keras": (2.0**15, 2000, 0.0, math.inf),
    "mxnet": (2.0**16, 2000, 0.0, 2.0**24),
    "apex": (2.0**16, 2000, 0.0, 2.0**24),
    "jmp": (2.0**15, 2000, 1.0, 2.0**127),
    "deepspeed_fused": (2.0**32, 1000, 1.0, math.inf),
    "deepspeed_unfused": (2.0**16, 1000, 0.25, math.inf),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_floors_and_caps(name: str) -> None:
    first, interval, floor, cap = DEFAULTS[name]
    grown = lossscale.simulate(name, [False] * (interval + 3))
    late = name.startswith("deepspeed") or name == "mxnet"  # they take one step longer
    first_growth = interval + (1 if late else 0)
    assert grown[:first_growth] == [first] * first_growth
    assert grown[first_growth] == 2 * first
    assert lossscale.simulate(name, [True] * 1200)[-1] == floor
    text = f"{name}:{_interval_of(name)}=1"
    state = lossscale.scaler(text)
    for _ in range(1100):
        state = state.adjust(False)
    assert state.scale == cap


def _interval_of(name: str) -> str:
    settings = lossscale.scaler(name).settings
    words = ("interval", "steps", "window", "len", "period")
    return next(key for key in settings if any(word in key for word in words))


def test_deepspeed_by_its_config() -> None:
    own = lossscale.scaler("deepspeed", delayed_shift=3, scale_window=7, min_scale=8.0)
    config = lossscale.scaler("deepspeed", hysteresis=3, loss_scale_window=7, min_loss_scale=8)
    assert own == config
    assert lossscale.scaler("deepspeed").settings["delayed_shift"] == 2


def test_deepspeed_ends_the_run_at_its_floor() -> None:
    state = lossscale.scaler("deepspeed", init_scale=4, min_scale=2, hysteresis=1).adjust(True)
    assert state.scale == 2.0
    assert state.stops(True)
    assert not state.stops(False)
    with pytest.raises(InputError, match="loss scale 2: DeepSpeed ends the run"):
        state.adjust(True)
    going_on = replace(state, raise_error_at_min_scale=False)
    assert not going_on.stops(True)
    assert going_on.adjust(True).scale == 2.0
    # with hysteresis left, an overflow at the floor is borne
    patient = lossscale.scaler("deepspeed", init_scale=2, min_scale=2, hysteresis=2)
    assert not patient.stops(True)
    assert patient.adjust(True).stops(True)


def test_floats_of_python_do_not_end_where_float32_does() -> None:
    deepspeed = lossscale.scaler("deepspeed_fused", init_scale=2.0**127, scale_window=1)
    torch = lossscale.scaler("torch", init_scale=2.0**127, growth_interval=1)
    keras = lossscale.scaler("keras", initial_scale=2.0**127, dynamic_growth_steps=1)
    after = [False, False, True, True]
    assert lossscale.simulate(deepspeed, after)[2:] == [2.0**128, 2.0**127]
    assert lossscale.simulate(torch, after)[2:] == [2.0**127, 2.0**126]
    assert lossscale.simulate(keras, after)[2:] == [math.inf, math.inf]


# --- second forms: loops over the sequence, each in another way -------------------------------


def torch_loop(overflows: Overflows, first: float, up: float, down: float, n: int) -> list[float]:
    """Each step looks back at how many good steps lie behind the last reset."""
    scale, resets, out = np.float32(first), [-1], []
    for step, bad in enumerate(overflows):
        out.append(float(scale))
        with np.errstate(all="ignore"):
            if bad:
                scale = np.float32(np.float64(scale) * down)
            elif step - resets[-1] == n:
                larger = np.float32(np.float64(scale) * up)
                scale = larger if np.isfinite(larger) else scale
            else:
                continue
        resets.append(step)
    return out


def power_loop(
    overflows: Overflows, first: int, n: int, *, low: int, high: int, past_high: str
) -> list[float]:
    """Exponents of two only; past_high: what a growth beyond 2^high gives: keep, cap or inf."""
    exponent: float = first
    good, out = 0, []
    for bad in overflows:
        out.append(math.inf if exponent == math.inf else 0.0 if exponent < -149 else 2.0**exponent)
        good = 0 if bad else good + 1
        if bad:
            exponent = max(exponent - 1, low)
        elif good == n:
            good = 0
            exponent += 1
            if exponent > high:
                exponent = {"keep": exponent - 1, "cap": high, "inf": math.inf}[past_high]
    return out


def mxnet_loop(overflows: Overflows, first: float, cap: float, n: int) -> list[float]:
    """A pipe of two scales: the one in use, and the one that comes next."""
    pipe, good, out = deque([first, first], maxlen=2), 0, []
    for bad in overflows:
        out.append(pipe[0])
        newest = pipe[-1]
        good = 0 if bad else good + 1
        pipe.append(newest / 2 if bad else newest)
        if good == n:
            good = 0
            pipe[-1] = min(cap, newest * 2)
    return out


def deepspeed_loop(
    overflows: Overflows, first: float, n: int, floor: float, shift: int, refills: bool
) -> list[float]:
    """Spans between overflows: their lengths say when the scale grows."""
    scale, patience, since, out = first, shift, 0, []
    for bad in overflows:
        out.append(scale)
        if bad and patience > 1:
            patience, since = patience - 1, 0
        elif bad:
            scale, since = max(floor, scale / 2), 0
        else:
            # a growth falls on the n-th good step after the first one behind an overflow
            grows = since > 0 and since % n == 0
            scale, since = scale * 2 if grows else scale, since + 1
            patience = shift if grows or refills else patience
    return out


SEQUENCE = st.lists(st.booleans(), max_size=60)
SPARSE = st.lists(st.integers(0, 9).map(lambda digit: digit == 0), max_size=80)
BOTH = SEQUENCE | SPARSE
N = st.integers(1, 7)


@settings(deadline=None, max_examples=60)
@given(
    overflows=BOTH,
    first=st.sampled_from([2.0**16, 2.0**-147, 2.0**126, 1000.0, 0.1]),
    up=st.sampled_from([2.0, 1.7, 4.0, 1.001]),
    down=st.sampled_from([0.5, 0.3, 0.25, 0.999]),
    n=N,
)
def test_torch_as_a_loop(
    overflows: Overflows, first: float, up: float, down: float, n: int
) -> None:
    ours = lossscale.scaler(
        "torch", init_scale=first, growth_factor=up, backoff_factor=down, growth_interval=n
    )
    assert lossscale.simulate(ours, overflows) == torch_loop(overflows, first, up, down, n)


@settings(deadline=None, max_examples=60)
@given(overflows=BOTH, first=st.integers(-140, 127), n=N)
def test_scales_in_float32_as_exponents(overflows: Overflows, first: int, n: int) -> None:
    start = 2.0**first
    keras = lossscale.scaler("keras", initial_scale=start, dynamic_growth_steps=n)
    want = power_loop(overflows, first, n, low=-150, high=127, past_high="inf")
    dead = next((i for i, scale in enumerate(want) if scale == 0), len(want))
    got = lossscale.simulate(keras, overflows)
    assert got[:dead] == want[:dead]
    assert not any(got[dead:])
    tf = lossscale.scaler("tf_keras", initial_scale=start, dynamic_growth_steps=n)
    if first >= 0:
        want = power_loop(overflows, first, n, low=0, high=127, past_high="keep")
        assert lossscale.simulate(tf, overflows) == want
        jmp = lossscale.scaler("jmp", loss_scale=start, period=n)
        assert lossscale.simulate(jmp, overflows) == want
        low = lossscale.scaler("jmp", loss_scale=start, period=n, min_loss_scale=2.0**-9)
        want = power_loop(overflows, first, n, low=-9, high=127, past_high="keep")
        assert lossscale.simulate(low, overflows) == want


@settings(deadline=None, max_examples=60)
@given(overflows=BOTH, first=st.integers(-3, 30), cap=st.integers(0, 26), n=N)
def test_apex_and_mxnet_in_other_forms(overflows: Overflows, first: int, cap: int, n: int) -> None:
    apex = lossscale.scaler("apex", init_scale=2.0**first, max_loss_scale=2.0**cap, scale_window=n)
    start = min(first, cap)
    want = power_loop(overflows, start, n, low=-999, high=cap, past_high="cap")
    assert lossscale.simulate(apex, overflows) == want
    floored = lossscale.scaler(apex, min_loss_scale=0.5)
    if start >= -1:
        want = power_loop(overflows, start, n, low=-1, high=cap, past_high="cap")
        assert lossscale.simulate(floored, overflows) == want
    mxnet = lossscale.scaler(
        "mxnet", loss_scale=2.0**first, max_loss_scale=2.0**cap, scale_seq_len=n
    )
    assert lossscale.simulate(mxnet, overflows) == mxnet_loop(overflows, 2.0**first, 2.0**cap, n)


@settings(deadline=None, max_examples=80)
@given(
    overflows=BOTH,
    first=st.sampled_from([2.0**16, 4.0, 100.0]),
    n=N,
    floor=st.sampled_from([1.0, 0.25, 3.0]),
    shift=st.integers(1, 4),
    refills=st.booleans(),
)
def test_deepspeed_as_spans(
    overflows: Overflows, first: float, n: int, floor: float, shift: int, refills: bool
) -> None:
    ours = lossscale.scaler(
        "deepspeed", init_scale=first, scale_window=n, min_scale=floor, delayed_shift=shift,
        consecutive_hysteresis=refills, raise_error_at_min_scale=False,
    )  # fmt: skip
    want = deepspeed_loop(overflows, first, n, floor, shift, refills)
    assert lossscale.simulate(ours, overflows) == want
    for name in ("deepspeed_fused", "deepspeed_unfused"):
        other = lossscale.scaler(name, init_scale=first, scale_window=n, min_scale=floor)
        want = deepspeed_loop(overflows, first, n, floor, 1, False)
        assert lossscale.simulate(other, overflows) == want


# --- beside the real ones ---------------------------------------------------------------------


def random_sequences(count: int, length: int, seed: int) -> list[Overflows]:
    random = np.random.default_rng(seed)
    shares = random.uniform(0, 0.5, count)
    return [(random.random(length) < share).tolist() for share in shares]


TORCH = [
    {},
    {"growth_interval": 1},
    {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2},
    {"init_scale": 2.0**-145, "growth_interval": 5},
    {"init_scale": 2.0**125, "growth_interval": 1, "growth_factor": 3.0},
    {"init_scale": 1e-60, "growth_interval": 1},
]


class RealTorch:
    """PyTorch's own scaler with one parameter, whose gradient overflows when it is told to."""

    def __init__(self, **given: Any) -> None:
        torch = pytest.importorskip("torch", reason="the real GradScaler is PyTorch's")
        self.torch, self.weight = torch, torch.nn.Parameter(torch.zeros(2))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        self.stepped: list[bool] = []
        self.optimizer.register_step_post_hook(lambda *_: self.stepped.append(True))
        self.scaler = torch.amp.GradScaler("cpu", **given)
        self.scaler.scale(torch.ones(()))  # makes the tensor, which rounds the first scale

    def step(self, overflow: bool) -> float:
        scale = float(self.scaler.get_scale())
        self.weight.grad = self.torch.tensor([math.inf if overflow else 0.0, 1.0])
        self.stepped.clear()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        assert self.stepped == [True] * (not overflow)  # skipped or not
        return scale


@pytest.mark.parametrize("given", TORCH, ids=str)
def test_beside_the_real_grad_scaler(given: dict[str, Any]) -> None:
    for overflows in random_sequences(4, 40, 1):
        real = RealTorch(**given)
        got = [real.step(overflow) for overflow in overflows]
        assert lossscale.simulate(lossscale.scaler("torch", **given), overflows) == got


def test_a_shortened_interval_is_never_reached_as_in_pytorch() -> None:
    given = {"init_scale": 8.0, "growth_interval": 9}
    real, ours = RealTorch(**given), lossscale.scaler("torch", **given)
    for step in range(30):
        if step == 5:
            real.scaler.set_growth_interval(3)
            ours = replace(ours, growth_interval=3)
        overflow = step == 20
        assert real.step(overflow) == ours.scale
        ours = ours.adjust(overflow)
    assert ours.scale == real.scaler.get_scale() == 8.0 / 2 * 2**3


_KERAS = """
import json, sys
import keras, numpy
cases, out = json.load(sys.stdin), []
for given, overflows in cases:
    weight = keras.Variable(numpy.zeros(2, "float32"))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), **given)
    optimizer.build([weight])
    scales = []
    for overflow in overflows:
        scales.append(float(keras.ops.convert_to_numpy(optimizer.dynamic_scale)))
        gradient = numpy.array([numpy.inf if overflow else 0.0, 1.0], "float32")
        before = keras.ops.convert_to_numpy(weight).copy()
        optimizer.apply([gradient], [weight])
        assert overflow <= bool((keras.ops.convert_to_numpy(weight) == before).all())
    out.append(scales)
print(json.dumps(out))
"""


def test_beside_the_real_keras() -> None:
    if importlib.util.find_spec("keras") is None:  # importing it here would choose a backend
        pytest.skip("the real LossScaleOptimizer is Keras 3's")
    givens = [
        {"initial_scale": 2.0**16, "dynamic_growth_steps": 4},
        {"initial_scale": 1000.0, "dynamic_growth_steps": 1},
        {"initial_scale": 2.0**-145, "dynamic_growth_steps": 3},
        {"initial_scale": 2.0**125, "dynamic_growth_steps": 1},
        {},
    ]
    cases = [
        (given, overflows)
        for given in givens
        for overflows in [SHARED, *random_sequences(2, 40, 2)]
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _KERAS],
        input=json.dumps(cases), env=os.environ | {"KERAS_BACKEND": "numpy"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for (settings_, overflows), want in zip(cases, json.loads(done.stdout), strict=True):
        assert lossscale.simulate(lossscale.scaler("keras", **settings_), overflows) == want


def test_jmp_in_jax_itself() -> None:
    """jmp is not at hand; its rule is written here in the arrays that it uses."""
    jax = pytest.importorskip("jax", reason="jmp's arithmetic is JAX's")
    jnp = jax.numpy

    def adjust(scale: Any, counter: Any, finite: Any, period: int, factor: float, low: Any) -> Any:
        grown = scale * factor
        grown = jnp.where(jnp.isfinite(grown), grown, scale)
        after_good = jnp.where(counter == period - 1, grown, scale)
        shrunk = jnp.maximum(low, scale / factor)
        return jnp.where(finite, after_good, shrunk), (counter + 1) % period * finite

    for first, factor, low in [(2.0**15, 2, 1.0), (777.0, 3, 0.7), (3e38, 1.5, 1e-3)]:
        for overflows in random_sequences(3, 40, 3):
            scale, counter, want = jnp.float32(first), jnp.int32(0), []
            for overflow in overflows:
                want.append(float(scale))
                scale, counter = adjust(
                    scale, counter, jnp.asarray(not overflow), 3, factor, jnp.float32(low)
                )
            ours = lossscale.scaler(
                "jmp", loss_scale=first, period=3, factor=factor, min_loss_scale=low
            )
            assert lossscale.simulate(ours, overflows) == want


# --- static ones --------------------------------------------------------------------------------

STATIC = {
    "static:scale=2^10": (1024.0, False),
    "static:scale=2^10,skip=true": (1024.0, True),
    "none": (1.0, False),
    "caffe2_static:loss_scale=128": (128.0, False),
    "apex_static:loss_scale=2^7": (128.0, False),
    "deepspeed_static:loss_scale=512": (512.0, True),
    "jmp_static": (2.0**15, False),
    "jmp_static:loss_scale=0.1": (float(np.float32(0.1)), False),
    "jmp_noop": (1.0, False),
}


@pytest.mark.parametrize("text", STATIC)
def test_static_scales_stay(text: str) -> None:
    scale, skips = STATIC[text]
    state = lossscale.scaler(text)
    assert lossscale.simulate(state, SHARED) == [scale] * len(SHARED)
    assert state.skips is skips


def test_dynamic_scalers_skip() -> None:
    dynamic = set(lossscale.names()) - {text.partition(":")[0] for text in STATIC}
    assert all(lossscale.scaler(name).skips for name in dynamic)


# --- the adaptive one ---------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["float16", "float8_e5m2", "float8_e4m3fn:overflow=saturate"])
@pytest.mark.parametrize("carried", [1.0, 2.0**9, 2.0**-7])
def test_histogram_keeps_its_margin_below_the_largest_value(to: str, carried: float) -> None:
    random = np.random.default_rng(5)
    margin, largest = 3, fpemu.Cast(to.partition(":")[0]).format.max
    state = lossscale.scaler("histogram", to=to, margin=margin, window=2, max_scale=2.0**60)
    for size in (2.0**-20, 2.0**-9, 2.0**-30):
        x = np.float32(random.normal(0, size, 100))
        seen = state.observe([fpemu.tally(x * np.float32(carried))], carried).adjust(False)
        amax = np.abs(x).max()
        bound = 2.0**margin * amax * seen.scale
        # within half a gap above the largest value it still rounds to it
        assert bound <= largest * 1.07
        assert 2 * bound > largest
        # the window still holds the gradients before: the smaller scale of the two
        both = state.observe([fpemu.tally(x * np.float32(carried))], carried)
        both = both.observe([fpemu.tally(x / 4 * np.float32(carried))], carried)
        assert both.adjust(False).scale == seen.scale


def test_histogram_backs_off_and_is_bounded() -> None:
    state = lossscale.scaler("histogram", init_scale=64, min_scale=8, max_scale=128, margin=1)
    tiny = fpemu.tally(np.float32([1e-30]))
    assert state.observe([tiny]).adjust(False).scale == 128.0
    after = state.observe([tiny]).adjust(True)
    assert after.scale == 32.0
    assert after.adjust(False).scale == 32.0
    assert lossscale.simulate(state, [True] * 9)[-1] == 8.0
    assert state.observe([fpemu.tally(np.float32([0.0, np.nan, np.inf]))]) == state
    assert state.observe([]) == state
    assert state.adjust(False) == state
    assert not lossscale.scaler("torch").OBSERVES
    assert state.OBSERVES
    assert lossscale.scaler("torch").observe([tiny]) == lossscale.scaler("torch")


@pytest.mark.parametrize(
    "to", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float16:toward_zero",
           "float16:up", "float8_e5m2:down", "float8_e5m2:overflow=saturate",
           "float4_e2m1fn"],
)  # fmt: skip
def test_room_is_what_rounding_shows(to: str) -> None:
    random = np.random.default_rng(7)
    cast = fpemu.Cast(to) if ":" not in to else fpemu.cast.make_cast(to)
    for _ in range(6):
        x = np.float32(random.normal(0, 2.0 ** random.integers(-12, 3), 20))
        if random.random() < 0.5:
            x = np.abs(x) * np.float32([-1, 1])[int(random.integers(2))]
        k = room(fpemu.tally(x), cast)
        assert k is not None
        if k == 300:
            big = fpemu.round(x * np.float32(2.0**100), cast)
            assert np.isfinite(big).all()
            continue
        with np.errstate(over="ignore"):
            fits, beyond = (fpemu.round(np.float64(x) * 2.0**n, cast) for n in (k, k + 1))
        assert np.isfinite(fits).all()
        assert not np.isfinite(beyond).all()
    assert room(fpemu.tally(np.float32([0, np.nan, np.inf])), cast) is None


# --- by name, with settings ---------------------------------------------------------------------

TEXTS = [
    "apex:init_scale=2^20,scale_window=5,min_loss_scale=2^-5,max_loss_scale=1000",
    "apex_static:loss_scale=3",
    "caffe2_static:loss_scale=2^9",
    "deepspeed:init_scale=2^20,scale_window=7,min_scale=2,delayed_shift=1,"
    "consecutive_hysteresis=true,raise_error_at_min_scale=false",
    "deepspeed_fused:init_scale=2^16,scale_window=9,min_scale=4",
    "deepspeed_static:loss_scale=2^7",
    "deepspeed_unfused:init_scale=0.1,scale_window=9,min_scale=4",
    "histogram:init_scale=4,to=float8_e5m2:overflow=saturate,margin=0,window=3,min_scale=2,"
    "max_scale=2^8",
    "jmp:loss_scale=2^10,period=3,factor=4,min_loss_scale=2^-9",
    "jmp_noop",
    "jmp_static:loss_scale=2",
    "keras:initial_scale=1e-30,dynamic_growth_steps=1",
    "mxnet:loss_scale=4,max_loss_scale=2^30,scale_seq_len=11",
    "none",
    "static:scale=2^-10,skip=true",
    "tf_keras:initial_scale=2^30,dynamic_growth_steps=3",
    "torch:init_scale=1e+30,growth_factor=1.5,backoff_factor=0.75,growth_interval=3",
]  # fmt: skip


def test_every_scaler_is_among_the_texts() -> None:
    assert tuple(text.partition(":")[0] for text in TEXTS) == lossscale.names()
    for text in TEXTS:  # each setting, away from its default
        made = lossscale.scaler(text)
        defaults = lossscale.scaler(made.name).settings
        assert all(made.settings[key] != value for key, value in defaults.items())


@pytest.mark.parametrize("text", TEXTS)
def test_text_both_ways(text: str) -> None:
    made = lossscale.scaler(text)
    assert str(made) == text
    assert lossscale.scaler(str(made)) == made
    assert lossscale.scaler(made.name, **made.settings) == made
    assert hash(lossscale.scaler(text)) == hash(made)
    moved = made.adjust(True).adjust(False)
    assert lossscale.scaler(moved) == made  # as it starts


def test_text_as_people_type_it() -> None:
    want = lossscale.scaler("torch", init_scale=2.0**20, growth_interval=100)
    assert lossscale.scaler(" torch : growth_interval = 100 , init_scale=2**20,") == want
    assert lossscale.scaler("torch:growth_interval=1e2,init_scale=1048576") == want
    base = lossscale.scaler("torch:growth_interval=3")
    assert lossscale.scaler(base, growth_interval=100, init_scale=2**20) == want
    with_rules = lossscale.scaler("histogram", to=fpemu.cast.make_cast("e5m2:up,subnormals=flush"))
    assert lossscale.scaler(str(with_rules)) == with_rules


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "name": ("torhc", {}, "unknown loss scaler 'torhc'; did you mean 'torch'"),
    "empty": ("", {}, "unknown loss scaler ''"),
    "setting": ("torch", {"growth_intervall": 3}, "did you mean 'growth_interval'"),
    "other framework's": ("keras", {"init_scale": 3}, "did you mean 'initial_scale'"),
    "none has any": ("none", {"scale": 3}, "unknown setting 'scale'; it has no settings"),
    "interval 0": ("torch", {"growth_interval": 0}, "must be a whole number from 1 on"),
    "interval 1.5": ("torch", {"growth_interval": 1.5}, "must be a whole number from 1 on"),
    "interval inf": ("torch", {"growth_interval": math.inf}, "must be a whole number from 1"),
    "interval nan": ("torch", {"growth_interval": math.nan}, "must be a whole number from 1"),
    "interval True": ("torch", {"growth_interval": True}, "must be a whole number from 1 on"),
    "growth 1": ("torch", {"growth_factor": 1.0}, "must be a finite number above 1"),
    "backoff 1": ("torch", {"backoff_factor": 1}, "must be a number between 0 and 1"),
    "scale 0": ("apex", {"init_scale": 0}, "must be a positive finite number"),
    "scale nan": ("apex", {"init_scale": math.nan}, "must be a positive finite number"),
    "float32": ("keras", {"initial_scale": 2.0**128}, "must be a positive number that is finite"),
    "text": ("mxnet", {"loss_scale": "big"}, "loss_scale='big': must be a positive finite"),
    "array": ("mxnet", {"loss_scale": np.ones(2)}, "must be a positive finite number"),
    "matrix": ("mxnet", {"loss_scale": np.ones((3, 3))}, "[1., 1., 1.], [1."),
    "no range": ("histogram", {"min_scale": 2.0**50}, "min_scale=2^50 is above max_scale=2^40"),
    "huge": ("mxnet", {"loss_scale": 10**400}, "must be a positive finite number"),
    "flag": ("static", {"skip": 1}, "skip=1: must be true or false"),
    "no power": ("histogram", {"init_scale": 3}, "must be a power of two"),
    "cast": ("histogram", {"to": "fp17"}, "histogram: to: unknown format 'fp17'"),
    "stochastic": ("histogram", {"to": "fp16:stochastic"}, "cannot know the draws"),
    "twice": ("deepspeed:hysteresis=1,delayed_shift=1", {}, "are one setting; give it once"),
    "same twice": ("torch:init_scale=1,init_scale=2", {}, "init_scale is given twice"),
    "no value": ("torch:growth_interval", {}, "write name:setting=value"),
    "no name": ("torch:=3", {}, "write name:setting=value"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_in_one_line(case: str) -> None:
    name, given, message = REFUSED[case]
    with pytest.raises(InputError) as refused:
        lossscale.scaler(name, **given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", lossscale.names())
def test_states_are_frozen_and_tell_themselves(name: str) -> None:
    state = lossscale.scaler(name)
    before = repr(state)
    moved = state.adjust(True)
    assert repr(state) == before
    assert name in before
    assert type(moved) is type(state)
    with pytest.raises(FrozenInstanceError):
        state.scale = 2.0  # type: ignore[misc]
    for bad in (2, -1, None, "yes", math.nan, 0.5):
        with pytest.raises(InputError, match="must be True or False"):
            state.adjust(bad)  # type: ignore[arg-type]
    assert state.adjust(np.True_) == state.adjust(1) == moved
    told = json.loads(json.dumps(moved.to_json(), allow_nan=False))
    assert told["state"]["scale"] == moved.scale
    assert told["name"] == name
    assert lossscale.scaler(told["name"], **told["settings"]) == state


def test_infinite_scales_are_words_in_json() -> None:
    state = lossscale.scaler("keras", initial_scale=2.0**127, dynamic_growth_steps=1).adjust(False)
    assert json.loads(json.dumps(state.to_json(), allow_nan=False))["state"]["scale"] == "inf"


def test_simulate_goes_on_from_a_state() -> None:
    state, overflows = lossscale.scaler("deepspeed:scale_window=3"), random_sequences(1, 50, 9)[0]
    whole = lossscale.simulate(state, overflows)
    for overflow in overflows[:20]:
        state = state.adjust(overflow)
    assert lossscale.simulate(state, overflows[20:]) == whole[20:]
    assert lossscale.simulate("torch", []) == []


def test_the_standard_frameworks_are_known() -> None:
    made: Callable[[str], Any] = lossscale.scaler
    assert {made(text).name for text in FRAMEWORKS} <= set(lossscale.names())


@pytest.mark.parametrize("overflows", [3, None, [2], "01", np.zeros((2, 400), bool)])
def test_sequences_that_say_no_overflows(overflows: Any) -> None:
    with pytest.raises(InputError, match="overflow") as refused:
        lossscale.simulate("torch", overflows)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 160
