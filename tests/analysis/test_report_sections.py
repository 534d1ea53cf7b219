"""The report's sections on one run that fills them all, each held against the run's own arrays."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from full_run import LAYERS, SKIPPED, STEPS, Run, full_run, loss_scale, shared_run
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fpemu
from fpemu.analysis import lossscale, report
from fpemu.analysis.records import Record
from fpemu.analysis.report import build
from fpemu.analysis.report.figures import figures
from fpemu.analysis.report.layout import SECTIONS, present
from fpemu.analysis.report.progress import shown
from fpemu.analysis.report.quantiles import quantiles
from fpemu.analysis.report.sections.blocks import ELEMENTS
from fpemu.analysis.report.sections.tensors import layers
from fpemu.analysis.tensor_names import layer_of
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.md"


@pytest.fixture(scope="module")
def run() -> Run:
    return shared_run()


@pytest.fixture(scope="module")
def full(run: Run) -> report.Report:
    other = full_run(2)
    before = full_run(3, gradient=2.0**-30)
    values = np.random.default_rng(0).normal(0, 1, (64, 64)).astype(np.float32)
    return build(
        run.trace, ranks=[other.trace], against=before.trace, samples={"fc1": values},
        scales=[2.0**k for k in range(-12, 30, 3)],
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(run: Run) -> report.Report:
    return build(run.trace, scales=[2.0**k for k in range(-12, 30, 3)])


# --- all of them -------------------------------------------------------------------------------


def test_one_run_fills_every_section(full: report.Report) -> None:
    assert present(full) == list(SECTIONS)
    text = printed(full, 120)
    for place, section in enumerate(SECTIONS, 1):
        assert f"{place} {section.title(full)} " in text


def test_a_trace_that_holds_little_has_few_sections() -> None:
    trace = Trace()
    trace.record("fc1", "weight", np.float32([0.5, 0.25]), 0)
    names = [section.name for section in present(build(trace))]
    assert names == ["verdict", "advice", "tensors", "what_if", "definitions"]
    assert [section.name for section in present(build(Trace()))] == ["verdict", "definitions"]


def test_the_json_has_the_documented_keys_and_no_others(full: report.Report) -> None:
    found = json.loads(json.dumps(full.to_json(), allow_nan=False))
    documented = set(re.findall(r"`(\w+)`", SCHEMA.read_text("utf-8")))
    assert keys(found) - documented == set()
    for key in ("advice", "loss_scales", "updates", "optimizer", "blocks", "recipes", "ranks",
                "against"):  # fmt: skip
        assert found[key]


def keys(value: object) -> set[str]:
    """Every key at any depth, but of the objects whose keys are the user's or names of formats."""
    if isinstance(value, dict):
        own = ("provenance", "runs", "facts", "to", "lost_percent", "lost_stochastic_percent",
               "underflow_percent", "overflow_percent", "formats")  # fmt: skip
        inside = (keys(v) for k, v in value.items() if k not in own)
        return set(value).union(*inside)
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_section_fits_the_terminal(full: report.Report, width: int) -> None:
    assert max(len(line) for line in printed(full, width).splitlines()) <= width


def test_every_plot_is_there_and_the_page_names_each(full: report.Report) -> None:
    drawn = list(figures(full))
    assert len(drawn) == 12
    assert len({figure.title for figure in drawn}) == 12
    assert all(figure.source.startswith("data:image/png;base64,") for figure in drawn)


def test_plots_of_values_need_values(alone: report.Report) -> None:
    assert len(list(figures(alone))) == 10


class Page(HTMLParser):
    """A page that is balanced: its ids and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "img", "input"):
            self.open.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_has_every_section_in_order(full: report.Report) -> None:
    page = Page(report.html.render(full, plots=False))
    assert page.ids == [section.anchor for section in SECTIONS]
    said = "".join(page.texts)
    for words in ("exp_avg_sq", "deepspeed", "Layers to keep", "by damage", "Noted by the run"):
        assert words in said


# --- what if -----------------------------------------------------------------------------------


def test_sqnr_and_cosine_are_what_rounding_the_values_gives(run: Run, alone: report.Report) -> None:
    for layer in LAYERS[:2]:
        x = run.all(layer, "activation").astype(np.float64)
        for to in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            q = fpemu.round(x.astype(np.float32), to).astype(np.float64)
            sqnr = 10 * math.log10((x * x).sum() / ((x - q) ** 2).sum())
            cosine = (x * q).sum() / math.sqrt((x * x).sum() * (q * q).sum())
            [row] = [r for r in alone.tensor_scales
                     if (r.name, r.kind, r.to) == (layer, "activation", to)]  # fmt: skip
            assert row.quality.sqnr_db == pytest.approx(sqnr, abs=0.5)
            assert row.quality.cosine == pytest.approx(cosine, abs=(1 - cosine) / 5 + 1e-9)


def test_quality_is_left_out_where_counts_do_not_give_it(alone: report.Report) -> None:
    [over] = [r for r in alone.tensor_scales
              if (r.name, r.kind, r.to) == ("head", "activation", "float16")]  # fmt: skip
    assert (over.quality.sqnr_db, over.quality.cosine) == (-math.inf, None)
    assert over.quality_advised.sqnr_db > 60
    trace = Trace()
    trace.record("w", "weight", np.float32([0.3, 0.7]), 0)
    [row] = build(trace, to="fp16:toward_zero", formats=[]).tensor_scales
    assert (row.quality.sqnr_db, row.quality.cosine) == (None, None)


# --- loss scale --------------------------------------------------------------------------------


def test_loss_scales_are_the_replays(run: Run, alone: report.Report) -> None:
    rows = {row.scaler: row for row in alone.loss_scales}
    assert {"static", "torch", "mxnet", "jmp"} <= {name.partition(":")[0] for name in rows}
    done = lossscale.replay(run.trace, "torch", to="float16")
    assert rows["torch"].skipped_steps == done.skipped_steps
    assert rows["torch"].lost_percent == done.lost_percent
    assert rows["torch"].final_scale == done.final_scale
    # unscaled: an infinite gradient at one step, which nothing skips
    shares = [row.lost_percent for row in alone.loss_scales if row.fine]
    assert shares == sorted(shares)


def test_the_static_scale_replayed_is_the_one_advised() -> None:
    """The best for weight gradients alone would be 1; the small activation gradients need more."""
    trace = Trace()
    for step in range(3):
        trace.record("fc1", "weight_gradient", np.float32([1e-2, 1e-3]), step)
        trace.record("fc1", "activation_gradient", np.float32([1e-8, 1e-7]), step)
    found = build(trace)
    assert [str(one) for one in lossscale.standard(trace) if one.name == "static"] == ["static"]
    static = [row.scaler for row in found.loss_scales if row.scaler.startswith("static:")]
    scale = int(np.log2(found.advice.loss_scale_advised))
    assert scale > 1
    assert static == [f"static:scale=2^{scale}"]
    text = " ".join(printed(found, 80).split())
    assert f"Static at 2^{scale} is the scale advised." in text
    assert f"Static at 2^{scale} is the scale advised." in report.html.render(found, plots=False)


def test_the_loss_s_own_gradient_bounds_no_loss_scale() -> None:
    """It is 1 times the loss scale, and stays float32; verdict, what-if and advice agree."""
    trace = Trace()
    trace.record("loss", "activation_gradient", np.float32(1.0), 0)
    trace.record("fc1", "activation_gradient", np.float32([1e-8, 2e-8]), 0)
    found = build(trace, to="fp16")
    [kind] = [row for row in found.kind_scales if row.to == "float16"]
    safe = found.verdict.loss_scale
    assert safe.best > 2**16  # at which 1 overflows
    assert safe.best == found.advice.loss_scale_advised == kind.safe.best
    assert (safe.low, safe.high) == (found.advice.loss_scale.low, found.advice.loss_scale.high)
    alone = Trace()
    alone.record("loss", "activation_gradient", np.float32(1e-8), 0)
    assert build(alone, to="fp16").verdict.status.value == "safe_with_loss_scale"


def test_a_run_sampled_rarely_is_not_replayed_step_by_step() -> None:
    trace = Trace()
    for step in (0, 10**7):
        trace.record("fc1", "weight_gradient", np.float32([1e-5]), step)
    assert {row.steps for row in build(trace).loss_scales} == {2}


# --- updates and optimizer ---------------------------------------------------------------------


def test_updates_lost_are_counted_on_the_arrays(run: Run, alone: report.Report) -> None:
    forms = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    for row in alone.updates:
        changed, lost = 0, dict.fromkeys(forms, 0)
        for weight, update in run.updates[row.name]:
            changed += int((update != 0).sum())
            for name, form in forms.items():
                held = weight.astype(form)
                moved = (held.astype(np.float64) + update.astype(np.float64)).astype(form)
                lost[name] += int(((moved == held) & (update != 0)).sum())
        assert row.changed == changed
        for name, count in lost.items():
            assert row.lost_percent[name] == pytest.approx(100 * count / changed, abs=0.02)
    assert [row.worst_percent for row in alone.updates] == sorted(
        (row.worst_percent for row in alone.updates), reverse=True
    )


def test_the_ratio_of_updates_lies_where_it_is(run: Run, alone: report.Report) -> None:
    for row in alone.updates:
        pairs = run.updates[row.name]
        ratio = np.concatenate([np.abs(d / w)[(d != 0) & (w != 0)] for w, d in pairs])
        assert row.ratio_median == pytest.approx(np.log2(np.median(ratio)), abs=0.6)
        assert row.ratio_low < row.ratio_median < row.ratio_high


def test_adams_state_that_becomes_zero(run: Run, alone: report.Report) -> None:
    assert len(alone.optimizer) == 2 * len(LAYERS)
    for row in alone.optimizer:
        x = run.all(row.name, "optimizer_state")
        for to, form in (("float16", np.float16), ("float8_e5m2", ml_dtypes.float8_e5m2)):
            zero = (x.astype(form) == 0) & (x != 0)
            assert row.underflow_percent[to] == pytest.approx(100 * zero.sum() / (x != 0).sum())
    assert alone.optimizer[0].name.endswith("exp_avg_sq")


# --- blocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["activation", "weight_gradient"])
def test_blocks_are_those_of_the_true_values(run: Run, alone: report.Report, kind: str) -> None:
    tops = {"float8_e4m3fn": 8, "float4_e2m1fn": 2}
    for layer in LAYERS:
        name = layer if kind == "activation" else f"{layer}.weight"
        steps = run.true[name, kind].values()
        amax = np.concatenate([np.abs(x).reshape(-1, 16).max(1) for x in steps])
        finite = np.sort(amax[np.isfinite(amax)])
        for to in ELEMENTS:
            [row] = [r for r in alone.blocks if (r.name, r.kind, r.to) == (name, kind, to)]
            assert (row.block, row.blocks) == (16, amax.size)
            assert row.nonfinite == np.sum(~np.isfinite(amax))
            scales = 2.0 ** (np.floor(np.log2(finite)) - tops[to])
            picked = [min(scales.size - 1, math.floor(q * scales.size)) for q in
                      (0, 0.01, 0.5, 0.99, 1)]  # fmt: skip
            assert row.scales == tuple(scales[picked])
            beyond = fpemu.finfo(to).max + fpemu.spacing(fpemu.finfo(to).max, to) / 2
            assert row.clipped == np.sum(finite / scales > beyond)


def test_blocks_of_zeros_have_no_scale() -> None:
    trace = Trace()
    from fpemu.blocks import block_tally

    trace.record("w", "weight", np.zeros((2, 32), np.float32), 0)
    trace.count("w", "weight", 0, block_tally(np.zeros((2, 32), np.float32)))
    found = build(trace)
    assert {(row.blocks, row.zero, row.scales) for row in found.blocks} == {(2, 2, ())}
    assert "Blocks" in printed(found, 100)
    assert 'id="blocks"' in report.html.render(found, plots=False)


# --- events, ranks, layers ---------------------------------------------------------------------


def test_the_skipped_step_is_no_fault_of_the_format(alone: report.Report) -> None:
    [skipped] = [event for event in alone.events if event.what == "skipped"]
    assert (skipped.name, skipped.step) == ("block.0.fc1.weight", SKIPPED)
    assert alone.verdict.status.value == "not_safe"  # of the overflowing activation
    assert alone.verdict.first_event.name == "head"
    assert "1 of 8 recorded steps" in " ".join(alone.verdict.reasons)
    assert [row.kind for row in alone.log] == ["skip"]
    assert [cause.caught for cause in alone.first_causes] == [True]


def test_what_a_run_noted_reads_as_a_list_of_parts() -> None:
    trace = Trace()
    trace.record("fc1", "weight", np.float32([1.0]), 0)
    trace.event(3, "fc1", "activation", "first infinity", loss_scale=4096)
    trace.event(4, "", "skip", "step skipped")
    text = printed(build(trace), 100)
    assert "step 3: first infinity; fc1; loss_scale 4096" in text
    assert re.search(r"step 4: step skipped *$", text, re.MULTILINE)


def test_ranks_are_told_apart_where_they_should_not_be() -> None:
    traces = [Trace(), Trace(), Trace()]
    for rank, trace in enumerate(traces):
        for step in (0, 1):
            weight = np.float32([1.0, 2.0])
            if rank == 2 and step == 1:
                weight[0] = 1.5
            trace.record("fc.weight", "weight", weight, step)
            trace.record("fc", "activation", np.float32([1.0 + rank, 4.0]), step)
            trace.record("same", "activation", np.float32([1.0]), step)
            gradient = np.float32([1e-3, np.nan if rank == 1 else 1e-3])
            trace.record("fc.weight", "weight_gradient", gradient, step)
    traces[0].record("only", "weight", np.float32([1.0]), 0)
    found = build(traces[0], to="fp16", ranks=traces[1:])
    rows = {(row.name, row.kind): row for row in found.ranks}
    weight = rows["fc.weight", "weight"]
    assert (weight.identical, weight.first_step_apart, weight.alarming) == (False, 1, True)
    gradient = rows["fc.weight", "weight_gradient"]
    assert (gradient.broken, gradient.odd, gradient.alarming) == ((0, 2, 0), 1, True)
    activation = rows["fc", "activation"]
    assert (activation.first_step_apart, activation.alarming) == (0, False)
    assert activation.spread_bits == 0  # all have 4 as their largest
    assert rows["same", "activation"].identical
    assert rows["only", "weight"].ranks == (0,)
    assert [row.alarming for row in found.ranks[:2]] == [True, True]
    # the report itself is about all ranks together
    assert {row.name: row.count for row in found.tensors if row.kind == "activation"}["fc"] == 12


def test_ranks_whose_loss_scales_differ_are_refused() -> None:
    traces = [Trace(), Trace()]
    for trace, scale in zip(traces, (1024.0, 512.0), strict=True):
        trace.scalar(3, "loss_scale", scale)
        trace.record("fc", "weight_gradient", np.float32([1.0]), 3)
    with pytest.raises(InputError, match="rank 1 has loss scale 512 at step 3, rank 0 has 1024"):
        build(traces[0], ranks=traces[1:])
    with pytest.raises(InputError, match="str is no Trace"):
        build(traces[0], ranks=["run.fpemu"])


@given(st.lists(st.integers(-5, 5), max_size=30), st.lists(st.floats(0, 1), max_size=4))
def test_quantiles_are_those_of_the_sorted_numbers(numbers: list[int], wanted: list[float]) -> None:
    histogram = {place: numbers.count(place) for place in {*numbers, 9}}
    ranks = [min(math.floor(q * len(numbers)), len(numbers) - 1) for q in wanted]
    assert quantiles(histogram, wanted) == [sorted(numbers)[k] for k in ranks if numbers]


def test_layers_hold_their_tensors_the_worst_first(alone: report.Report) -> None:
    found = layers(alone.tensors)
    assert found[0].name == "head"  # which overflows
    assert sum(len(layer.rows) for layer in found) == len(alone.tensors)
    for layer in found:
        assert {layer_of(row.name, row.kind) for row in layer.rows} == {layer.name}
    assert {layer.name: len(layer.rows) for layer in found} == dict.fromkeys(LAYERS, 7)


def test_the_run_that_is_compared_with(full: report.Report) -> None:
    assert full.against.change == "better"
    assert full.against.after.verdict == full.verdict
    worse = {row.name for row in full.against.rows if row.change == "worse"}
    assert worse == set()


def test_progress_hears_of_every_record_and_phase(run: Run) -> None:
    heard: list[str | int] = []

    class Ear:
        def records(self, records: Iterable[Record], most: int) -> Iterator[Record]:
            heard.append(most)
            for count, record in enumerate(records, 1):  # noqa: B007
                yield record
            heard.append(count)

        def phase(self, what: str) -> None:
            heard.append(what)

    found = build(run.trace, formats=[], scales=[1.0], progress=Ear())
    records = sum(row.steps for row in found.tensors)
    assert heard[:2] == [records, records]
    assert all(isinstance(what, str) for what in heard[2:])
    with shown() as silent:  # no terminal here
        assert silent.records([], 0) == []


def test_a_scale_that_changes_is_in_every_section(run: Run, alone: report.Report) -> None:
    assert {loss_scale(step) for step in STEPS} == {2.0**14, 2.0**13}
    true = run.all("head.weight", "weight_gradient")
    [row] = [r for r in alone.tensors if (r.name, r.kind) == ("head.weight", "weight_gradient")]
    assert row.amax == np.abs(true).max()
    [amax] = np.flatnonzero([label == "head.weight · weight_gradient"
                             for label in alone.amax.labels])  # fmt: skip
    assert alone.amax.amax[amax].max() == np.abs(true).max()


def printed(found: report.Report, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    report.text.render(found, console, limit=8)
    return console.file.getvalue()
