"""A policy that follows statistics: its decisions against a plain state machine, its runs real."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpemu.analysis import Trace, schedule
from fpemu.analysis.schedule.held import Held, Seen
from fpemu.errors import InputError
from fpemu.policies import Override, Policy, find_policy

# --- lines and hysteresis ----------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.1, 50.0]), max_size=30),
    st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip
def test_a_layer_goes_down_and_up_as_a_search_through_its_past_says(
    values: list[float], patience: int, patience_up: int
) -> None:
    line, held, narrow, since = schedule.Line("lost_percent", down=0.1, up=1.0), Held(), False, 0
    for k, value in enumerate(values):
        held = held.after([Seen(line, value, "fc", "weight")], patience, patience_up)
        past = values[since : k + 1]  # since the last change
        window = past[-(patience_up if narrow else patience) :]
        long_enough = len(window) == (patience_up if narrow else patience)
        if long_enough and all(v > 1.0 if narrow else v <= 0.1 for v in window):
            narrow, since = not narrow, k + 1
        assert held.narrow is narrow


def test_every_line_must_hold_to_go_down_and_one_suffices_to_go_up() -> None:
    one, other = schedule.Line("lost_percent", 1, 2), schedule.Line("subnormal_percent", 10, 20)

    def seen(a: float, b: float) -> list[Seen]:
        return [Seen(one, a, "x", "weight"), Seen(other, b, "y", "weight")]

    assert not Held().after(seen(0.5, 15)).narrow
    down = Held().after(seen(0.5, 5))
    assert down.narrow
    assert down.after(seen(1.5, 15)).narrow
    assert not down.after(seen(0.5, 25)).narrow
    assert down.after([]) is down, "a step without statistics says nothing"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("lost_percents", 0, 1), "did you mean 'lost_percent'"),
        (("lost_percent", 2, 1), "down at most up"),
        (("lost_percent", -1, 1), "down at most up"),
        (("lost_percent", math.nan, 1), "must be a number"),
        (("lost_percent", "0", 1), "must be a number"),
        (("lost_percent", True, 1), "must be a number"),
    ],
)
def test_lines_that_are_none_are_refused(values: tuple[str, float, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        schedule.Line(*values)


def test_nan_is_above_a_line() -> None:
    assert schedule.Line("lost_percent", 0, 1).side(math.nan) == 1


def test_statistics_are_shares_of_what_they_say() -> None:
    values = np.float32([0, np.nan, np.inf, 1e-9, 2.0**-20, 1, 7e4, -7e4])
    trace = Trace()
    trace.record("fc", "weight", values, 0)
    [record] = trace.records()
    outcome = record.tally.outcome("float16")
    found = {name: of(outcome) for name, of in schedule.STATISTICS.items()}
    assert found == {
        "lost_percent": 60.0, "underflow_percent": 20.0, "subnormal_percent": 20.0,
        "saturated_percent": 0.0, "overflow_percent": 40.0, "nonfinite_percent": 25.0,
    }  # fmt: skip
    empty = Trace()
    empty.record("fc", "weight", np.float32([]), 0)
    [record] = empty.records()
    assert {of(record.tally.outcome("fp16")) for of in schedule.STATISTICS.values()} == {0.0}


# --- the callback, on made-up statistics -------------------------------------------------------


class Emulation:
    """What a follower asks of an emulation, and nothing else."""

    def __init__(self, policy: str) -> None:
        self.policy, self.step = find_policy(policy), 0

    def change(self, policy: Policy) -> None:
        self.policy = policy


WIDE = "uniform:float32; result: float32"


def written(values: dict[str, list[float]]) -> Trace:
    """A trace of which each step has one value, a power of two, for each of some tensors."""
    trace = Trace()
    for step, row in enumerate(zip(*values.values(), strict=True)):
        for name, value in zip(values, row, strict=True):
            trace.record(name, "weight", np.float32([value]), step)
    return trace


def followed(trace: Trace, **options: object) -> tuple[schedule.Follower, list[Policy]]:
    """A run over a whole trace; the policy at each step."""
    emulation, parts = Emulation(WIDE), Trace()
    narrow = options.pop("narrow", {"weight": "fp16"})
    callback = schedule.follow(emulation, parts, narrow, **options)  # type: ignore[arg-type]
    policies = []
    for step in trace.steps():
        policies.append(emulation.policy.at(step))
        for record in trace.records(step=step):
            parts.add(record)
        emulation.step = step + 1
        callback()
    return callback, policies


def test_each_layer_is_decided_on_by_its_own_tensors() -> None:
    rng, small = random.Random(1), 2.0**-30
    values = {
        name: [small if rng.random() < 0.3 else 1.0 for _ in range(60)]
        for name in ("a.fc.weight", "a.fc.bias", "b.weight")
    }
    callback, policies = followed(written(values), patience=2)
    narrow, calm = {"a.fc": False, "b": False}, {"a.fc": 0, "b": 0}
    want = []
    for step in range(60):
        for layer in narrow:
            assert (str(policies[step].cast("weight", "linear", layer)) == "float16") is (
                narrow[layer]
            )
            bad = any(values[name][step] == small for name in values if name.startswith(layer))
            calm[layer] = 0 if bad else calm[layer] + 1
            if narrow[layer] is bad and (bad or calm[layer] >= 2):
                narrow[layer], calm[layer] = not narrow[layer], 0
                want.append((step, layer, narrow[layer]))
    got = [(one.step, one.layer, one.after == "float16") for one in callback.log]
    assert got == want
    assert len(want) > 10
    assert callback.narrow_layers == [layer for layer in narrow if narrow[layer]]


def test_a_decision_says_what_when_and_why() -> None:
    trace = written({"fc.weight": [1.0, 1.0, 2.0**-30], "fc.bias": [1.0, 1.0, 1.0]})
    callback, _ = followed(trace, patience=2)
    down, up = callback.log
    assert (down.step, down.first_step, down.before, down.after) == (1, 2, "float32", "float16")
    assert (down.statistic, down.value, down.line) == ("lost_percent", 0.0, 0.1)
    assert (up.step, up.first_step, up.before, up.after) == (2, 3, "float16", "float32")
    assert (up.statistic, up.value, up.line) == ("lost_percent", 100.0, 1.0)
    assert (up.layer, up.tensor, up.kind) == ("fc", "fc.weight", "weight")
    assert callback.policy.overrides == (
        Override("fp16", module="fc", kind="weight", first_step=2, last_step=2),
    )


def test_the_log_is_json_both_ways_and_a_table() -> None:
    callback, _ = followed(written({"fc.weight": [1.0, 2.0**-30]}), patience=1)
    text = schedule.decisions.to_json(callback.log)
    assert schedule.decisions.from_json(text) == callback.log
    assert [one["layer"] for one in json.loads(text)] == ["fc", "fc"]
    head, down, up = schedule.table(callback.log).splitlines()
    assert head.split() == ["step", "layer", "statistic", "value", "line", "from", "to", "tensor"]
    assert down.split() == ["0", "fc", "lost", "0", "%", "0.1", "%", "float32", "float16",
                            "fc.weight", "(weight)"]  # fmt: skip
    assert up.split()[3:9] == ["100", "%", "1", "%", "float16", "float32"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"step": 1}]', None])
def test_a_log_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="decision"):
        schedule.decisions.from_json(text)


def test_a_change_that_never_held_leaves_no_override() -> None:
    emulation, trace = Emulation(WIDE), Trace()
    callback = schedule.follow(emulation, trace, {"weight": "fp16"}, patience=1)
    trace.record("fc.weight", "weight", np.float32([1.0]), 0)
    assert len(callback()) == 1
    trace.record("fc.weight", "weight", np.float32([1e-9]), 1)
    assert len(callback()) == 1, "the emulation's own step has not gone on"
    assert emulation.policy.overrides == ()
    assert callback() == ()


def test_formats_by_kind_of_tensor() -> None:
    emulation, trace = Emulation(WIDE), Trace()
    narrow = {"activation": "e4m3fn", "weight": "e4m3fn", "gradient": "e5m2"}
    callback = schedule.follow(emulation, trace, narrow, patience=1)
    for kind, value in (("activation", 1.0), ("activation_gradient", 2.0**-15)):
        trace.record("fc", kind, np.float32([value]), 0)  # which E4M3 would lose
    [decision] = callback()
    assert decision.after == "float8_e4m3fn, gradient float8_e5m2"
    assert decision.before == "float32"
    for kind, to in narrow.items():
        cast = emulation.policy.cast(kind, "linear", "fc", step=0)
        assert cast == Override(to, kind="weight").to


def test_layers_are_chosen_by_patterns() -> None:
    values = {f"{name}.weight": [1.0] for name in ("blocks.0.fc", "blocks.1.fc", "head")}
    callback, _ = followed(written(values), patience=1, layers="blocks.*")
    assert callback.narrow_layers == ["blocks.0.fc", "blocks.1.fc"]
    with pytest.raises(InputError, match=r"layers block\.\*: nothing that was recorded is in one"):
        followed(written(values), layers="block.*")


def test_what_cannot_be_followed_is_refused() -> None:
    trace = Trace()
    with pytest.raises(InputError, match="'uniform:float32' has no format for results"):
        schedule.follow(Emulation("uniform:float32"), trace, "fp16")
    schedule.follow(Emulation("uniform:float32"), trace, {"weight": "fp16"})
    with pytest.raises(InputError, match="did you mean 'weight'"):
        schedule.follow(Emulation(WIDE), trace, {"weigth": "fp16"})
    with pytest.raises(InputError, match="give a format"):
        schedule.follow(Emulation(WIDE), trace, {})
    with pytest.raises(InputError, match="at least one"):
        schedule.follow(Emulation(WIDE), trace, "fp16", lines=[])
    with pytest.raises(InputError, match="is no Line"):
        schedule.follow(Emulation(WIDE), trace, "fp16", lines=["lost_percent"])
    with pytest.raises(InputError, match="patience"):
        schedule.follow(Emulation(WIDE), trace, "fp16", patience_up=0)


# --- the callback, on a real run ---------------------------------------------------------------


def test_a_run_that_follows_is_repeated_by_the_policy_it_made() -> None:
    """Down and up in one training run, and the same numbers again from the schedule alone."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install fpemu[torch]")
    from fpemu.analysis import watch
    from fpemu.torch import emulate

    narrow = {"activation": "e4m3fn", "weight": "e5m2", "gradient": "e5m2"}
    lines = schedule.Line("lost_percent", down=10.0, up=25.0)

    def trained(policy: Policy | str, follows: bool) -> tuple[list[float], list[str], object]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        draws = torch.Generator().manual_seed(1)
        losses, formats, callback = [], [], None
        with emulate(policy, model=model) as emulation:
            run = watch(model, optimizer, tensors="matmul") if follows else None
            if run is not None:
                run.__enter__()
                callback = schedule.follow(
                    emulation, run, narrow, lines=lines, patience=2, patience_up=1
                )
            for step in range(12):
                x = torch.randn(16, 6, generator=draws) * (2.0**-12 if 5 <= step < 8 else 1.0)
                loss = torch.nn.functional.cross_entropy(model(x), torch.arange(16) % 3)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
                if callback is not None:
                    callback()
                formats.append(str(emulation.policy.cast("weight", "linear", "0", step + 1)))
            if run is not None:
                run.__exit__(None, None, None)
                events = [(e.step, e.name) for e in run.trace.events() if e.kind == "format"]
                assert events == [(d.step, d.layer) for d in callback.log]
        return losses, formats, callback

    wide = trained(WIDE, follows=False)[0]
    losses, formats, callback = trained(WIDE, follows=True)
    assert [(one.step, one.after == "float32") for one in callback.log if one.layer == "0"] == [
        (1, False), (5, True), (9, False)
    ]  # fmt: skip
    assert formats[:1] == ["float32"]
    assert formats[1:5] == ["float8_e5m2"] * 4
    assert formats[5:9] == ["float32"] * 4
    assert losses[:2] == wide[:2]
    assert losses[2] != wide[2]
    again = trained(callback.policy, follows=False)
    assert again[0] == losses
    assert again[1] == formats


def test_changing_an_emulation_begins_and_ends_what_modules_do() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install fpemu[torch]")
    from fpemu.torch import emulate

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    base = find_policy(WIDE)
    lowered = base.replace(overrides=[Override("e4m3fn", module="1", first_step=3)])
    x = torch.randn(5, 4)
    plain = model(x)
    with emulate(base, model=model) as emulation:
        assert torch.equal(model(x), plain)
        emulation.change(lowered)
        assert torch.equal(model(x), plain), "before step 3"
        emulation.step = 3
        narrow = model(x)
        assert not torch.equal(narrow, plain)
        assert str(emulation.format(narrow)) == "float8_e4m3fn"
        emulation.change(base)
        assert torch.equal(model(x), plain)
        with pytest.raises(InputError, match="in more than its overrides"):
            emulation.change("uniform:bf16")
        with pytest.raises(InputError, match="no operation matches 'lineer'"):
            emulation.change(base.replace(overrides=[Override("bf16", operation="lineer")]))
        assert emulation.policy == base
        emulation.change(lowered)
    with emulation:
        assert torch.equal(model(x), narrow), "and when it is entered again"
    assert not torch.nn.modules.module._global_forward_pre_hooks
