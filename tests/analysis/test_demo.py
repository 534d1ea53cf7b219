"""The demo: real data, true gradients, honest records, faults found."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fpemu
from fpemu.analysis import digits as digits_module
from fpemu.analysis import report
from fpemu.analysis.demo import Experiment, Network, Recipe, Run, Setup, Spoil, files, run, train
from fpemu.analysis.demo.network import backward, cross_entropy, forward, layer_names
from fpemu.analysis.demo.show import lost_by_layer, to_json
from fpemu.analysis.demo.training import Step, _batches
from fpemu.analysis.digits import digits
from fpemu.analysis.trace import Trace
from fpemu.errors import FpemuError, InputError, TraceError

Array = np.ndarray[Any, Any]
RECIPE = Recipe(steps=120)
GRADIENTS = ("activation_gradient", "weight_gradient")


def identity(x: Array) -> Array:
    return x


@pytest.fixture(scope="module")
def runs() -> dict[str, Experiment]:
    """One experiment for each of four formats."""
    names = ("float16", "bfloat16", "float8_e4m3fn", "float32")
    return {name: run(Setup(fpemu.Cast(name), RECIPE, recorded=10)) for name in names}


# --- the data ----------------------------------------------------------------------------------


def test_digits_are_the_file_that_the_attribution_describes() -> None:
    folder = Path(digits_module.__file__).parent / "data"
    stored = np.load(folder / "digits.npz")
    images, labels = stored["images"], stored["labels"]
    assert images.shape == (1797, 8, 8)
    assert images.max() == 16
    # the class counts that UCI gives for optdigits.tes
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    text = (folder / "digits.md").read_text()
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() in text
    for needed in ("Alpaydin", "Kaynak", "10.24432/C50P49", "CC BY 4.0"):
        assert needed in text
        assert needed in digits_module.ATTRIBUTION
    assert (folder / "digits.npz").stat().st_size < 100_000


def test_digits_split_without_overlap_and_keep_every_pixel() -> None:
    data = digits()
    stored = np.load(Path(digits_module.__file__).parent / "data" / "digits.npz")
    together = np.concatenate([data.train_images, data.test_images]) * 16
    assert together.sum() == stored["images"].sum()
    assert len(together) == 1797
    assert np.array_equal(together, together.round())
    assert np.array_equal(data.test_images[1] * 16, stored["images"][5].ravel())
    assert data.test_labels[1] == stored["labels"][5]
    assert set(data.test_labels) == set(range(10))


# --- the network -------------------------------------------------------------------------------


def small_network(seed: int) -> tuple[Network, Array, Array]:
    rng = np.random.default_rng(seed)
    network = Network.start((6, 5, 4, 3), rng, np.float64)
    return network, rng.normal(size=(7, 6)), rng.integers(0, 3, 7)


def loss_of(network: Network, images: Array, labels: Array) -> float:
    return cross_entropy(forward(network, images, identity).outputs[-1], labels)[0]


@pytest.mark.parametrize("which", ["weights", "biases"])
def test_gradients_agree_with_finite_differences(which: str) -> None:
    network, images, labels = small_network(1)
    signals = forward(network, images, identity)
    gradients = backward(signals, cross_entropy(signals.outputs[-1], labels)[1], identity)
    h = 1e-5
    checked = 0
    for values, gradient in zip(getattr(network, which), getattr(gradients, which), strict=True):
        for at in np.ndindex(values.shape):
            kept = values[at]
            values[at] = kept + h
            above = loss_of(network, images, labels)
            values[at] = kept - h
            below = loss_of(network, images, labels)
            values[at] = kept
            assert gradient[at] == pytest.approx((above - below) / (2 * h), abs=1e-9)
            checked += 1
    assert checked == {"weights": 30 + 20 + 12, "biases": 5 + 4 + 3}[which]


def pusher(name: str, at: tuple[int, int], by: float) -> Callable[[str, Array], Array]:
    """What moves one element of one layer's output."""

    def push(layer: str, output: Array) -> Array:
        output[at] += by if layer == name else 0.0
        return output

    return push


def test_output_gradients_agree_with_finite_differences() -> None:
    network, images, labels = small_network(2)
    signals = forward(network, images, identity)
    gradients = backward(signals, cross_entropy(signals.outputs[-1], labels)[1], identity)
    h = 1e-5
    for layer, name in enumerate(network.names):
        for at in [(0, 0), (3, 1), (6, 2)]:
            moved = []
            for shift in (h, -h):

                outputs = forward(network, images, identity, pusher(name, at, shift)).outputs
                moved.append(cross_entropy(outputs[-1], labels)[0])
            slope = (moved[0] - moved[1]) / (2 * h)
            assert gradients.outputs[layer][at] == pytest.approx(slope, abs=1e-9)


def test_cross_entropy_is_the_textbook_formula() -> None:
    logits = np.array([[2.0, -1.0, 0.5], [0.0, 1000.0, -1000.0]])
    loss, gradient = cross_entropy(logits, np.array([2, 1]))
    parts = [math.exp(x) for x in logits[0]]
    assert loss == pytest.approx(-math.log(parts[2] / sum(parts)) / 2)
    expected = [part / sum(parts) - (i == 2) for i, part in enumerate(parts)]
    assert gradient[0].tolist() == pytest.approx([x / 2 for x in expected])
    assert gradient[1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float16", np.float16), ("e5m2", ml_dtypes.float8_e5m2), ("bf16", ml_dtypes.bfloat16)],
)
def test_every_product_reads_and_writes_the_format(name: str, dtype: Any) -> None:
    """Two layers written out line by line, with casts by numpy and ml_dtypes."""

    def r(x: Array) -> Array:
        return x.astype(dtype).astype(np.float32)

    rng = np.random.default_rng(3)
    network = Network.start((5, 4, 3), rng)
    images = rng.normal(size=(6, 5)).astype(np.float32)
    labels = rng.integers(0, 3, 6)
    cast = fpemu.Cast(name)
    signals = forward(network, images, cast)
    slope = cross_entropy(signals.outputs[-1], labels)[1] * np.float32(64)
    gradients = backward(signals, slope, cast)

    (w1, w2), (b1, b2) = network.weights, network.biases
    z1 = r(r(images) @ r(w1) + b1)
    h1 = r(np.tanh(z1))
    z2 = r(h1 @ r(w2) + b2)
    assert np.array_equal(signals.outputs[0], z1)
    assert np.array_equal(signals.outputs[1], z2)
    g2 = r(slope)
    g1 = r(g2 @ r(w2).T) * (1 - h1**2)
    assert np.array_equal(gradients.outputs[0], g1)
    assert np.array_equal(gradients.weights[1], r(h1.T @ g2))
    assert np.array_equal(gradients.weights[0], r(r(images).T @ r(g1)))
    assert np.array_equal(gradients.biases[0], r(g1).sum(0))


def test_batches_use_every_image_once_before_any_twice() -> None:
    rng = np.random.default_rng(0)
    drawn = list(_batches(10, Recipe(steps=5, batch=4), rng))
    first, second = np.split(np.concatenate(drawn), 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert [len(batch) for batch in drawn] == [4] * 5


# --- training ----------------------------------------------------------------------------------


def test_the_network_learns_and_the_formats_show(runs: dict[str, Experiment]) -> None:
    for name in ("float16", "bfloat16", "float32"):
        accuracies = [found.test_accuracy for found in runs[name].runs]
        assert min(accuracies) > 0.85
        assert max(accuracies) - min(accuracies) < 0.03
    exact, unscaled, scaled = runs["float8_e4m3fn"].runs
    assert unscaled.test_accuracy < 0.5 < 0.85 < scaled.test_accuracy
    assert exact.test_accuracy - scaled.test_accuracy < 0.05


def test_float32_rounded_to_float32_is_the_same_run(runs: dict[str, Experiment]) -> None:
    exact, rounded = runs["float32"].runs
    assert exact.losses == rounded.losses
    assert exact.train_loss == rounded.train_loss


def test_runs_repeat_and_seeds_differ() -> None:
    def go(seed: int) -> Experiment:
        return run(Setup(recipe=Recipe(steps=15, seed=seed), recorded=3))

    first, again, other = go(0), go(0), go(1)
    assert [r.losses for r in first.runs] == [r.losses for r in again.runs]
    assert first.trace.total() == again.trace.total()
    assert first.runs[0].losses != other.runs[0].losses


def test_a_loss_scale_too_large_is_halved_and_its_steps_skipped() -> None:
    seen: list[Step] = []
    cast = fpemu.Cast("float16")
    run = Run("fp16", loss_scale=2.0**26)
    found = train(run, digits(), Recipe(steps=20), cast, watch=seen.append)
    assert 0 < found.skipped < 15
    assert found.final_loss_scale == 2.0 ** (26 - found.skipped)
    skips = [step for step in seen if step.skipped]
    assert len(skips) == found.skipped
    for before, after in itertools.pairwise(seen):
        assert (before.network is after.network) == before.skipped
        assert after.loss_scale == before.loss_scale / (2 if before.skipped else 1)
    assert found.test_accuracy > 0.1


def test_a_loss_scale_changes_nothing_where_nothing_is_rounded() -> None:
    data, recipe = digits(), Recipe(steps=10)
    plain = train(Run("float32"), data, recipe, identity)
    scaled = train(Run("float32", 2.0**20), data, recipe, identity)
    assert plain.losses == scaled.losses  # powers of two are exact


# --- what is recorded --------------------------------------------------------------------------


def test_the_trace_holds_the_unrounded_tensors_of_the_float32_run() -> None:
    seen: dict[int, Step] = {}
    recipe = Recipe(steps=61)
    train(Run("float32"), digits(), recipe, identity, watch=lambda s: seen.update({s.number: s}))
    trace = run(Setup(recipe=recipe, recorded=2)).trace
    assert trace.steps() == [0, 30, 60]
    underflows = 0
    for record in trace.records():
        step = seen[record.step]
        layer = step.network.names.index(record.name)
        array = {
            "activation": step.signals.outputs,
            "weight": step.network.weights,
            "activation_gradient": step.gradients.outputs,
            "weight_gradient": step.gradients.weights,
            "update": step.updates,
        }[record.kind][layer]
        assert record.shape == array.shape
        halves = array.astype(np.float16)
        assert record.tally.outcome("float16").underflow == np.sum((array != 0) & (halves == 0))
        assert record.tally.zero == np.sum(array == 0)
        assert record.moments.amax == np.abs(array).max()
        underflows += record.tally.outcome("float16").underflow
    assert underflows > 10  # there was something to find


def test_weights_are_recorded_before_the_step_and_updates_lead_to_the_next() -> None:
    start = Network.start(RECIPE.widths, np.random.default_rng(0))
    trace = run(Setup(recipe=Recipe(steps=2), recorded=2)).trace
    for name, weight in zip(start.names, start.weights, strict=True):
        [record] = trace.records(name, "weight", 0)
        assert record.tally == fpemu.tally(weight)


def test_every_layer_and_kind_is_recorded(runs: dict[str, Experiment]) -> None:
    trace = runs["float16"].trace
    assert sorted(trace.names()) == ["hidden1", "hidden2", "hidden3", "hidden4", "output"]
    assert set(trace.kinds()) == {"activation", "weight", "update", *GRADIENTS}
    assert len(trace.tensors()) == 25
    assert trace.metadata["seed"] == 0
    assert trace.metadata["to"] == "float16"
    assert [row["run"] for row in trace.metadata["runs"]] == ["float32", "float16", "float16"]
    losses = tuple(scalar.value for scalar in trace.scalars("loss, float32"))
    assert losses == runs["float16"].runs[0].losses


def test_lost_by_layer_counts_real_casts(runs: dict[str, Experiment]) -> None:
    """The table's percentages, once more from arrays and numpy's float16."""
    experiment = runs["float16"]
    scales, outcomes = lost_by_layer(experiment)
    kept: list[Array] = []
    steps = set(experiment.trace.steps())

    def keep(step: Step) -> None:
        if step.number in steps:
            kept.append(step.gradients.outputs[-1].ravel().copy())

    train(Run("float32"), digits(), RECIPE, identity, watch=keep)
    values = np.concatenate(kept).astype(np.float64)
    with np.errstate(over="ignore"):
        for scale, outcome in zip(scales, outcomes["output", "activation_gradient"], strict=True):
            halves = (values * scale).astype(np.float16)  # exact products, rounded once
            assert outcome.underflow == np.sum((halves == 0) & (values != 0))
            assert outcome.overflow == np.sum(np.isinf(halves))
    assert outcomes["output", "activation_gradient"][0].underflow > 0


def verdict_of(found: Experiment) -> report.Verdict:
    return report.build(found.trace, formats=[]).verdict


# --- the verdict -------------------------------------------------------------------------------


def test_the_verdict_follows_the_format(runs: dict[str, Experiment]) -> None:
    verdicts = {name: verdict_of(found) for name, found in runs.items()}
    assert {name: verdict.status.value for name, verdict in verdicts.items()} == {
        "float16": "safe_with_loss_scale",
        "bfloat16": "safe",
        "float8_e4m3fn": "not_safe",
        "float32": "safe",
    }
    worst = verdicts["float16"].worst
    assert worst is not None
    assert (worst.name, worst.kind) == ("output", "activation_gradient")


def test_the_loss_scale_tried_is_the_one_that_the_verdict_advises(
    runs: dict[str, Experiment],
) -> None:
    for name in ("float16", "float8_e4m3fn"):
        advised = verdict_of(runs[name]).loss_scale
        assert advised is not None
        assert runs[name].loss_scale == advised.best == runs[name].runs[2].loss_scale
    for name in ("bfloat16", "float32"):
        assert runs[name].loss_scale == 1.0
        assert len(runs[name].runs) == 2


def test_the_advised_scale_loses_nothing_where_it_is_called_safe(
    runs: dict[str, Experiment],
) -> None:
    experiment = runs["float16"]
    for name, kind in experiment.trace.tensors():
        if kind in GRADIENTS:
            outcome = experiment.trace.total(name, kind).outcome("float16", experiment.loss_scale)
            assert outcome.overflow == 0
            assert outcome.lost_fraction <= 0.001


@pytest.mark.parametrize("layer", ["hidden1", "hidden4", "output"])
@pytest.mark.parametrize("to", ["float16", "bfloat16", "e4m3fn", "e5m2:overflow=saturate"])
def test_an_injected_overflow_is_found_and_named(to: str, layer: str) -> None:
    cast = fpemu.Cast.from_str(to)
    spoil = Spoil(layer, step=7)  # between two recorded steps
    found = run(Setup(cast, Recipe(steps=11), spoil=spoil, recorded=2))
    assert 7 in found.trace.steps()
    made = report.build(found.trace, formats=[])
    beyond = [e for e in made.events if e.what in ("inf", "overflow", "saturated", "nan")]
    assert (beyond[0].name, beyond[0].kind, beyond[0].step) == (layer, "activation", 7)
    if cast.overflow is not fpemu.Overflow.SATURATE:
        assert f"step 7, {layer} (activation)" in _as_told(made.verdict.headline)


def _as_told(headline: str) -> str:
    """'at step 7, 12 values of output (activation) overflow', without the count."""
    return re.sub(r"[\d,]+ values? of ", "", headline)


def test_an_overflow_without_a_loss_scale_ends_the_run_and_with_one_is_skipped() -> None:
    setup = Setup(recipe=Recipe(steps=30), loss_scale=1024.0, spoil=Spoil("output", 20), recorded=3)
    found = run(setup)
    exact, unscaled, scaled = found.runs
    assert exact.diverged_at is None
    assert unscaled.diverged_at == 20
    assert unscaled.test_accuracy == 0.0
    assert len(unscaled.losses) == 21
    assert scaled.diverged_at is None
    assert scaled.skipped == 1
    assert scaled.final_loss_scale == 512.0
    said = [(event.step, event.message) for event in found.trace.events()]
    assert any(step == 20 and "step skipped" in message for step, message in said)
    assert any(step == 20 and "not finite" in message for step, message in said)


def test_a_run_whose_baseline_breaks_is_reported_as_broken(tmp_path: Path) -> None:
    cast = fpemu.Cast("float32")
    found = run(Setup(cast, Recipe(steps=12), spoil=Spoil("output", 6), recorded=3))
    made = report.build(found.trace, formats=[])
    assert made.verdict.status.value == "broken"
    assert "step 6, output (activation) holds" in made.verdict.headline
    files.write(found, made, tmp_path)


@pytest.mark.parametrize("to", ["float4_e2m1fn", "float8_e8m0fnu", "binary8p3se", "e5m2:up"])
def test_any_cast_gets_a_verdict(to: str) -> None:
    found = run(Setup(fpemu.Cast.from_str(to), Recipe(steps=5)))
    assert verdict_of(found).status.value != "no_data"


def test_stochastic_casts_are_refused_before_any_training() -> None:
    steps = []
    with pytest.raises(InputError, match="stochastic"):
        run(Setup(fpemu.Cast("e5m2", "stochastic")), lambda *step: steps.append(step))
    assert not steps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hidden9:3", "did you mean 'hidden"),
        ("output:10", "from 0 to 9"),
        ("output:-1", "from 0 to 9"),
        ("output:", "'' is no step"),
        ("output:1.5", "'1.5' is no step"),
        ("10", "from 0 to 9"),
        ("²", "no step"),
    ],
)
def test_unusable_injections_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        Spoil.read(text, layer_names(5), 10)


def test_injections_are_read() -> None:
    assert Spoil.read("3", layer_names(5), 10) == Spoil("output", 3)
    assert Spoil.read("hidden1:0", layer_names(5), 10) == Spoil("hidden1", 0)


# --- files -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return run(Setup(recipe=Recipe(steps=4), recorded=2))


def test_files_are_written_and_replaced_whole(tiny: Experiment, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "demo"
    found = report.build(tiny.trace, formats=[])
    for _ in range(2):
        files.prepare(folder)
        written = files.write(tiny, found, folder)
    names = ["report.html", "run.fpemu", "histogram.png", "exponents.png", "underflow.png",
             "scales.png"]  # fmt: skip
    assert [path.name for path in written] == names
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert Trace.load(folder / "run.fpemu").total() == tiny.trace.total()
    assert found.verdict.headline in (folder / "report.html").read_text()
    for path in written[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="cannot write to folder"):
            files.prepare(folder)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_foreign_file_of_the_trace_s_name_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "run.fpemu").write_text("something of mine, and long enough to be looked at")
    with pytest.raises(TraceError, match=r"run\.fpemu"):
        files.prepare(tmp_path)
    assert (tmp_path / "run.fpemu").read_text().startswith("something of mine")


def test_a_run_of_one_s_own_is_not_replaced(tmp_path: Path) -> None:
    with Trace.create(tmp_path / "run.fpemu") as trace:
        trace.record("mine", "weight", np.ones(3, np.float32), step=0)
    with pytest.raises(InputError, match="no demo recorded and would be replaced; give another"):
        files.prepare(tmp_path)
    assert Trace.load(tmp_path / "run.fpemu").names() == ["mine"]


def test_json_says_what_the_runs_say(tiny: Experiment) -> None:
    facts = to_json(tiny, report.build(tiny.trace, formats=[]), [Path("x/report.html")])
    assert [row["test_accuracy_percent"] for row in facts["runs"]] == [
        100 * found.test_accuracy for found in tiny.runs
    ]
    assert facts["files"] == [str(Path("x/report.html"))]
    tensors = {(row["name"], row["kind"]) for row in facts["lost"]}
    assert len(tensors) == 20


def test_errors_are_fpemu_s_own() -> None:
    assert issubclass(InputError, FpemuError)
    assert Run("float16", 1024.0).name == "float16, loss scale 1024"
