"""First causes: faults put into a run on purpose are found, named and explained."""

# ruff: noqa: E402 (PyTorch is optional: without it the module is skipped before it is needed)

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="watching a model needs PyTorch, an extra")

from rich.console import Console
from torch import nn

from fpemu.analysis import Trace, report, watch
from fpemu.analysis.first_cause import (
    EVENT,
    FirstCause,
    FirstCauseError,
    Glimpse,
    causes_in,
)
from fpemu.analysis.report.sections.first_cause import render_causes
from fpemu.errors import InputError

TEXT = Path(__file__).read_text().splitlines()


class Block(nn.Module):
    """A residual block, the fault of which a test chooses."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.wo = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.wo.weight)

    def forward(self, x):
        y = self.wo(x)
        y = self.fault(y)
        return x + y  # the residual

    def fault(self, y):
        return y


class Model(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        nn.init.eye_(self.first.weight)
        self.block = block

    def forward(self, x):
        return self.block(self.first(x))


def once(block: nn.Module, x, lr: float = 0.0, **options):
    """One step; all values are powers of two or small integers, so the sums are known."""
    model = Model(block)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    with watch(model, optimizer, **options) as run:
        model(torch.as_tensor(x)).mean().backward()
        optimizer.step()
    return run


def line_of(cause: FirstCause) -> str:
    file, _, number = cause.source.rpartition(":")
    assert file.endswith("test_first_cause.py")
    assert TEXT[int(number) - 1].strip() == cause.code
    return cause.code


# --- forward ---------------------------------------------------------------------------------


def test_a_residual_addition_beyond_65504_is_found_and_named():
    """T5's overflow in small: both terms fit, their sum does not."""
    x = torch.full((2, 4), 33000.0)
    [cause] = once(Block(), x, to="float16").causes
    assert (cause.what, cause.to, cause.step, cause.phase) == ("overflow", "float16", 0, "forward")
    assert (cause.module, cause.operation, cause.role) == ("block", "add", "producer")
    assert "return x + y  # the residual" in line_of(cause)
    assert (cause.amax_in, cause.amax_out) == (33000.0, 66000.0)
    assert (cause.count, cause.total, cause.nan, cause.inf) == (8, 8, 0, 0)
    assert [seen.name for seen in cause.inputs] == ["first", "block.wo"]
    assert re.fullmatch(r"block\.add@test_first_cause\.py:\d+", cause.name)
    assert once(Block(), x, to="bfloat16").causes == []
    assert once(Block(), torch.full((2, 4), 32752.0), to="float16").causes == []  # 65504
    assert once(Block(), torch.full((2, 4), 32759.0), to="float16").causes == []  # rounds to it
    [edge] = once(Block(), torch.full((2, 4), 32760.0), to="float16").causes  # a tie: to infinity
    assert edge.amax_out == 65520.0


def test_saturation_counts_too_and_says_so():
    run = once(Block(), torch.full((1, 4), 300.0), to="e4m3fn:overflow=saturate")
    assert (run.causes[0].what, run.causes[0].operation) == ("saturated", "add")
    assert run.causes[0].to == "float8_e4m3fn:overflow=saturate"


class Root(Block):
    def fault(self, y):
        return torch.sqrt(y - 3)


def test_nan_out_of_normal_values_has_a_producer():
    first = once(Root(), [[1.0, 4.0, 7.0, 12.0]]).causes[0]
    assert (first.what, first.operation, first.role, first.to) == ("nan", "sqrt", "producer", None)
    assert "torch.sqrt(y - 3)" in line_of(first)
    assert (first.nan, first.count, first.total, first.amax_out) == (1, 1, 4, 3.0)
    assert first.amax_in == 9.0
    assert [s.operation for s in first.lead_up] == ["linear", "linear", "sub"]
    assert "1 of 4 values" in first.explanation
    assert "where it began" in first.explanation


def test_nan_that_came_in_is_propagated():
    [cause] = once(Block(), [[1.0, float("nan"), 1.0, 1.0]]).causes
    assert (cause.role, cause.module, cause.operation) == ("propagator", "first", "linear")
    assert [seen.name for seen in cause.inputs] == ["input", "first.weight"]
    assert cause.inputs[0].nan == 1
    assert "it came in already" in cause.explanation


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_bad_batch_is_told_apart_from_a_mask(bad):
    batch = torch.ones(2, 4)
    batch[1, 2] = bad
    layer = nn.Linear(4, 4)
    with watch(layer) as run:
        layer(batch).sum().backward()
    cause = run.causes[0]
    assert (cause.name, cause.role) == ("Linear", "propagator")
    assert f": 1 {'NaN' if bad != bad else 'inf'} in, " in cause.headline
    assert cause.inputs[0].name == "input"


class InPlace(Block):
    def fault(self, y):
        y *= 2.0**100
        y *= 2.0**100
        return y


def test_in_place_operations_know_what_they_overwrote():
    first = once(InPlace(), [[1.0, 1.0, 1.0, 0.0]]).causes[0]
    assert (first.what, first.operation, first.inf) == ("inf", "mul_", 3)
    assert first.amax_in == 2.0**100
    assert first.role == "producer"
    assert first.name.endswith("#2") is False
    assert "y *= 2.0**100" in line_of(first)


# --- backward and optimizer ------------------------------------------------------------------


class Edge(Block):
    def fault(self, y):
        return y.abs().sqrt()  # infinite slope at zero


def test_a_gradient_names_the_operation_whose_backward_made_it():
    causes = once(Edge(), [[0.0, 1.0, 4.0, 9.0]]).causes
    first = causes[0]
    assert (first.what, first.phase, first.kind) == ("inf", "backward", "activation_gradient")
    assert (first.operation, first.module, first.role) == ("backward of sqrt", "block", "producer")
    assert "y.abs().sqrt()" in line_of(first)
    assert first.amax_in == 0.25
    assert first.inf == 1
    nan = next(cause for cause in causes if cause.what == "nan")  # inf * sign(0)
    assert (nan.operation, nan.role) == ("backward of abs", "propagator")


def test_the_optimizer_is_a_phase_of_its_own():
    causes = once(Block(), [[1.0, 1.0, 1.0, 16.0]], lr=2.0**127).causes
    first = causes[0]
    assert (first.phase, first.operation, first.what) == ("optimizer", "SGD.step", "inf")
    assert first.role == "producer"
    assert "optimizer.step()" in line_of(first)
    assert {seen.kind for seen in first.inputs} == {"weight", "weight_gradient"}


def test_a_weight_is_what_the_step_began_with():
    block = Block()
    with torch.no_grad():
        block.wo.weight[0, 0] = 70000.0
    first = once(block, [[0.0, 1.0, 1.0, 1.0]], to="float16").causes[0]
    assert (first.name, first.kind, first.role) == ("block.wo.weight", "weight", "propagator")
    assert "the step began with it" in first.explanation


def test_state_and_updates_are_not_judged_in_a_format():
    run = once(Block(), [[1.0, 1.0, 1.0, 1.0]], lr=2.0**20, to="float16")
    assert run.causes == []


# --- stopping --------------------------------------------------------------------------------


def test_stop_on_raises_at_the_place_with_the_report():
    model = Model(Root())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = watch(model, optimizer, stop_on="nan", lead_up=2)
    reached = []

    def training():
        with run:
            for scale in (7.0, 1.0, 9.0):
                reached.append(scale)
                model(torch.full((1, 4), scale))

    with pytest.raises(FirstCauseError) as error:
        training()
    assert reached == [7.0, 1.0]
    cause = error.value.cause
    assert str(error.value) == cause.text()
    assert isinstance(error.value, ValueError)
    first, *rest = str(error.value).splitlines()
    assert first == cause.headline
    assert "in sqrt of block" in first
    assert any("before it" in line for line in rest)
    assert len(cause.lead_up) == 2
    assert run.trace.steps() == [0]
    assert causes_in(run.trace.events()) == (cause,)


@pytest.mark.parametrize(("stop_on", "raises"), [("overflow", True), ("nan", False)])
def test_stop_on_waits_for_what_it_names(stop_on, raises):
    x = torch.full((1, 4), 33000.0)
    if raises:
        with pytest.raises(FirstCauseError, match="overflow in float16 at step 0"):
            once(Block(), x, to="float16", stop_on=stop_on)
    else:
        assert once(Block(), x, to="float16", stop_on=stop_on).causes


def test_stop_on_in_the_backward_pass():
    with pytest.raises(FirstCauseError, match="backward of sqrt"):
        once(Edge(), [[0.0, 1.0, 4.0, 9.0]], stop_on=["overflow", "nan"])


def test_lead_up_keeps_the_last_tensors_over_steps():
    model = Model(Block())
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, optimizer, to="float16", lead_up=5, kinds="activation") as run:
        for scale in (1.0, 2.0, 33000.0):
            model(torch.full((1, 4), scale)).sum().backward()
            optimizer.step()
    [cause] = run.causes
    assert cause.step == 2
    assert [s.amax for s in cause.lead_up] == [2.0, 4.0, 16.0, 33000.0, 33000.0]


# --- as data ---------------------------------------------------------------------------------

SEEN = Glimpse("<b>", "activation", "forward", "add", 1.5, 0, 0, 4)
CAUSE = FirstCause(
    what="inf", to=None, step=3, name="<script>", kind="activation", module="m[red]",
    operation="mul", source="a.py:1", code="x = '<i>'", phase="forward", role="producer",
    amax_in=None, amax_out=3e38, nan=0, inf=2, count=2, total=4, inputs=(SEEN,), lead_up=(SEEN,),
)  # fmt: skip


def traced(*causes: FirstCause) -> Trace:
    trace = Trace()
    trace.record("a", "activation", torch.ones(3).numpy(), 0)
    for cause in causes:
        trace.event(cause.step, cause.name, EVENT, cause.headline, cause=cause.to_json())
    return trace


def test_causes_survive_json():
    assert FirstCause.from_json(json.loads(json.dumps(CAUSE.to_json()))) == CAUSE
    with pytest.raises(InputError, match="first cause"):
        FirstCause.from_json({"what": "nan"})


def test_of_several_ranks_the_earliest_counts_and_caught_ones_come_last():
    caught = replace(CAUSE, step=1, caught=True)
    trace = traced(replace(CAUSE, step=5), caught)
    trace.merge(traced(CAUSE, replace(CAUSE, what="nan", step=4)))
    found = causes_in(trace.events())
    assert [(c.what, c.step, c.caught) for c in found] == [
        ("inf", 3, False), ("nan", 4, False), ("inf", 1, True),
    ]  # fmt: skip


def test_the_report_has_it_as_its_second_section():
    found = report.build(traced(CAUSE), to="float16")
    assert found.first_causes == (CAUSE,)
    assert found.log == ()
    page = report.html.render(found, plots=False)
    at = [page.index(f'<section id="{name}"') for name in ("verdict", "first-cause", "tensors")]
    assert at == sorted(at)
    assert "infinity at step 3, forward, in mul of m[red] (a.py:1)" in page
    assert "&lt;script&gt;" in page
    assert "<i>'" not in page.partition("<main>")[2].partition("x = ")[0]
    text = io.StringIO()
    report.text.render(found, Console(file=text, width=120, no_color=True))
    assert "2 First cause" in text.getvalue()
    assert "infinity at step 3, forward, in mul of m[red] (a.py:1): nothing in, 2 inf out" in (
        text.getvalue()
    )
    [facts] = json.loads(json.dumps(found.to_json(), allow_nan=False))["first_causes"]
    assert FirstCause.from_json(facts) == CAUSE
    schema = (Path(__file__).parents[2] / "docs" / "report.schema.md").read_text("utf-8")
    documented = set(re.findall(r"`(\w+)`", schema))
    assert set(facts) | set(facts["inputs"][0]) <= documented


def test_a_report_without_causes_has_no_such_section():
    found = report.build(traced())
    assert found.first_causes == ()
    assert 'id="first-cause"' not in report.html.render(found, plots=False)


def test_the_terminal_spends_no_columns_on_what_did_not_happen():
    [overflow] = once(Block(), torch.full((2, 4), 33000.0), to="float16").causes
    [nan] = once(Root(), torch.ones(2, 4)).causes[:1]
    for cause, columns in ((overflow, False), (nan, True)):
        console = Console(file=(out := io.StringIO()), width=80)
        render_causes([cause], console, 8)
        [titles] = [line for line in out.getvalue().splitlines() if " amax " in line]
        assert ("infinite" in titles) is columns
        assert "input input" not in out.getvalue()
