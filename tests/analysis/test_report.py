"""The report: its rows against numpy, its verdict against runs made to be judged, its pages."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import fpemu
from fpemu.analysis import report
from fpemu.analysis.cli import main
from fpemu.analysis.plots import compute
from fpemu.analysis.report import Status, build
from fpemu.analysis.report.commands import report as report_command
from fpemu.analysis.report.commands import whatif as whatif_command
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import update_tally
from fpemu.analysis.what_if import whatif
from fpemu.blocks import block_tally
from fpemu.errors import InputError

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.md"

HOSTILE = [
    "<script>alert(1)</script>",
    "\"' onmouseover=alert(1) x=\"",
    "</title></style></td>-->]]>&amp;&lt;",
    "$\\frac{1}{ $x_^ [bold]red[/bold]",
    "{{ 7*7 }} {% raw %} {# no #}",
    "слой 漢字 é \u202edaer \u200b",
    "javascript:alert(1)",
    "n" * 300,
]


def normal(seed: int, scale: float, shape: tuple[int, ...] = (50, 40)) -> np.ndarray:
    return (np.random.default_rng(seed).normal(0, 1, shape) * scale).astype(np.float32)


def run(gradient: float = 2.0**-8, steps: int = 3, **metadata: object) -> Trace:
    """A run that float16 holds, if its gradients are not too small."""
    trace = Trace(metadata={"seed": 5, **metadata})
    for step in range(0, 10 * steps, 10):
        for k in range(2):
            trace.record(f"fc{k}", "activation", np.abs(normal(step + k, 1.0)), step)
            trace.record(f"fc{k}", "weight", normal(step + k, 0.05) + np.float32(0.5), step)
        for k in (1, 0):
            g = np.exp2(np.random.default_rng(step + k).normal(0, 1, 2000)).astype(np.float32)
            trace.record(f"fc{k}", "activation_gradient", g * np.float32(gradient), step)
            trace.record(f"fc{k}", "weight_gradient", g * np.float32(gradient / 4), step)
    return trace


# --- rows --------------------------------------------------------------------------------------


def test_a_tensor_row_is_what_numpy_computes() -> None:
    parts = [normal(1, 3e-6), np.float32([0.0, -0.0, 50000.0, -65520.0, 70000.0, 4e-8, -1e-9])]
    x = np.concatenate([part.ravel() for part in parts])
    trace = Trace()
    for step, part in enumerate(parts):
        trace.record("t", "activation", part, step)
    [row] = build(trace, to="float16").tensors
    with np.errstate(over="ignore"):
        half, doubled = x.astype(np.float16), (2 * x).astype(np.float16)
    wide, some = x.astype(np.float64), x[x != 0]
    share = 100 / some.size
    assert (row.name, row.kind, row.shape, row.steps) == ("t", "activation", (50, 40), 2)
    assert (row.count, row.nan, row.inf) == (2007, 0, 0)
    assert row.zero_percent == 100 * 2 / x.size
    assert row.smallest_nonzero == np.abs(some).min()
    assert row.amax == np.abs(x).max()
    assert row.mean == pytest.approx(wide.mean(), rel=1e-9)
    assert row.std == pytest.approx(wide.std(), rel=1e-9)
    assert row.rms == pytest.approx(np.sqrt((wide**2).mean()), rel=1e-9)
    fourth = ((wide - wide.mean()) ** 4).mean() / wide.var() ** 2
    assert row.kurtosis == pytest.approx(fourth, rel=1e-9)
    assert row.dynamic_range_bits == pytest.approx(np.log2(70000) - np.log2(np.abs(some).min()))
    assert row.headroom_max_bits == pytest.approx(np.log2(65504 / 70000))
    assert row.headroom_normal_bits == pytest.approx(np.log2(np.abs(some).min()) + 14)
    assert row.underflow_percent == pytest.approx(share * ((half == 0) & (x != 0)).sum())
    assert row.overflow_percent == pytest.approx(share * np.isinf(half).sum())
    tiny = (half != 0) & (np.abs(half) < np.finfo(np.float16).smallest_normal)
    assert row.subnormal_percent == pytest.approx(share * tiny.sum())
    assert row.latent_percent == pytest.approx(share * (np.isinf(doubled) & ~np.isinf(half)).sum())
    assert row.latent_percent == pytest.approx(share)  # 50000 alone
    assert row.saturated_percent == 0
    assert row.lost_percent == pytest.approx(row.underflow_percent + row.overflow_percent)
    assert not row.safe


def test_headroom_of_published_activations() -> None:
    """T5's wo: 66246 > 65504; mT5: 6.27e4 fits, and twice that does not."""
    trace = Trace()
    trace.record("t5.wo", "activation", np.float32([66246.0]), 0)
    trace.record("mt5.wo", "activation", np.float32([6.27e4]), 0)
    t5, mt5 = build(trace, to="float16").tensors
    assert t5.overflow_percent == 100
    assert -0.02 < t5.headroom_max_bits < 0 < mt5.headroom_max_bits < 0.07
    assert (mt5.overflow_percent, mt5.latent_percent) == (0, 100)


def test_events_name_the_first_step_the_worst_and_how_many() -> None:
    trace = Trace()
    for step, underflowing in ((0, 0), (3, 2), (6, 7), (9, 1)):
        x = np.ones(10, np.float32)
        x[:underflowing] = 1e-9
        trace.record("a", "weight", x, step)
        trace.record("b", "weight", np.float32([7e4 if step == 6 else 1.0, 2.0]), step)
    underflow, overflow = build(trace, to="fp16").events
    assert (underflow.what, underflow.name, underflow.step) == ("underflow", "a", 3)
    assert (underflow.count, underflow.steps) == (2, 3)
    assert (underflow.worst_step, underflow.worst_percent, underflow.percent) == (6, 70.0, 20.0)
    assert (overflow.what, overflow.name, overflow.step, overflow.amax) == ("overflow", "b", 6, 7e4)
    assert (overflow.percent, overflow.steps) == (50.0, 1)


def test_curves_and_scale_rows_agree_with_outcomes() -> None:
    trace = run(2.0**-22)
    found = build(trace, to="fp16", formats=["e5m2"])
    total = trace.total(kind="weight_gradient")
    [curve] = [c for c in found.curves if (c.kind, c.to) == ("weight_gradient", "float8_e5m2")]
    for scale, lost in zip(curve.scales, curve.lost_percent, strict=True):
        assert lost == pytest.approx(100 * total.outcome("e5m2", scale).lost_fraction)
    one = trace.total(name="fc1", kind="weight_gradient")
    [row] = [r for r in found.tensor_scales
             if (r.name, r.kind, r.to) == ("fc1", "weight_gradient", "float16")]  # fmt: skip
    assert row.unscaled == one.outcome("fp16")
    assert row.safe == fpemu.analysis.scales.safe_scales(one, "fp16", scales=found.scales)


def test_two_casts_of_one_name_are_refused() -> None:
    mine, other = (replace(fpemu.finfo(name), name="mine") for name in ("e4m3fn", "e5m2"))
    said = "two different casts are both called 'mine': rename one of their formats"
    with pytest.raises(InputError, match=said):
        build(run(), to=mine, formats=[other])
    assert build(run(), to=mine, formats=[mine]).formats == ("mine",)


def test_a_report_stays_as_it_was_built() -> None:
    trace = run()
    found = build(trace, to="fp16")
    want = compute.underflow_heatmap(trace, to="fp16")
    trace.record("late", "weight", np.float32([1e-9]), 99)
    assert found.underflow.labels == want.labels
    assert found.underflow.steps == want.steps == (0, 10, 20)
    assert np.array_equal(found.underflow.underflow, want.underflow)
    assert np.array_equal(found.underflow.nonzero, want.nonzero)
    assert [(total.name, total.kind) for total in found.totals] == trace.tensors()[:-1]
    assert {total.steps for total in found.totals} == {3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": "x"}, "tolerance 'x': must be a fraction"),
        ({"tolerance": None}, "tolerance None: must be a fraction"),
        ({"scales": "abc"}, "scale='abc': must be a power of two"),
        ({"scales": None}, "scales None: give one or a list"),
        ({"kinds": 3}, "kinds 3: give one or a list"),
        ({"formats": 3}, "formats 3: give one or a list"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(run(), **options)


# --- verdict -----------------------------------------------------------------------------------


def test_safe_when_it_is() -> None:
    verdict = build(run(), to="float16").verdict
    assert verdict.status is Status.SAFE
    assert verdict.headline.startswith("float16 is safe for these values")
    assert "0.1 %" in verdict.headline
    assert verdict.first_event is None
    assert verdict.loss_scale.unscaled


def test_underflowing_gradients_need_a_loss_scale_and_it_saves_them() -> None:
    small = 2.0**-24
    verdict = build(run(small), to="float16").verdict
    assert verdict.status is Status.SAFE_WITH_LOSS_SCALE
    assert verdict.worst.kind == "weight_gradient"
    assert verdict.worst.label in verdict.headline
    assert (verdict.first_event.what, verdict.first_event.step) == ("underflow", 0)
    assert f"2^{int(math.log2(verdict.loss_scale.best))}" in verdict.headline
    assert build(run(small * verdict.loss_scale.best)).verdict.status is Status.SAFE
    assert build(run(small * verdict.loss_scale.low)).verdict.status is Status.SAFE
    assert build(run(small * verdict.loss_scale.low / 2)).verdict.status is not Status.SAFE


def test_gradients_recorded_times_a_loss_scale_are_judged_without_it() -> None:
    plain = build(run(2.0**-24))
    scaled = build(run(2.0**-14, recorded_loss_scale=1024))
    assert scaled.tensors == plain.tensors
    assert scaled.verdict.loss_scale == plain.verdict.loss_scale
    assert scaled.verdict.headline == plain.verdict.headline
    said = " ".join(scaled.verdict.reasons)
    assert "recorded times a loss scale of 2^10 (1024), step by step" in said
    assert "recorded times" not in " ".join(plain.verdict.reasons)
    assert build(run(2.0**-2, recorded_loss_scale=64.0)).verdict.status is Status.SAFE
    with pytest.raises(InputError, match="recorded_loss_scale='x': must be"):
        build(run(recorded_loss_scale="x"))


def changing(scales: dict[int, float], spread: float = 4.0) -> tuple[Trace, np.ndarray]:
    """A run whose loss scale changes from step to step, and its true gradients, by step."""
    rng, trace, true = np.random.default_rng(3), Trace(), []
    for step, scale in scales.items():
        g = np.exp2(rng.normal(-20, spread, 3000)).astype(np.float32) * rng.choice([-1, 1], 3000)
        trace.scalar(step, "loss_scale", scale)
        trace.record("fc", "weight_gradient", (g * np.float32(scale)).astype(np.float32), step)
        trace.record("fc", "weight", g.astype(np.float32), step)  # no loss scale multiplies it
        true.append(g.astype(np.float32))
    return trace, np.stack(true)


def test_a_loss_scale_that_changes_is_taken_out_step_by_step() -> None:
    trace, true = changing({0: 2.0**16, 1: 2.0**16, 2: 2.0**9, 5: 2.0**14, 6: 1.0})
    found = build(trace, to="float16", formats=["e5m2"], scales=[1.0, 2.0**8])
    gradient, weight = found.tensors
    assert replace(gradient, kind="weight") == replace(
        weight, rms=gradient.rms, mean=gradient.mean, std=gradient.std, kurtosis=gradient.kurtosis
    )
    for part in ("rms", "mean", "std", "kurtosis"):
        assert getattr(gradient, part) == pytest.approx(getattr(weight, part), rel=1e-9)
    half = true.astype(np.float16)
    assert gradient.underflow_percent == 100 * np.mean(half == 0)
    assert (gradient.amax, gradient.smallest_nonzero) == (np.abs(true).max(), np.abs(true).min())
    by_step = 100 * np.mean(half == 0, axis=1)
    assert found.underflow.share[0] == pytest.approx(by_step / 100)
    [event] = [e for e in found.events if e.kind == "weight_gradient"]
    worst = int(np.argmax(by_step))
    assert event.worst_step == (0, 1, 2, 5, 6)[worst]
    assert event.worst_percent == pytest.approx(by_step[worst])
    assert event.amax == np.abs(true[0]).max()
    [row] = list(whatif(trace, formats="fp16", scales=256.0, kinds="weight_gradient"))
    assert row.outcome.underflow == np.sum((true * 256).astype(np.float16) == 0)
    [curve] = [c for c in found.curves if (c.kind, c.to) == ("weight_gradient", "float16")]
    assert curve.underflow_percent[-1] == 100 * row.outcome.underflow / true.size


def test_gradients_that_a_scaler_skips_are_the_scaler_at_work() -> None:
    trace, true = changing({0: 2.0**16, 1: 2.0**15, 2: 2.0**15}, spread=1.0)
    trace.record("fc", "weight_gradient", np.float32([np.inf, np.nan, np.nan]), 0)
    broken = build(trace, to="bfloat16")
    assert broken.verdict.status is Status.BROKEN
    trace.event(0, "", "skip", "gradients not finite: the scaler skipped the step")
    found = build(trace, to="bfloat16")
    assert found.verdict.status is Status.SAFE
    gradient = found.tensors[0]
    assert (gradient.nan, gradient.inf, gradient.skipped, gradient.safe) == (2, 1, 3, True)
    assert "The loss scaler skipped 1 of 3 recorded steps" in " ".join(found.verdict.reasons)
    [event] = found.events
    assert (event.what, event.step, event.count, event.steps) == ("skipped", 0, 3, 1)
    assert event.percent == 100 * 3 / (true.shape[1] + 3)
    trace.record("fc", "weight_gradient", np.float32([np.inf]), 2)  # nobody skipped this one
    assert build(trace, to="bfloat16").verdict.status is Status.BROKEN
    trace.record("fc", "activation", np.float32([np.inf]), 0)  # nor does a scaler look at these
    assert build(trace, to="bfloat16").verdict.first_event.kind == "activation"


def test_the_verdict_changes_with_the_format() -> None:
    trace = run(2.0**-24)
    assert build(trace, to="bfloat16").verdict.status is Status.SAFE
    verdict = build(trace, to="fp4").verdict
    assert verdict.status is Status.NOT_SAFE
    said = " ".join(verdict.reasons)
    assert "A loss scale reaches gradients only" in said
    assert "bfloat16" in said  # what would hold


def test_gradients_too_wide_for_any_loss_scale() -> None:
    trace = Trace()
    trace.record("g", "weight_gradient", np.exp2(np.arange(-60, 10, dtype=np.float32)), 0)
    verdict = build(trace, to="float16").verdict
    assert verdict.status is Status.NOT_SAFE
    assert any("No loss scale tried" in reason for reason in verdict.reasons)


def test_no_loss_scale_is_advised_for_what_it_does_not_reach() -> None:
    trace = Trace()
    trace.record("w", "weight", np.float32([1e-9, 1e-6]), 0)
    verdict = build(trace, to="float16").verdict
    assert verdict.status is Status.NOT_SAFE
    assert verdict.loss_scale is None
    assert "w (weight) loses 50 % of its values, first at step 0" in verdict.headline
    assert any("reaches gradients only" in reason and "2^" in reason for reason in verdict.reasons)


def test_an_overflow_is_found_and_named_though_it_is_one_in_many() -> None:
    trace = run()
    x = normal(3, 1.0, (200, 200))
    x[7, 7] = 66246.0
    trace.record("fc1", "activation", x, 10)
    trace.record("late", "activation", np.float32([np.nan, 1.0]), 20)
    verdict = build(trace, to="float16").verdict
    assert verdict.status is Status.BROKEN  # a NaN was recorded, later
    first = verdict.first_event
    assert (first.what, first.name, first.kind, first.step) == ("overflow", "fc1", "activation", 10)
    assert "step 10" in verdict.headline
    assert "fc1 (activation)" in verdict.headline
    assert "66246" in verdict.headline
    assert "1 more tensor" in verdict.reasons[0]


def test_within_a_step_the_first_recorded_is_the_cause() -> None:
    trace = Trace()
    trace.record("z", "activation", np.float32([np.inf, 2.0]), 4)
    trace.record("a", "activation", np.float32([np.nan, 2.0]), 4)
    verdict = build(trace, to="bf16").verdict
    assert verdict.status is Status.BROKEN
    assert (verdict.first_event.what, verdict.first_event.name) == ("inf", "z")
    assert "at step 4, z (activation) holds 1 infinite value" in verdict.headline


@pytest.mark.parametrize("values", [None, [], [0.0, -0.0]])
def test_nothing_to_judge(values: list[float] | None) -> None:
    trace = Trace()
    if values is not None:
        trace.record("a", "weight", np.float32(values), 0)
    found = build(trace)
    assert found.verdict.status is Status.NO_DATA
    assert json.dumps(found.to_json(), allow_nan=False)
    assert found.verdict.headline in report.html.render(found, plots=False)


def test_updates_are_listed_and_not_judged_unless_asked_for() -> None:
    trace = run()
    trace.record("fc0", "update", normal(1, 1e-9), 0)
    verdict = build(trace, to="float16").verdict
    assert verdict.status is Status.SAFE
    assert "Not judged: update" in verdict.reasons[-1]
    asked = build(trace, to="float16", kinds=["update"])
    assert asked.verdict.status is Status.NOT_SAFE
    assert [row.judged for row in asked.tensors] == [row.kind == "update" for row in asked.tensors]
    with pytest.raises(InputError, match=r"kind 'updates' is not in trace .*; did you mean"):
        build(trace, kinds=["updates"])


def test_the_tolerance_decides_and_is_named() -> None:
    trace = Trace()
    trace.record("w", "weight", np.float32([1e-9] + [1.0] * 99), 0)
    assert build(trace, to="fp16").verdict.status is Status.NOT_SAFE
    loose = build(trace, to="fp16", tolerance=0.01)
    assert loose.verdict.status is Status.SAFE
    assert "1 %" in loose.verdict.headline
    assert any("1 %" in word.meaning for word in loose.definitions if word.term == "safe")


def test_the_judged_cast_comes_from_the_trace_unless_given() -> None:
    assert str(build(run(to="e5m2:overflow=saturate")).to) == "float8_e5m2:overflow=saturate"
    assert str(build(run(to=fpemu.Cast("bf16").to_json())).to) == "bfloat16"
    assert str(build(run(to="e5m2"), to="fp16").to) == "float16"
    assert str(build(run()).to) == "float16"


def test_definitions_name_the_variant_the_rounding_and_the_rules() -> None:
    words = {w.term: w.meaning for w in build(run(), to="e4m3fn:toward_zero").definitions}
    assert "OCP FP8 E4M3" in words["format float8_e4m3fn"]
    assert "toward zero" in words["cast float8_e4m3fn:toward_zero"]
    for term in ("underflow", "subnormal", "overflow", "saturated", "latent", "lost", "safe"):
        assert term in words
    fnuz = build(run(), to="e4m3fnuz").definitions[0]
    assert "FNUZ" in fnuz.meaning


# --- JSON --------------------------------------------------------------------------------------


def keys(value: object) -> set[str]:
    """Every key at any depth, but of the objects that the user filled."""
    if isinstance(value, dict):
        own = ("provenance", "runs", "facts", "to", "formats")
        inside = (keys(v) for k, v in value.items() if k not in own)
        return set(value).union(*inside)
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_json_holds_the_documented_keys_and_no_others() -> None:
    trace = run(2.0**-24, runs=[{"name": "a", "accuracy": math.nan}], odd=[math.inf, {"x": 1}])
    trace.scalar(0, "loss", math.nan)
    trace.event(1, "fc0", "weight", "noted", amax=math.inf)
    found = json.loads(json.dumps(build(trace).to_json(), allow_nan=False))
    assert list(found) == [
        "schema", "to", "to_text", "tolerance", "scales", "formats", "verdict", "provenance",
        "first_causes", "advice", "runs", "scalars", "tensors", "what_if", "loss_scales",
        "updates", "optimizer", "blocks", "recipes", "events", "log", "ranks", "against",
        "definitions",
    ]  # fmt: skip
    documented = set(re.findall(r"`(\w+)`", SCHEMA.read_text("utf-8")))
    assert keys(found) - documented == set()
    assert found["runs"] == [{"name": "a", "accuracy": None}]
    assert found["provenance"]["odd"] == [None, {"x": 1}]
    assert found["verdict"]["status"] == "safe_with_loss_scale"
    assert fpemu.Cast.from_json(found["to"]) == fpemu.Cast("float16")


# --- HTML --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page holds: ids, links, what could load, its text; and that it is balanced."""

    VOID = ("meta", "br", "img", "input", "link", "hr")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.script = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for key, value in attrs:
            self.attributes.append((key, value or ""))
            if key == "id":
                self.ids.append(value or "")
            if tag == "a" and key == "href":
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.script += data
        elif not self.open or self.open[-1] != "style":
            self.texts.append(data)


@pytest.fixture(scope="module")
def hostile() -> report.Report:
    trace = Trace(metadata={"seed": 1, HOSTILE[0]: HOSTILE[1], "note": HOSTILE[2],
                            "runs": [{"name": HOSTILE[0], HOSTILE[2]: 0.5}]})  # fmt: skip
    other, before = Trace(), Trace()
    for step in (0, 10):
        for name in HOSTILE:
            for one, size in ((trace, 1e-7), (other, 2e-7), (before, 1.0)):
                one.record(name, "weight_gradient", normal(1, size), step)
            trace.count(name, "weight", step, block_tally(normal(2, 1.0)))
            trace.count(name, "update", step, update_tally(normal(2, 1.0), normal(1, 1e-3)))
    for one in (trace, before):
        one.scalar(0, HOSTILE[0], 1.0)
    trace.event(0, HOSTILE[0], HOSTILE[1], HOSTILE[2], **{HOSTILE[0]: HOSTILE[2]})
    return build(trace, to="fp16", ranks=[other], against=before)


@pytest.fixture(scope="module")
def page(hostile: report.Report) -> str:
    return report.html.render(hostile)


def test_hostile_names_stay_text(page: str) -> None:
    seen = Page(page)
    assert seen.open == []
    assert seen.tags.count("script") == 1
    assert not [key for key, _ in seen.attributes if key.startswith("on")]
    assert "<script>alert" not in page
    text = "".join(seen.texts)
    for name in HOSTILE:
        shown = name.replace("\u202e", "\\u202e").replace("\u200b", "\\u200b")
        assert shown in text
    assert ("title", "n" * 300) in seen.attributes
    assert "\u202e" not in page


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    seen = Page(page)
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(seen.tags)
    loading = [v for k, v in seen.attributes if k in ("src", "srcset", "href", "data", "poster")]
    assert all(v.startswith(("#", "data:image/png;base64,")) for v in loading)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert not re.search(r"url\(|@import|expression", style)
    assert not re.search(r"fetch|XMLHttp|import\(|https?:", seen.script)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    digest = base64.b64encode(hashlib.sha256(seen.script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy


def test_every_section_named_exists_and_every_section_is_named(page: str) -> None:
    seen = Page(page)
    assert len(set(seen.ids)) == len(seen.ids)
    assert all(link[1:] in seen.ids for link in seen.links)
    named = list(dict.fromkeys(link[1:] for link in seen.links))
    assert named == ["verdict", "advice", "runs", "tensors", "what-if", "loss-scale", "updates",
                     "blocks", "events", "ranks", "against", "plots", "definitions"]  # fmt: skip
    assert re.findall(r'<section id="([\w-]+)"', page) == named


def test_the_page_holds_the_plots_that_there_are_data_for(page: str) -> None:
    images = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == 10  # no arrays
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)


def test_sections_without_data_are_left_out() -> None:
    empty = report.html.render(build(Trace()))
    seen = Page(empty)
    assert seen.ids == ["verdict", "definitions"]
    assert seen.links == ["#verdict", "#definitions"]
    fine = Page(report.html.render(build(run(1.0), to="bf16"), plots=False))
    assert "events" not in fine.ids
    assert "#events" not in fine.links


def test_many_tensors_stay_small() -> None:
    trace = Trace()
    x = normal(1, 1e-6, (64,))
    for k in range(500):
        trace.record(f"model.layers.{k}.self_attention.output.dense", "weight_gradient", x, 0)
    found = build(trace, scales=[2.0**k for k in range(0, 40, 4)])
    assert len(report.html.render(found, plots=False)) < 4_000_000
    assert len(json.dumps(found.to_json())) < 5_000_000


# --- text --------------------------------------------------------------------------------------


def printed(found: report.Report, width: int, **options: object) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    report.text.render(found, console, **options)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_text_fits_the_terminal_and_says_it_all(hostile: report.Report, width: int) -> None:
    text = printed(hostile, width)
    assert max(len(line) for line in text.splitlines()) <= width
    titles = ("1 Verdict", "2 Advice", "3 Runs", "4 Tensors", "5 What if", "6 Loss scale",
              "7 Updates and optimizer", "8 Blocks", "9 Events", "10 Ranks",
              "11 Against another run", "12 Definitions")  # fmt: skip
    assert [title for title in titles if title not in text] == []
    assert "SAFE WITH A LOSS SCALE" in text
    assert "[bold]red" in text  # names are not markup
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_text_of_a_run_with_little_to_say() -> None:
    text = printed(build(run(1.0), to="bf16"), 80)
    assert "bfloat16 is safe for these values" in text
    assert "Events" not in text
    assert "Runs" not in text


def test_long_tables_say_what_they_leave_out() -> None:
    text = printed(build(run(2.0**-24)), 100, limit=3)
    assert "5 more rows not shown." in text


# --- files and commands ------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")
    path.chmod(0o600)
    report.write_text(path, "new \ud800")
    assert path.read_text() == "new \\ud800"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match=r"cannot write '.*missing/b\.html': No such file"):
        report.write_text(tmp_path / "missing" / "b.html", "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        report.write_text(tmp_path / "folder", "new")
    with pytest.raises(InputError, match="cannot write 3: "):
        report.write_text(3, "new")
    (tmp_path / "link").symlink_to("a.html")
    report.write_text(tmp_path / "link", "newer")
    assert ((tmp_path / "link").is_symlink(), path.read_text()) == (True, "newer")
    assert sorted(os.listdir(tmp_path)) == ["a.html", "folder", "link"]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    run(2.0**-24).save(tmp_path / "run.fpemu")
    return "run.fpemu"


def test_report_command(saved: str) -> None:
    result = CliRunner().invoke(report_command, [saved, "--to", "fp16", "--rows", "2"])
    assert result.exit_code == 0
    assert "SAFE WITH A LOSS SCALE" in result.output
    result = CliRunner().invoke(report_command, [saved, "--json", "--tolerance", "1"])
    assert json.loads(result.stdout)["tolerance"] == 0.01
    for name in ("r.html", "r.json", "r.txt"):
        options = [saved, "--out", name, "--formats", "bf16,e5m2", "--scales", "0:12"]
        result = CliRunner().invoke(report_command, options)
        assert (result.exit_code, result.output) == (0, f"wrote {name}\n")
    assert Path("r.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    formats = json.loads(Path("r.json").read_text())["formats"]
    assert formats == ["float16", "bfloat16", "float8_e5m2"]
    assert "What if" in Path("r.txt").read_text("utf-8")


def test_whatif_command(saved: str) -> None:
    options = [saved, "--to", "fp16,bf16", "--to", "e5m2:overflow=saturate,subnormals=flush"]
    result = CliRunner().invoke(whatif_command, [*options, "--kind", "weight_gradient"])
    assert result.exit_code == 0
    assert result.output.count("fc") == 2
    assert result.output.count("float8_e5m2") == 2
    options += ["--name", "fc1", "--per-step", "--scales", "0,3", "--json"]
    found = json.loads(CliRunner().invoke(whatif_command, options).stdout)
    assert len(found["rows"]) == 4 * 3 * 3 * 2  # kinds, steps, casts, scales
    assert {row["name"] for row in found["rows"]} == {"fc1"}
    assert {row["step"] for row in found["safe_scales"]} == {0, 10, 20}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["none.fpemu"], "none.fpemu"),
        (["run.fpemu", "--to", "e4m3"], "ambiguous"),
        (["run.fpemu", "--to", "fp16:stochastic"], "stochastic"),
        (["run.fpemu", "--out", "r.pdf"], "use .html, .json, .txt or .parquet"),
        (["run.fpemu", "--json", "--out", "r.html"], "name the file .json"),
        (["run.fpemu", "--out", "missing/r.html"], "cannot write"),
        (["run.fpemu", "--tolerance", "200"], "must be a fraction"),
        (["run.fpemu", "--scales", "a"], "exponents of two"),
        (["run.fpemu", "--scales", "3:1"], "exponents of two"),
        (["run.fpemu", "--scales", "0:99999999999"], "from -300 to 300"),
        (["run.fpemu", "--scales", "0,-301"], "from -300 to 300"),
        (["run.fpemu", "--kind", "gradient"], "is not in trace "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    saved: str, options: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["report", *options])
    assert result.exit_code == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("fpemu: ")
    assert message in last
    assert result.stdout == ""
    assert os.listdir() == ["run.fpemu"]
