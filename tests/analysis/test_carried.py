"""The loss scale that gradients carry, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpemu.analysis.carried import carried
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError


def test_each_step_has_its_own_or_the_last_one() -> None:
    trace = Trace(metadata={"recorded_loss_scale": 4.0})
    assert carried(trace).at(3) == 4.0
    for step, scale in ((10, 64.0), (20, 32.0), (30, 0.0)):
        trace.scalar(step, "loss_scale", scale)
    scales = carried(trace)
    assert [scales.at(k) for k in (0, 9, 10, 19, 20, 30, 99)] == [64, 64, 64, 64, 32, 32, 32]
    assert scales.known == {10: 64.0, 20: 32.0}
    assert not scales.none
    assert carried(Trace()).none


def test_only_gradients_carry_it_and_factors_give_their_true_outcomes() -> None:
    rng = np.random.default_rng(0)
    true = np.float32(2.0 ** rng.uniform(-40, 0, 5000))
    trace = Trace()
    for step, scale in enumerate((2.0**15, 2.0**3, 1.0)):
        trace.scalar(step, "loss_scale", scale)
        for kind in ("activation", "weight_gradient"):
            trace.record("x", kind, true * np.float32(scale), step)
    scales = carried(trace)
    with np.errstate(over="ignore"):
        zeros = int((true.astype(np.float16) == 0).sum())
    for record in trace.records(kind="weight_gradient"):
        assert record.tally.outcome("float16", scales.factor(record)).underflow == zeros
    assert {scales.of(record) for record in trace.records(kind="activation")} == {1.0}


@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    trace = Trace()
    trace.scalar(4, "loss_scale", scale)
    with pytest.raises(InputError, match="step 4: loss scale"):
        carried(trace)


def test_only_powers_of_two_unscale_exactly() -> None:
    trace = Trace()
    trace.scalar(0, "loss_scale", 1000.0)
    trace.record("x", "weight_gradient", np.float32([1]), 0)
    [record] = trace.records()
    assert carried(trace).of(record) == 1000.0
    with pytest.raises(InputError, match=r"loss scale 1000\.0 at step 0"):
        carried(trace).factor(record)
