"""Recipes in traces: what was counted answers what-if, advice, reports, diffs and plots."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fpemu
from fpemu.analysis import Trace, advise, diff, plots, report, whatif
from fpemu.analysis.answers import answers
from fpemu.analysis.asked import casts, targets
from fpemu.analysis.by_recipe import ByRecipe, target
from fpemu.analysis.cli import main
from fpemu.analysis.export import trace_frame
from fpemu.analysis.plots import compute
from fpemu.analysis.report.figures import figures
from fpemu.analysis.typed import read_casts
from fpemu.errors import InputError, TraceError, UnknownFormatError
from fpemu.scaling import Recipe, find_recipe, recipes
from fpemu.scaling.tally import recipe_tally

Array = np.ndarray
KINDS = ("activation", "weight", "activation_gradient")
SCALE = 2.0**12
TRIED = ("mxfp8", "nvfp4")


def numbers(name: str, kind: str, step: int) -> Array:
    """A tensor of the run, its true numbers."""
    rng = np.random.default_rng([step, len(name), KINDS.index(kind)])
    size = 2.0**-20 if kind == "activation_gradient" else 1.0
    x = rng.standard_normal((16, 48)) * np.exp2(rng.normal(0, 2, (16, 48))) * size
    x[0, :20] = 0
    return x.astype(np.float32)


def made(tried: tuple[str, ...] = TRIED, kinds: tuple[str, ...] = KINDS) -> Trace:
    """Two layers, two steps; gradients carry a loss scale."""
    trace = Trace(metadata={"to": "bfloat16"})
    for step in (0, 3):
        trace.scalar(step, "loss_scale", SCALE)
        for name in ("a", "bb"):
            for kind in kinds:
                x = numbers(name, kind, step)
                x = x * np.float32(SCALE) if kind == "activation_gradient" else x
                where = f"{name}.weight" if kind == "weight" else name
                trace.record(where, kind, x, step)
                for recipe in tried:
                    trace.count(where, kind, step, recipe_tally(x, recipe))
    return trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return made()


def both_steps(name: str, kind: str) -> list[Array]:
    return [numbers(name.partition(".")[0], kind, step) for step in (0, 3)]


def told(name: str, kind: str, recipe: str) -> tuple[dict[str, int], float, float]:
    """Outcomes, signal and noise by a look at what the recipe leaves of the true arrays."""
    kept = {"underflow": 0, "zero": 0, "kept": 0}
    signal = noise = 0.0
    for x in both_steps(name, kind):
        q = find_recipe(recipe).round(x).astype(np.float64)
        kept["zero"] += int((x == 0).sum())
        kept["underflow"] += int(((x != 0) & (q == 0)).sum())
        signal += float((x.astype(np.float64) ** 2).sum())
        noise += float(((q - x) ** 2).sum())
    return kept, signal, noise


# --- kept in a trace ---------------------------------------------------------------------------


def test_each_recipe_of_a_tensor_is_kept_apart(tmp_path: Path) -> None:
    x, y = numbers("a", "weight", 0), numbers("bb", "weight", 0)
    path = tmp_path / "run.fpemu"
    with Trace.create(path) as trace:
        for recipe in TRIED:
            trace.count("w", "weight", 0, recipe_tally(x, recipe))
        assert len(list(trace.counted("recipes"))) == 2  # reading commits
        for recipe in reversed(TRIED):
            trace.count("w", "weight", 0, recipe_tally(y, recipe))
    other = Trace()
    other.count("w", "weight", 0, recipe_tally(x, "nvfp4"))
    other.merge(Trace.load(path))
    found = {c.value.name: c.value for c in other.counted("recipes", name="w", step=0)}
    assert found["mxfp8"] == recipe_tally(x, "mxfp8") + recipe_tally(y, "mxfp8")
    assert found["nvfp4"].total == 3 * x.size
    [alone] = other.counted(f"recipes/{find_recipe('mxfp8')}")
    assert alone.value == found["mxfp8"]
    assert list(other.counted("recipes/mx")) == list(other.counted("blocks")) == []
    with pytest.raises(InputError, match="along axis -1 and 'nvfp4' along axis -2 do not add"):
        other.count("w", "weight", 0, recipe_tally(x, "nvfp4", axis=0))


def test_damaged_and_old_files(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "run.fpemu"
    trace.save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE counted SET counts = '{}'")
    connection.close()
    with pytest.raises(TraceError, match=r"recipes of 'a' \(activation, step 0\) are damaged"):
        list(Trace.load(path).counted("recipes"))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE counted")
    connection.close()
    old = Trace.load(path)
    assert list(old.counted("recipes")) == []
    assert whatif(old, formats="fp16", scales=1)
    assert report.build(old).recipes == ()


# --- names -------------------------------------------------------------------------------------


def test_no_name_is_a_format_and_a_recipe() -> None:
    for name in recipes:
        assert isinstance(target(name), ByRecipe)
        with pytest.raises(UnknownFormatError):
            fpemu.Cast(name)
    for name in (*fpemu.formats, *fpemu.casts, "fp16", "bf16", "e4m3fn:overflow=saturate"):
        assert target(name) == fpemu.cast.make_cast(name)


def test_names_are_read_and_refused() -> None:
    text = "1x16 exponent(mode=fit) fp4"
    found = targets(["bf16", "mxfp8", text, find_recipe("mxfp8"), Recipe.of(text, "mine")])
    assert [str(one) for one in found] == ["bfloat16", "mxfp8", text, "mine"]
    assert read_casts([f"{text}", "bf16,mxfp8", "tensor amax nf4[-1, 0, 1]"]) == (
        text, "bf16", "mxfp8", "tensor amax nf4[-1, 0, 1]"
    )  # fmt: skip
    with pytest.raises(InputError, match=r"unknown format or recipe 'mxfpp8'; did you mean 'mxfp8"):
        targets("mxfpp8")
    with pytest.raises(UnknownFormatError, match="did you mean 'float16'"):
        targets("flaot16")
    with pytest.raises(InputError, match="two different recipes are both called 'mxfp8'"):
        targets(["mxfp8", Recipe.of(text, "mxfp8")])
    with pytest.raises(InputError, match="formats: 'mxfp8' is a recipe: its scales depend"):
        casts(["bf16", "mxfp8"])


# --- what-if -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", TRIED)
def test_rows_are_what_the_recipe_leaves_of_the_true_numbers(trace: Trace, recipe: str) -> None:
    rows = whatif(trace, formats=["fp16", recipe], scales=[0.5, 1.0])
    assert [row.scale for row in rows[:3]] == [0.5, 1.0, 1.0]
    for row in (row for row in rows if row.to == recipe):
        kept, signal, noise = told(row.name, row.kind, recipe)
        outcome = row.outcome
        assert (outcome.zero, outcome.underflow) == (kept["zero"], kept["underflow"])
        assert outcome.total == 2 * 16 * 48
        assert row.sqnr_db == pytest.approx(10 * math.log10(signal / noise), abs=1e-9)
        scaled = [find_recipe(recipe).quantize(x) for x in both_steps(row.name, row.kind)]
        assert row.bits_per_value == pytest.approx(np.mean([s.bits_per_value for s in scaled]))
        facts = json.loads(json.dumps(row.to_json(), allow_nan=False))
        assert facts["sqnr_db"] == row.sqnr_db
    assert {row.bits_per_value for row in rows if row.to == "float16"} == {None}


def test_steps_by_themselves(trace: Trace) -> None:
    rows = whatif(trace, formats="nvfp4", kinds="weight", per_step=True)
    assert [(row.name, row.step) for row in rows] == [
        ("a.weight", 0), ("bb.weight", 0), ("a.weight", 3), ("bb.weight", 3)
    ]  # fmt: skip
    for row in rows:
        x = numbers(row.name.partition(".")[0], "weight", row.step)
        assert row.outcome == recipe_tally(x, "nvfp4").outcome


@pytest.mark.parametrize(
    "text",
    ["tensor exponent e4m3fn", "tensor exponent(mode=fit) fp4",
     "tensor amax(power_of_two=true) e4m3fn", "tensor amax(power_of_two=true, inverse=true) e5m2",
     "tensor fixed(scale=0.25) fp16", "tensor fixed(scale=8.0, inverse=true) e4m3fn",
     "tensor amax(power_of_two=true, least=0.001) fp6_e2m3"],
)  # fmt: skip
def test_one_power_of_two_for_a_tensor_needs_no_counting(trace: Trace, text: str) -> None:
    """The histogram tells all but the noise; gradients without loss scale."""
    for row in whatif(trace, formats=text, per_step=True):
        x = numbers(row.name.partition(".")[0], row.kind, row.step)
        want = recipe_tally(x, text)
        assert row.outcome == want.outcome
        assert row.bits_per_value == want.bits_per_value


def test_its_noise_is_predicted() -> None:
    x = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    trace = Trace()
    trace.record("a", "weight", x, 0)
    [row] = whatif(trace, formats="tensor amax(power_of_two=true) e4m3fn")
    assert row.scored is not None
    assert not row.scored.measured
    assert row.sqnr_db == pytest.approx(recipe_tally(x, "tensor amax(power_of_two=true) e4m3fn")
                                        .sqnr_db, abs=0.3)  # fmt: skip


def test_several_arrays_as_one_had_scales_of_their_own() -> None:
    trace = Trace()
    for size in (1.0, 8.0):
        trace.record("a", "weight", np.float32([size, 0.1]), 0)
    assert whatif(trace, formats="tensor fixed fp16")
    with pytest.raises(InputError, match="'tensor exponent fp16' was not counted of 'a'"):
        whatif(trace, formats="tensor exponent fp16")


def test_what_was_not_counted_is_refused_in_one_line(trace: Trace) -> None:
    with pytest.raises(InputError) as caught:
        whatif(trace, formats=["fp16", "mxfp4"])
    assert str(caught.value) == (
        "recipe 'mxfp4' was not counted of 'a' (activation, step 0), and its scales cannot be told "
        "afterwards: record the run with watch(..., recipes='mxfp4'), or fpemu run --recipes mxfp4"
    )
    part = Trace()
    part.record("a", "weight", np.float32([1, 2]), 0)
    part.count("a", "weight", 0, recipe_tally(np.float32([1]), "mxfp8"))
    with pytest.raises(InputError, match="counted of 1 of the 2 values of 'a'"):
        whatif(part, formats="mxfp8")


def test_scales_that_do_not_go_with_a_loss_scale_are_refused() -> None:
    trace = made(("deepseek",))
    assert whatif(trace, formats="deepseek", kinds="weight")
    with pytest.raises(InputError, match=r"was counted times a loss scale of 4096: leave gradi"):
        whatif(trace, formats="deepseek")
    [marked] = {row.as_recorded for row in report.build(trace).recipes
                if row.kind == "activation_gradient"}  # fmt: skip
    assert marked


def test_answers_are_of_those_asked_for(trace: Trace) -> None:
    record = next(iter(trace.records()))
    parts = answers(trace, [target("mxfp8")]).parts(record)
    with pytest.raises(InputError, match="recipe 'nvfp4' was not counted here"):
        parts.outcomes(target("nvfp4"), [1.0])


# --- advice ------------------------------------------------------------------------------------


def test_advice_takes_recipes_with_their_noise_and_bits(trace: Trace) -> None:
    found = advise(trace, formats=["mxfp8", "nvfp4", "bf16"])
    assert {row.to for row in found.layers} == {"mxfp8"}
    assert (found.status, found.keep) == ("safe", ())
    for row in found.tensors:
        _, signal, noise = told(row.name, row.kind, "mxfp8")
        assert (row.to, row.scaled, row.measured, row.scale) == ("mxfp8", "recipe", True, 1.0)
        assert row.sqnr_db == pytest.approx(10 * math.log10(signal / noise))
        assert row.bits_per_value == 8 + 8 * 2 / 48
    size = 16 * 48
    bits = math.ceil(size * (8 + 8 * 2 / 48) / 8)
    assert [row.memory_bytes for row in found.layers] == [3 * bits] * 2
    assert found.loss_scale is None
    small = min(found.pareto, key=lambda choice: choice.memory_bytes)
    assert {form for _, form in small.formats} == {"nvfp4"}
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["formats"][0] == "mxfp8"


def one_product(x: Array, *tried: str) -> Trace:
    """A layer that multiplies x by something harmless."""
    trace = Trace()
    for kind, values in (("activation", x), ("weight", np.ones_like(x))):
        trace.record("a" if kind == "activation" else "a.weight", kind, values, 0)
        for recipe in tried:
            trace.count("a" if kind == "activation" else "a.weight", kind, 0,
                        recipe_tally(values, recipe))  # fmt: skip
    return trace


def test_recipes_are_judged_by_the_noise_that_was_measured() -> None:
    """7.9 is clipped to 6 under OCP's rule for FP4: an error of 1.9 each, 12.4 dB."""
    noisy = one_product(np.full((4, 32), 7.9, np.float32), "mxfp4", "mxfp8")
    found = advise(noisy, formats=["mxfp4", "mxfp8"], tolerance=1.0)
    [keep] = found.keep
    assert f"{20 * math.log10(7.9 / 1.9):.1f} dB" in keep.reason
    [row] = found.layers
    assert row.to == "mxfp8"
    judged = report.build(noisy, to="mxfp4")
    assert judged.verdict.status.value == "not_safe"
    assert "a (activation) keeps an SQNR of 12.4 dB" in judged.verdict.headline
    assert {row.sqnr_db is None for row in judged.tensors} == {True, False}  # ones are exact
    few = np.full((4, 32), 500.0, np.float32)  # all clipped to 448, by 52: 19.7 dB
    clipped = report.build(one_product(few, "mxfp8"), to="mxfp8", tolerance=0.0)
    assert clipped.verdict.status.value == "safe"
    assert clipped.tensors[0].saturated_percent == 100


def test_large_numbers_do_not_hide_that_the_others_come_out_zero() -> None:
    x = np.full((4, 32), 1e-3, np.float32)
    x[0, 0] = 1e6
    trace = one_product(x, "te.current", "mxfp8")
    found = advise(trace, formats=["te.current", "mxfp8"])
    [row] = found.layers
    assert row.to == "mxfp8"
    assert f"{100 * 127 / 128:.1f} % of the values 0" in found.keep[0].reason
    rows = {row.to: row.safe.safe for row in report.build(trace, to="te.current", formats="mxfp8")
            .tensor_scales if row.kind == "activation"}  # fmt: skip
    assert rows == {"te.current": False, "mxfp8": True}


def test_a_memory_goal_mixes_recipes(trace: Trace) -> None:
    found = advise(trace, formats=["mxfp8", "nvfp4"], tolerance=0.2, memory=0.21)
    assert sorted(row.to for row in found.layers) == ["mxfp8", "nvfp4"]


def test_gradients_have_the_kin_that_is_better_for_them() -> None:
    trace = made(("mxfp8", "mxfp8_e5m2", "mxfp4"))
    damage = {}
    for name in ("mxfp8", "mxfp8_e5m2"):
        parts = [recipe_tally(x, name) for x in both_steps("a", "activation_gradient")]
        whole = sum(parts)
        share = whole.lost / (whole.total - whole.zero)
        damage[name] = max(share, whole.noise / whole.signal)
    better = min(damage, key=damage.get)
    for order in (("mxfp8_e5m2", "mxfp8", "mxfp4"), ("mxfp8", "mxfp4", "mxfp8_e5m2")):
        found = advise(trace, formats=order, tolerance=0.5)
        [row] = [row for row in found.layers if row.layer == "a"]
        assert (row.to, row.gradient_to) == (order[0], better)


def test_the_policy_scales_products(trace: Trace) -> None:
    found = advise(trace, formats=["mxfp8", "bf16"], tolerance=0.05)
    policy = found.policy()
    assert str(policy.products) == "mxfp8"
    assert not policy.overrides
    mixed = advise(trace, formats=["bf16", "mxfp8"], memory=0.4)
    assert {row.to for row in mixed.layers} == {"bfloat16", "mxfp8"}
    named = {str(o.to): o.module for o in mixed.policy().overrides}
    assert named == {"mxfp8": next(r.layer for r in mixed.layers if r.to == "mxfp8")}


def test_missing_counts_of_what_is_not_rounded_are_no_matter() -> None:
    trace = made()
    trace.record("a.weight", "update", np.float32([1e-4]), 0)
    assert advise(trace, formats="mxfp8", tolerance=0.1).tensors
    with pytest.raises(InputError, match=r"'a.weight' \(update, step 0\)"):
        whatif(trace, formats="mxfp8")


# --- report, comparison, export ----------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(trace: Trace) -> report.Report:
    return report.build(trace, to="nvfp4", formats=["bf16", "mxfp8"], tolerance=0.5)


def test_a_report_judges_a_recipe(judged: report.Report) -> None:
    assert (str(judged.to), judged.formats) == ("nvfp4", ("nvfp4", "bfloat16", "mxfp8"))
    assert judged.verdict.status.value == "safe"
    assert judged.verdict.loss_scale is None
    assert judged.loss_scales == ()
    for row in judged.tensors:
        kept, _, _ = told(row.name, row.kind, "nvfp4")
        nonzero = 2 * 16 * 48 - kept["zero"]
        assert row.underflow_percent == pytest.approx(100 * kept["underflow"] / nonzero)
        assert row.headroom_max_bits is row.headroom_normal_bits is None
        assert row.latent_percent == 0
    assert {curve.to for curve in judged.curves} == {"bfloat16"}
    bits = {row.to: row.bits_per_value for row in judged.tensor_scales}
    assert bits["bfloat16"] is None
    assert bits["mxfp8"] == 8 + 8 * 2 / 48
    facts = json.loads(json.dumps(judged.to_json(), allow_nan=False))
    assert Recipe.from_json(facts["to"]) == find_recipe("nvfp4")


def test_the_section_has_every_recipe(trace: Trace) -> None:
    found = report.build(trace)
    assert len(found.recipes) == len(trace.tensors()) * 2
    for row in found.recipes:
        kept, signal, noise = told(row.name, row.kind, row.to)
        scales = np.concatenate([
            find_recipe(row.to).quantize(x).scales.ravel() for x in both_steps(row.name, row.kind)
        ])  # fmt: skip
        assert row.blocks == scales.size
        assert row.sqnr_db == pytest.approx(10 * math.log10(signal / noise))
        nonzero = 2 * 16 * 48 - kept["zero"]
        assert row.lost_percent == pytest.approx(100 * kept["underflow"] / nonzero)
        if row.to == "mxfp8":  # E8M0 codes
            blocks = [x[i, j : j + 32] for x in both_steps(row.name, row.kind)
                      for i in range(16) for j in (0, 32)]  # fmt: skip
            some = np.array([bool(block.any()) for block in blocks])
            powers = np.sort(np.exp2(scales[some].astype(float) - 127))
            want = [powers[min(len(powers) - 1, int(q * len(powers)))]
                    for q in (0, 0.01, 0.5, 0.99, 1)]  # fmt: skip
            assert row.scales == tuple(want)
            assert row.zero_blocks == int((~some).sum())


def test_views_and_plots_of_it(judged: report.Report) -> None:
    page = report.html.render(judged, plots=False)
    assert 'id="recipes"' in page
    assert f"its own, {4 + 8 * 3 / 48 + 32 / 768:.3g} bits a value" in page
    names = [figure.name for figure in figures(judged)]
    assert "sqnr_by_layer" in names
    assert not {"scale_plot", "amax_by_step", "exponent_heatmap"} & set(names)


def test_ranks_and_comparisons(trace: Trace) -> None:
    other = made()
    found = report.build(trace, to="mxfp8", formats=(), ranks=[other], against=other)
    assert found.ranks
    assert all(row.identical for row in found.ranks)
    assert found.tensors[0].count == 4 * 16 * 48
    same = diff.diff(trace, other, to="nvfp4")
    assert (same.change, same.before.to) == ("same", "nvfp4")
    with pytest.raises(InputError, match="recipe 'nvfp4' was not counted"):
        diff.diff(trace, made(()), to="nvfp4")


def test_frames(trace: Trace) -> None:
    pytest.importorskip("pandas", reason="data frames are pandas'")
    frame = trace_frame(trace, to="nvfp4")
    for row in frame.itertuples():
        x = numbers(row.name.partition(".")[0], row.kind, row.step)
        want = recipe_tally(x, "nvfp4").outcome
        assert row.underflow_percent == 100 * want.underflow / want.nonzero


# --- plots -------------------------------------------------------------------------------------


def test_plots_that_take_recipes(trace: Trace) -> None:
    found = compute.sqnr_by_layer(trace, to="nvfp4")
    assert found.exact
    arrays = {"a": numbers("a", "weight", 0)}
    [level] = compute.sqnr_by_layer(arrays, to="nvfp4").sqnr
    kept = find_recipe("nvfp4").round(arrays["a"]).astype(float)
    x = arrays["a"].astype(float)
    assert level == pytest.approx(10 * math.log10((x**2).sum() / ((kept - x) ** 2).sum()))
    heat = compute.underflow_heatmap(trace, to="nvfp4", kind="weight")
    want = [recipe_tally(numbers("a", "weight", step), "nvfp4").lost for step in (0, 3)]
    assert heat.underflow[heat.labels.index("a.weight")].tolist() == want
    here = compute.underflow_heatmap(arrays, to="nvfp4")
    assert here.underflow.tolist() == [[want[0]]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: plots.lost_by_scale(t, formats=["fp16", "mxfp8"]), "no curve over scales"),
        (lambda t: plots.sqnr_by_scale(t, formats="mxfp8"), "no curve over scales"),
        (lambda t: plots.exponent_histogram(t, formats=["mxfp8"]), "no range to draw"),
        (lambda t: plots.exponent_heatmap(t, to="mxfp8"), "no range to draw"),
        (lambda t: plots.scale_plot(t, to="mxfp8"), "no range to draw"),
        (lambda t: plots.amax_by_step(t, to="mxfp8"), "no largest value to draw"),
        (lambda t: plots.staircase("mxfp8"), "depends on the others of its block"),
        (lambda t: plots.error_distribution(np.ones(3), "mxfp8"), "no common unit"),
    ],
)
def test_plots_that_have_no_meaning_for_one(trace: Trace, call, words: str) -> None:
    with pytest.raises(InputError, match=f"'mxfp8' is a recipe: .*{words}"):
        call(trace)


# --- commands and watch ------------------------------------------------------------------------


def test_commands(tmp_path: Path, trace: Trace) -> None:
    path = str(tmp_path / "run.fpemu")
    trace.save(path)
    run = CliRunner().invoke
    found = run(main, ["whatif", path, "--to", "e4m3fn,nvfp4", "--json"])
    rows = [row for row in json.loads(found.output)["rows"] if row["to"] == "nvfp4"]
    assert len(rows) == len(trace.tensors())
    assert "its own" in run(main, ["whatif", path, "--to", "nvfp4"]).output
    found = run(main, ["advise", path, "--formats", "mxfp8,bf16", "--tolerance", "5", "--json"])
    assert json.loads(found.output)["formats"] == ["mxfp8", "bfloat16"]
    assert run(main, ["report", path, "--to", "mxfp8", "--json"]).exit_code == 0
    assert run(main, ["diff", path, path, "--to", "nvfp4"]).exit_code == 0
    refused = run(main, ["report", path, "--to", "mxfp4"])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert "fpemu run --recipes mxfp4" in refused.output


def test_each_watched_tensor_is_counted() -> None:
    torch = pytest.importorskip("torch", reason="watch is for PyTorch")
    from fpemu.analysis import watch

    torch.manual_seed(0)
    model = torch.nn.Linear(40, 24)
    weight = model.weight.detach().numpy().copy()
    bias = model.bias.detach().numpy().copy()
    asked = ("mxfp8", "1x32 exponent e4m3fn", "nvfp4.weight", find_recipe("te.current"))
    with watch(model, recipes=asked) as run:
        for batch in (torch.randn(5, 40), torch.randn(5, 40)):
            model(batch).square().sum().backward()
        run.next_step()
    found = {(c.name, c.kind, c.value.name): c.value for c in run.trace.counted("recipes")}
    assert len(found) == 3 * len(run.trace.tensors())
    names = {name for _, _, name in found}
    assert names == {"mxfp8", "nvfp4.weight", "te.current"}  # the text says the same
    assert found["weight", "weight", "te.current"] == recipe_tally(weight, "te.current")
    assert found["weight", "weight", "nvfp4.weight"] == recipe_tally(weight, "nvfp4.weight")
    assert found["bias", "weight", "nvfp4.weight"] == recipe_tally(bias[None], "nvfp4.weight")
    assert found["weight", "weight_gradient", "te.current"].tensors == 2
    assert whatif(run.trace, formats=["mxfp8", "nvfp4.weight"])


def test_what_watch_cannot_count_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="watch is for PyTorch")
    from fpemu.analysis import watch

    model = torch.nn.Linear(3, 2)
    for recipe, words in (
        ("mxfp9", "unknown recipe 'mxfp9'"),
        ("1x16 two_level fp4:rounding=stochastic", "draws of stochastic rounding"),
        (3, "recipes 3: give one or a list"),
        ("nvfp4.hadamard", "'nvfp4.hadamard' rotates groups of 16 numbers"),
    ):
        with pytest.raises(InputError, match=words):
            watch(model, recipes=recipe)
    with pytest.raises(InputError, match="to: 'mxfp8' is a recipe: count it with recipes="):
        watch(model, to="mxfp8")


def test_a_script_is_run_with_recipes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="fpemu run watches PyTorch")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(8, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(2, 8)).sum().backward()\noptimizer.step()\n"
    )
    out = tmp_path / "out"
    done = CliRunner().invoke(
        main, ["run", "--recipes", "mxfp8,nvfp4", "--out", str(out), str(script)]
    )
    assert done.exit_code == 0, done.output
    found = Trace.load(out / "run.fpemu")
    assert {c.value.name for c in found.counted("recipes")} == {"mxfp8", "nvfp4"}
    assert found.metadata["watched"]["recipes"] == ["mxfp8", "nvfp4"]
    assert json.loads((out / "report.json").read_text())["recipes"]
