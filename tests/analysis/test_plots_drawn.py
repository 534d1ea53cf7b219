"""What the plots draw: the numbers that were computed, and words that say what they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import fpemu
from fpemu.analysis import plots
from fpemu.analysis.plots import compute
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import UpdateTally, update_tally
from fpemu.errors import InputError

HOSTILE = ("$x_^{", r"\frac{1}{0}$$ %s", "_hidden", "<script>alert(1)</script>", "层.权重.🙂")


def numbers(seed: int, size: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) * np.exp2(rng.normal(-6, 4, size))).astype(np.float32)


def run(count: int = 3, steps: int = 4) -> dict[str, dict[int, np.ndarray]]:
    return {f"layer{i}": {10 * s: numbers(100 * i + s) for s in range(steps)} for i in range(count)}


def replay(scales: list[float], name: str = "torch", skipped: tuple[int, ...] = ()) -> Any:
    steps = tuple(
        SimpleNamespace(step=k, scale=s, recorded_scale=8.0, skipped=k in skipped)
        for k, s in enumerate(scales)
    )
    return SimpleNamespace(scaler=name, steps=steps, open_loop=name != "torch")


def legend(ax: Axes) -> list[str]:
    drawn = ax.get_legend()
    return [] if drawn is None else [text.get_text() for text in drawn.get_texts()]


def rows(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


# --- drawn as computed ---------------------------------------------------------------------------


def test_scale_plot_draws_each_extent() -> None:
    trace = Trace()
    for layer in ("a", "b"):
        trace.record(layer, "activation", np.float32([0.5, -8.0, 0.0]), 0)
        trace.record(layer, "activation_gradient", np.float32([2.0**-20, 2.0**-10]), 0)
    ax = plots.scale_plot(trace, to="fp16", scale=2.0)
    forward, backward = (c.get_segments() for c in ax.collections)  # type: ignore[attr-defined]
    assert [[p[0] for p in segment] for segment in forward] == [[-1.0, 3.0]] * 2
    assert [[p[0] for p in segment] for segment in backward] == [[-20.0, -10.0]] * 2
    rms = math.log2(math.sqrt((0.25 + 64) / 3))
    assert list(ax.lines[0].get_xdata()) == [pytest.approx(rms)] * 2
    limits = [float(line.get_xdata()[0]) for line in ax.lines[2:]]  # type: ignore[index]
    assert limits == [pytest.approx(math.log2(65504) - 1), -15.0, -25.0]
    assert legend(ax)[:3] == ["activation", "activation gradient", "largest, 65504"]
    assert rows(ax) == ["a", "b"]
    assert legend(plots.scale_plot(trace, to=None)) == ["activation", "activation gradient"]


def test_scale_plot_of_many_layers_is_two_bands() -> None:
    many = {f"layer{i}": np.float32([2.0 ** -(i % 120), 1.0]) for i in range(300)}
    ax = plots.scale_plot(many, to="bf16")
    [band] = ax.collections
    left = band.get_paths()[0].vertices[:, 0].min()
    assert left == -119.0
    assert len(ax.lines[0].get_xdata()) == 300
    assert ax.get_ylim() == (299.5, -0.5)


def test_amax_by_step_draws_its_values_and_the_limit() -> None:
    data = run(3, 4)
    data["layer1"][20][5] = np.inf
    found = compute.amax_by_step(data, to="e4m3fn")
    ax = plots.amax_by_step(found)
    order = np.argsort(found.headroom, kind="stable")
    for line, row in zip(ax.lines[0:6:2], order, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20, 30])
        np.testing.assert_allclose(line.get_ydata(), np.log2(found.amax[row]))
    crosses = [list(line.get_xdata()) for line in ax.lines[1:6:2]]
    assert crosses == [[20], [], []]
    assert ax.lines[6].get_ydata()[0] == math.log2(448)  # type: ignore[index]
    assert legend(ax)[0] == "layer1"
    assert legend(ax)[3:] == ["largest of float8_e4m3fn: 448", "latent: within a binade of it"]
    assert "× " not in ax.get_xlabel()
    assert "×:" in ax.get_xlabel()


def test_amax_by_step_names_those_next_to_the_limit() -> None:
    many = {f"t{i}": {s: np.float32([2.0 ** (i - s)]) for s in range(3)} for i in range(12)}
    ax = plots.amax_by_step(many, to="fp16")
    assert legend(ax)[:8] == [*(f"t{i}" for i in range(11, 4, -1)), "the 5 others"]
    shade = ax.collections[0].get_paths()[0].vertices
    assert (shade[:, 1].min(), shade[:, 1].max()) == (-2.0, 4.0)
    far = plots.amax_by_step({"x": {0: np.float32([1.0])}}, to="bf16")
    assert any("above this plot" in text for text in legend(far))
    assert far.get_ylim()[1] < 10


def test_loss_scale_draws_scales_and_skips() -> None:
    trace = Trace()
    for step, scale in enumerate((1024.0, 512.0, 256.0)):
        trace.scalar(step, "loss_scale", scale)
    trace.event(1, "", "skip", "gradients not finite")
    ax = plots.loss_scale_trajectory(trace, replays=[replay([4, 0, 1], "static", (2,))])
    assert list(ax.lines[0].get_ydata()) == [10.0, 9.0, 8.0]
    assert list(ax.lines[1].get_xdata()) == [1]
    assert list(ax.lines[1].get_ydata()) == [9.0]
    assert ax.lines[0].get_drawstyle() == "steps-post"
    foot = list(ax.lines[2].get_ydata())[1]
    assert rows(ax)[0] == "0"
    assert ax.get_yticks()[0] == foot
    assert legend(ax) == ["recorded, 1 skipped", "static (estimate), 1 skipped"]
    many = plots.loss_scale_trajectory([replay([2.0**k], f"s{k}") for k in range(10)])
    assert legend(many) == ["recorded", *(f"s{k} (estimate)" for k in range(7))]
    assert "not drawn: s7, s8, s9" in many.get_xlabel()
    endless = plots.loss_scale_trajectory(replay([1.0, math.inf]))
    assert rows(endless)[-1] == "inf"


def test_sqnr_by_scale_draws_its_levels() -> None:
    x = numbers(4, 200)
    found = compute.sqnr_by_scale(x, formats=["fp16", "e4m3fn:overflow=saturate"])
    ax = plots.sqnr_by_scale(found)
    line, perfect, star = ax.lines[1:4]
    np.testing.assert_array_equal(line.get_xdata(), range(-24, 40))
    want = np.where(np.isfinite(found.sqnr[0]), found.sqnr[0], np.nan)
    np.testing.assert_array_equal(line.get_ydata(), want)
    assert np.isnan(want).any()
    assert not len(perfect.get_xdata())
    assert list(star.get_xdata()) == [math.log2(found.best[0])]
    assert ax.get_title(loc="left") == "Signal to quantization noise at each scale"
    guess = plots.sqnr_by_scale(fpemu.tally(x), formats=["fp16"])
    assert "predicted" in guess.get_title(loc="left")
    assert "predicted" in guess.get_ylabel()
    same = plots.sqnr_by_scale(np.float32([1.0, 2.0]), formats=["fp16"], scales=[1.0, 2.0**16])
    assert legend(same) == ["float16: no error at 2⁰"]
    over = plots.sqnr_by_scale(np.float32([1e30]), formats=["fp16"], scales=[1.0])
    assert legend(over) == ["float16: overflows at each scale"]


def test_sqnr_by_layer_draws_the_worst_first() -> None:
    levels = {f"t{i}": float(i) for i in range(100)} | {"over": -math.inf, "same": math.inf}
    ax = plots.sqnr_by_layer(levels)
    assert rows(ax) == ["over", *(f"t{i}" for i in range(39))]
    assert list(ax.lines[0].get_xdata()) == [float(i) for i in range(39)]
    assert list(ax.lines[1].get_ydata()) == [0]
    assert "the worst 40; the 62 others: 39.0 to ∞ dB" in ax.get_xlabel()
    whole = plots.sqnr_by_layer(levels, worst=102)
    assert list(whole.lines[2].get_ydata()) == [101]
    found = compute.sqnr_by_layer({"a": numbers(1), "b": numbers(2)}, to="e5m2")
    assert list(plots.sqnr_by_layer(found).lines[0].get_xdata()) == found.sqnr.tolist()
    with pytest.raises(InputError, match="worst=0"):
        plots.sqnr_by_layer(levels, worst=0)


@pytest.mark.parametrize("measure", ["ulp", "relative"])
def test_error_distribution_draws_shares(measure: str) -> None:
    x = np.append(numbers(7, 500), np.float32([1e6, 0.0]))
    found = compute.error_distribution(x, "fp16", "e5m2:toward_zero", measure=measure)
    ax = plots.error_distribution(found)
    for row, patch in enumerate(ax.patches[1::2]):
        drawn = patch.get_data()  # type: ignore[attr-defined]
        assert drawn.values.sum() == pytest.approx(100 * found.counts[row].sum() / found.total)
        heights = 100 * found.counts[row] / found.total
        first = np.searchsorted(
            found.edges if measure == "ulp" else np.log2(found.edges), drawn.edges[0]
        )
        np.testing.assert_array_equal(drawn.values, heights[first : first + len(drawn.values)])
    assert "not finite" in legend(ax)[0]
    with pytest.raises(InputError, match="give the cast"):
        plots.error_distribution(x)


def test_update_ratio_draws_shares_and_guides() -> None:
    weight = np.float32([1, 1, 1, 1, 0])
    update = np.float32([2.0**-9, 2.0**-9, 2.0**-4, 0, 1])
    ax = plots.update_ratio({"fc": (weight, update)})
    bars = ax.patches[0].get_data()  # type: ignore[attr-defined]
    shown = {int(e): v for e, v in zip(bars.edges[:-1], bars.values, strict=True) if v}
    assert shown == {-9: 50.0, -4: 25.0}
    assert [line.get_xdata()[0] for line in ax.lines] == [-8, -11]  # type: ignore[index]
    assert "updates 1 that are 0, 1 of weights that are 0" in ax.get_xlabel().replace("\n", " ")
    lost = update_tally(weight, update).lost_percent("bfloat16")
    assert legend(ax)[1].startswith(f"2⁻⁸, bfloat16: loses {lost:.0f} %")


def test_qsnr_by_crest_draws_medians_and_spread() -> None:
    x = np.random.default_rng(8).normal(size=(400, 32)).astype(np.float32)
    found = compute.qsnr_by_crest(x, ["mxfp8.fit", "mxfp8"])
    ax = plots.qsnr_by_crest(found)
    assert [text.partition(":")[0] for text in legend(ax)[:2]] == ["mxfp8.fit", "mxfp8"]
    middle = (found.edges[:-1] + found.edges[1:]) / 2
    for row, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_xdata(), middle)
        np.testing.assert_array_equal(line.get_ydata(), found.median[row])
    shade = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert shade.min() == pytest.approx(np.nanmin(found.low[0]))
    assert shade.max() == pytest.approx(np.nanmax(found.high[0]))
    heights = ax.patches[0].get_data().values  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights / heights.max(), found.blocks / found.blocks.max())
    assert ax.get_title(loc="left") == "QSNR of blocks of 32 in float8_e4m3fn"
    other = plots.qsnr_by_crest(x, ["mxfp8", "nvfp4"])
    assert other.get_title(loc="left") == "QSNR of blocks of 32"


def test_staircase_draws_corners_and_errors() -> None:
    found = compute.staircase("e4m3fn:toward_zero")
    ax = plots.staircase(found)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), found.x)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.rounded)
    [below] = ax.child_axes
    np.testing.assert_array_equal(below.lines[0].get_ydata(), found.error / 2.0**-9)
    assert below.get_xlim() == ax.get_xlim()
    assert legend(ax) == ["float8_e4m3fn:toward_zero", "x itself", "subnormal: below 2⁻⁶"]
    high = plots.staircase("e5m2", low=50000, high=70000)
    assert np.isnan(np.asarray(high.lines[0].get_ydata())).any()
    lay_out(high)


# --- any source, any name, any axes --------------------------------------------------------------


def lay_out(ax: Axes) -> None:
    """All of drawing but the pixels: layout, ticks, glyphs."""
    plots.figures.figure_of(ax).draw_without_rendering()


def updates_of(data: dict[str, Any]) -> dict[str, UpdateTally]:
    return {
        name: update_tally(x, x * np.float32(2.0**-9))
        for name, steps in data.items()
        for x in (steps.values() if isinstance(steps, dict) else [steps])
    }


#: Each plot of what it takes, made of {name: {step: array}}.
DRAW: dict[str, Callable[..., Axes]] = {
    "scale_plot": plots.scale_plot,
    "amax_by_step": plots.amax_by_step,
    "sqnr_by_scale": lambda data, **more: plots.sqnr_by_scale(data, scales=[1.0, 4.0], **more),
    "sqnr_by_layer": plots.sqnr_by_layer,
    "loss_scale_trajectory": lambda data, **more: plots.loss_scale_trajectory(
        {name: replay([8.0 + k, 4.0]) for k, name in enumerate(data)}, **more
    ),
    "update_ratio": lambda data, **more: plots.update_ratio(updates_of(data), **more),
    "error_distribution": lambda data, **more: plots.error_distribution(
        np.concatenate([x for steps in data.values() for x in steps.values()] or [np.zeros(0)]),
        "fp16", "e4m3fn", **more,
    ),
    "qsnr_by_crest": lambda data, **more: plots.qsnr_by_crest(
        {name: x for name, steps in data.items() for x in steps.values()}, **more
    ),
    "staircase": lambda data, **more: plots.staircase("e5m2", **more),
}  # fmt: skip

each_plot = pytest.mark.parametrize("plot", DRAW)


@each_plot
def test_an_axes_given_is_drawn_on_and_returned(plot: str) -> None:
    figure = Figure(figsize=(12, 6), layout="constrained")
    mine, other = figure.subplots(1, 2)
    ax = DRAW[plot](run(), ax=mine, title="$mine_^")
    assert ax is mine
    assert ax.get_title(loc="left") == "$mine_^"
    assert not other.has_data()
    lay_out(ax)
    free = Figure((12, 6)).add_axes((0.1, 0.3, 0.8, 0.6))
    lay_out(DRAW[plot](run(1, 1), ax=free))


@each_plot
def test_nothing_recorded_is_said(plot: str) -> None:
    if plot == "staircase":
        return
    ax = DRAW[plot]({})
    assert any("no " in text for text in texts(ax))
    lay_out(ax)


@each_plot
@pytest.mark.parametrize("value", [0.0, math.inf, 2.0**-149, 3.4e38])
def test_one_lone_value_is_drawn(plot: str, value: float) -> None:
    ax = DRAW[plot]({"x": {0: np.float32([value])}})
    assert ax.get_title(loc="left")
    lay_out(ax)


@each_plot
def test_hostile_names_are_drawn_as_they_are(plot: str) -> None:
    ax = DRAW[plot]({name: {0: numbers(1), 1: numbers(2)} for name in HOSTILE}, title=HOSTILE[0])
    svg = plots.figure_svg(ax)
    ET.fromstring(svg)
    assert b"<script" not in svg
    assert plots.figure_png(ax)[:4] == b"\x89PNG"


@pytest.mark.parametrize("plot", ["scale_plot", "amax_by_step", "sqnr_by_layer"])
def test_labels_of_500_layers_do_not_overlap(plot: str) -> None:
    many = {
        f"model.decoder.layers.{i}.attention.output.weight": {0: numbers(i, 10)} for i in range(500)
    }
    ax = DRAW[plot](many)
    figure: Any = ax.figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    for labels in (ax.get_yticklabels(), ax.get_xticklabels()):
        boxes = [label.get_window_extent(renderer) for label in labels if label.get_text()]
        assert boxes
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    drawn = ax.get_legend()
    if drawn is not None:
        box = drawn.get_window_extent(renderer)
        assert not box.overlaps(ax.xaxis.label.get_window_extent(renderer))
        assert figure.bbox.contains(*box.p0)
        assert len(set(legend(ax))) == len(legend(ax))


@each_plot
def test_users_own_style_is_survived(plot: str) -> None:
    with matplotlib.rc_context({"text.color": "white", "axes.facecolor": "black"}):
        ax = DRAW[plot](run(2, 2))
        assert ax.get_facecolor()[:3] == (0, 0, 0)
        lay_out(ax)


@pytest.mark.parametrize(
    "plot",
    ["exponent_histogram", "exponent_heatmap", "lost_by_scale", "scale_plot", "amax_by_step",
     "sqnr_by_scale", "sqnr_by_layer"],
)  # fmt: skip
def test_plots_say_that_a_loss_scale_was_taken_out(plot: str) -> None:
    trace = Trace()
    trace.scalar(0, "loss_scale", 2.0**10)
    trace.record("fc", "weight_gradient", numbers(1), 0)
    words = "without the loss scale"
    assert words in getattr(plots, plot)(trace).get_xlabel().replace("\n", " ")
    assert words not in getattr(plots, plot)(trace, unscaled=False).get_xlabel().replace("\n", " ")


def test_axes_that_were_logarithmic_are_drawn_on_as_new_ones() -> None:
    numbers = np.float32([0.5, 1.5, 3.0, 0.0])
    for draw in (plots.exponent_histogram, plots.lost_by_scale, plots.exponent_heatmap):
        ax = Figure().add_subplot()
        ax.set_xscale("log")
        ax.set_yscale("log")
        drawn, new = draw({"a": numbers}, ax=ax), draw({"a": numbers})
        assert drawn is ax
        assert (ax.get_xscale(), ax.get_yscale()) == (new.get_xscale(), new.get_yscale())
        assert ax.get_xlim() == new.get_xlim()


@pytest.mark.parametrize("ax", [3, "ax", Figure()], ids=["3", "text", "figure"])
def test_what_is_no_axes_is_refused(ax: Any) -> None:
    for draw in (plots.exponent_histogram, plots.amax_by_step, plots.sqnr_by_layer):
        with pytest.raises(InputError, match="give a matplotlib Axes"):
            draw(np.float32([1.0]), ax=ax)


def test_one_format_is_as_good_as_a_list_of_one() -> None:
    x = np.float32([0.5, 1.5])
    for measure in (compute.lost_by_scale, compute.sqnr_by_scale):
        assert measure(x, formats="fp16").labels == measure(x, formats=["fp16"]).labels
    assert len(compute.exponent_histogram(x, formats="fp16").bands) == 1
    with pytest.raises(InputError, match="formats 3: give one or a list"):
        compute.exponent_histogram(x, formats=3)  # type: ignore[arg-type]
