"""Plots: the numbers against plain recounts, then what was drawn, then the files."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import fpemu
from fpemu.analysis import plots
from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute.counts import divide
from fpemu.analysis.plots.names import plain, power, shorten, shorten_all
from fpemu.analysis.plots.style import MARKS, thin
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError
from fpemu.rounding import round_exact
from fpemu.tallies import exponent_of

HOSTILE = (  # eight, so that one histogram can tell them apart
    "$x_^{",
    r"\frac{1}{0}$$ %s {} #",
    "_hidden",
    "<script>alert(1)</script> & --> ]]>",
    "層.权重.🙂",
    "line\nbreak\ttab\x00\x1b[31m right\u202eleft half \ud800 pair",
    " ",
    "long." * 60,
)


def numbers(seed: int, size: int = 60, center: int = -14) -> np.ndarray:
    """Float32 data over many binades, with zeros, infinities and NaN among it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size) * np.exp2(rng.normal(center, 8, size))
    x[rng.random(size) < 0.2] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan])
    return x.astype(np.float32)


def layers(count: int, steps: int, size: int = 60) -> dict[str, dict[int, np.ndarray]]:
    return {
        f"layer{i}": {10 * s: numbers(1000 * i + s, size, -10 - i - s) for s in range(steps)}
        for i in range(count)
    }


def traced(run: dict[str, dict[int, np.ndarray]], kind: str = "weight_gradient") -> Trace:
    trace = Trace()
    for name, steps in run.items():
        for step, x in steps.items():
            trace.record(name, kind, x, step)
    return trace


def finite(x: np.ndarray) -> list[float]:
    return [v for v in x.tolist() if math.isfinite(v) and v != 0]


def binades(x: np.ndarray) -> Counter[int]:
    return Counter(math.frexp(v)[1] - 1 for v in finite(x))


def outcomes(x: np.ndarray, to: str, k: int = 0) -> Counter[str]:
    """What the exact definition makes of each finite non-zero value, times 2^k."""
    cast = fpemu.Cast.from_str(to)
    return Counter(round_exact(cast, Fraction(v) * Fraction(2) ** k).outcome for v in finite(x))


# --- the numbers ---------------------------------------------------------------------------------


def test_histogram_counts_every_value_once() -> None:
    data = {"a": numbers(1), "b": numbers(2, 200)}
    found = compute.exponent_histogram(data, formats=["fp16"])
    assert found.labels == ("a", "b")
    for row, x in enumerate(data.values()):
        counts = {k: n for k, n in zip(range(-149, 128), found.counts[row], strict=True) if n}
        assert counts == binades(x)
        assert found.zero[row] == sum(v == 0 for v in x.tolist())
        assert found.inf[row] == sum(math.isinf(v) for v in x.tolist())
        assert found.nan[row] == sum(math.isnan(v) for v in x.tolist())
        assert found.total[row] == x.size


def test_histogram_reaches_every_binade() -> None:
    x = np.ldexp(np.float32(1.0), np.arange(-149, 128)).astype(np.float32)
    assert compute.exponent_histogram(x).counts.tolist() == [[1] * 277]


@pytest.mark.parametrize(
    ("to", "low", "normal", "top"),
    [
        ("fp16", 2.0**-24, 2.0**-14, 65504.0),
        ("e4m3fn", 2.0**-9, 2.0**-6, 448.0),
        ("e5m2", 2.0**-16, 2.0**-14, 57344.0),
        ("fp16:subnormals=flush", 2.0**-14, 2.0**-14, 65504.0),
        ("e8m0", 2.0**-127, 2.0**-127, 2.0**127),
    ],
)
def test_bands_are_the_formats_limits(to: str, low: float, normal: float, top: float) -> None:
    band = compute.Band.of(to)
    assert (band.low, band.normal) == (math.log2(low), math.log2(normal))
    assert 2.0**band.high == pytest.approx(top)


def test_a_trace_counts_as_its_arrays_do() -> None:
    run = layers(3, 4)
    trace = traced(run)
    by_hand = {name: np.concatenate(list(steps.values())) for name, steps in run.items()}
    assert (
        compute.exponent_heatmap(trace).counts.tolist()
        == compute.exponent_heatmap(by_hand).counts.tolist()
    )
    whole = compute.exponent_histogram(trace)
    assert whole.labels == ("weight_gradient",)
    joined = compute.exponent_histogram(np.concatenate(list(by_hand.values())))
    assert whole.counts.tolist() == joined.counts.tolist()
    for source in (trace, list(trace.records())):
        lost = compute.lost_by_scale(source)
        assert lost.lost.tolist() == compute.lost_by_scale(by_hand).lost.tolist()
        assert lost.safe == compute.lost_by_scale(by_hand).safe


def test_selections_of_a_trace() -> None:
    run = layers(2, 2)
    trace = traced(run)
    trace.record("layer0", "weight", np.float32([4.0]), step=0)
    found = compute.exponent_heatmap(trace, name="layer0")
    assert found.labels == ("layer0 · weight_gradient", "layer0 · weight")
    assert compute.exponent_heatmap(trace, kind="weight").labels == ("layer0",)
    one = compute.exponent_histogram(trace, name="layer1", step=10)
    assert one.total.tolist() == [run["layer1"][10].size]
    for wrong in ({"kind": "gradients"}, {"name": "layer7"}):
        with pytest.raises(InputError, match=r"layer|gradient"):
            compute.exponent_heatmap(trace, **wrong)


def test_share_of_the_heatmap_is_of_the_nonzero_values() -> None:
    run = {"a": numbers(3), "zeros": np.zeros(5, np.float32)}
    share = compute.exponent_heatmap(run, to=None).share
    counts = binades(run["a"])
    assert share[0, 149 - 20] == counts[-20] / counts.total()
    assert np.isnan(share[1]).all()


@pytest.mark.parametrize("to", ["float16", "float8_e5m2", "float8_e4m3fn:toward_zero"])
@pytest.mark.parametrize("k", [0, 9, -7])
def test_underflow_is_the_exact_definitions(to: str, k: int) -> None:
    run = layers(3, 3)
    del run["layer1"][10]
    found = compute.underflow_heatmap(traced(run), to=to, scale=2.0**k)
    assert (found.labels, found.steps) == (("layer0", "layer1", "layer2"), (0, 10, 20))
    for row, name in enumerate(found.labels):
        for column, step in enumerate(found.steps):
            if step not in run[name]:
                assert (found.underflow[row, column], found.nonzero[row, column]) == (0, -1)
                assert np.isnan(found.share[row, column])
                continue
            want = outcomes(run[name][step], to, k)
            assert found.underflow[row, column] == want["underflow"]
            assert found.nonzero[row, column] == want.total()


def test_lost_is_the_exact_definitions() -> None:
    x = {"a": numbers(5), "b": numbers(6, center=3)}
    formats = ["float16", "float8_e4m3fn:overflow=saturate", "float8_e5m2"]
    found = compute.lost_by_scale(x, formats=formats, scales=[2.0**k for k in range(-12, 13, 3)])
    assert found.labels == tuple(formats)
    assert found.nonzero == sum(len(finite(v)) for v in x.values())
    names = ("underflow", "saturated", "overflow", "invalid")
    for row, to in enumerate(formats):
        want = [
            sum(outcomes(v, to, k)[name] for v in x.values() for name in names)
            for k in range(-12, 13, 3)
        ]
        assert found.lost[row].tolist() == want


def test_records_are_read_only() -> None:
    found = compute.exponent_histogram(numbers(1))
    with pytest.raises(ValueError, match="read-only"):
        found.counts[0, 0] = 1
    with pytest.raises(AttributeError):
        found.labels = ()  # type: ignore[misc]


@pytest.mark.parametrize("scale", [3.0, 0.0, -2.0, math.inf, math.nan])
def test_scales_are_powers_of_two(scale: float) -> None:
    for draw in (
        lambda: compute.exponent_heatmap(numbers(1), to="fp16", scale=scale),
        lambda: compute.underflow_heatmap(numbers(1), to="fp16", scale=scale),
        lambda: compute.lost_by_scale(numbers(1), scales=[scale]),
    ):
        with pytest.raises(InputError, match="power of two"):
            draw()
    assert [exponent_of(2.0**k) for k in (-30, 0, 7)] == [-30, 0, 7]


def test_refusals_say_what_to_give() -> None:
    for thing in (3, "text", ["text"], {"a": [1.0, 2.0]}, None):
        with pytest.raises(InputError, match="give a Trace or its records, a Tally, an array"):
            compute.exponent_histogram(thing)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tolerance"):
        compute.lost_by_scale(numbers(1), tolerance=-0.1)
    with pytest.raises(InputError, match="at least one power of two"):
        compute.lost_by_scale(numbers(1), scales=[])


# --- what is drawn -------------------------------------------------------------------------------


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def rows(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def legend(ax: Axes) -> list[str]:
    drawn = ax.get_legend()
    return [] if drawn is None else [text.get_text() for text in drawn.get_texts()]


def test_histogram_draws_its_shares() -> None:
    x = np.float32([0, 0, 1, 1.5, 0.25, np.nan, np.inf, -1])
    ax = plots.exponent_histogram({"x": x}, formats=["fp16", "e4m3fn", "e5m2"])
    data = ax.patches[0].get_data()  # type: ignore[attr-defined]
    drawn = {int(e): v for e, v in zip(data.edges[:-1], data.values, strict=True) if v}
    assert drawn == {0: 37.5, -2: 12.5}
    apart = [bar.get_height() for container in ax.containers for bar in container]
    assert apart == [25.0, 25.0]  # zeros; infinities and NaNs
    assert {"float16", "float8_e4m3fn", "float8_e5m2"} <= set(texts(ax))
    assert legend(ax) == ["x"]
    assert [t.get_text() for t in ax.get_xticklabels()][:1] == ["zero"]
    assert "% of all values" in ax.get_ylabel()


def test_histogram_bands_stand_at_the_formats_limits() -> None:
    ax = plots.exponent_histogram(np.float32([2.0**-30, 8.0]), formats=["fp16"])
    solid, hatched = [p for p in ax.patches if p.get_transform() != ax.transData][-2:]
    assert (solid.get_x(), hatched.get_x()) == (-14.0, -24.0)  # type: ignore[attr-defined]
    assert solid.get_x() + solid.get_width() == pytest.approx(math.log2(65504))  # type: ignore[attr-defined]
    assert hatched.get_hatch()
    assert not solid.get_hatch()


def test_histogram_tells_at_most_eight_tensors_apart() -> None:
    many = {f"t{i}": numbers(i) for i in range(len(MARKS) + 1)}
    with pytest.raises(InputError, match="use exponent_heatmap"):
        plots.exponent_histogram(many)
    del many["t0"]
    assert len(legend(plots.exponent_histogram(many))) == len(MARKS)
    for field in ("colour", "marker", "dash"):
        assert len({getattr(mark, field) for mark in MARKS}) == len(MARKS)


def test_exponent_heatmap_marks_the_formats_limits() -> None:
    ax = plots.exponent_heatmap(layers(3, 2), to="fp16", scale=2.0**4)
    at = [float(line.get_xdata()[0]) for line in ax.lines]  # type: ignore[index]
    assert at == [pytest.approx(math.log2(65504) - 4), -18.0, -28.0]
    assert legend(ax) == ["largest, 65504", "smallest normal, 2⁻¹⁴", "smallest, 2⁻²⁴"]
    assert rows(ax) == ["layer0", "layer1", "layer2"]
    assert plots.exponent_heatmap(layers(3, 2), to=None).get_legend() is None


def test_underflow_heatmap_shows_its_percentages() -> None:
    run = layers(3, 4)
    ax = plots.underflow_heatmap(run, to="e5m2")
    image = ax.images[0].get_array()
    share = compute.underflow_heatmap(run, to="e5m2").share
    assert image is not None
    np.testing.assert_array_equal(np.ma.filled(image, np.nan), 100 * share)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "10", "20", "30"]


def test_large_maps_keep_every_spike() -> None:
    counts = np.zeros((1500, 1000), np.int64)
    counts[777, 333] = counts[0, 0] = counts[1499, 999] = 50
    whole = np.full(counts.shape, 100)
    whole[3] = -1
    names = tuple(f"layer{i}" for i in range(1500))
    data = compute.UnderflowHeatmap(names, tuple(range(1000)), counts, whole, "float16", 1.0)
    ax = plots.underflow_heatmap(data)
    image = np.ma.filled(ax.images[0].get_array(), -1)  # type: ignore[arg-type]
    assert (image == 50).sum() == 3
    left, right, bottom, top = ax.images[0].get_extent()
    row, column = map(int, np.argwhere(image == 50)[1])
    tall, wide = (bottom - top) / image.shape[0], (right - left) / image.shape[1]
    assert row * tall <= 777 < (row + 1) * tall
    assert column * wide <= 333 < (column + 1) * wide
    assert ax.get_xlim() == (0, 1000)
    assert ax.get_ylim() == (1500, 0)


def test_lost_by_scale_marks_safe_and_best() -> None:
    x = (numbers(8, 500) / 2.0**10).clip(2.0**-40, 2.0**-16)
    data = compute.lost_by_scale(x, formats=["fp16", "e4m3fn"])
    ax = plots.lost_by_scale(data)
    curve, star = ax.lines[0], ax.lines[1]
    np.testing.assert_array_equal(curve.get_xdata(), range(-24, 40))
    np.testing.assert_array_equal(curve.get_ydata(), 100 * data.share[0])
    assert list(star.get_xdata()) == [exponent_of(data.safe[0].best)]
    [bar] = ax.containers[0]
    low, high = data.safe[0].low, data.safe[0].high
    assert low is not None
    assert high is not None
    assert (bar.get_x(), bar.get_x() + bar.get_width()) == (
        exponent_of(low) - 0.5,
        exponent_of(high) + 0.5,
    )
    assert legend(ax)[0] == f"float16: best {power(exponent_of(data.safe[0].best))}"
    assert len(ax.containers) == sum(safe.safe for safe in data.safe)


def lay_out(ax: Axes) -> None:
    """All of drawing but the pixels: layout, ticks, glyphs."""
    plots.figures.figure_of(ax).draw_without_rendering()


PLOTS: tuple[Callable[..., Axes], ...] = (
    plots.exponent_histogram,
    plots.exponent_heatmap,
    plots.underflow_heatmap,
    plots.lost_by_scale,
)

each_plot = pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)


@each_plot
def test_an_axes_given_is_drawn_on_and_returned(plot: Callable[..., Axes]) -> None:
    figure = Figure(figsize=(12, 6), layout="constrained")
    mine, other = figure.subplots(1, 2)
    ax = plot({"x": numbers(1)}, ax=mine, title="$mine_^")
    assert ax is mine
    assert ax.get_title(loc="left") == "$mine_^"
    assert not other.has_data()
    lay_out(ax)
    part = Figure((12, 6), layout="constrained").subfigures(1, 2)[0]
    lay_out(plot({"x": numbers(1)}, ax=part.subplots()))


@each_plot
@pytest.mark.parametrize(
    "source",
    [
        {},
        Trace(),
        [],
        {"x": np.empty(0, np.float32)},
        {"x": {}},
        fpemu.tally(np.empty(0, np.float32)),
    ],
    ids=["dict", "trace", "records", "array", "steps", "tally"],
)
def test_nothing_recorded_is_said(plot: Callable[..., Axes], source: Any) -> None:
    ax = plot(source)
    assert any("recorded" in text for text in texts(ax))
    assert ax.get_title(loc="left")
    lay_out(ax)


@each_plot
@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, 2.0**-149, 3.4e38])
def test_one_lone_value_is_drawn(plot: Callable[..., Axes], value: float) -> None:
    ax = plot({"x": np.float32([value])})
    if value == 0 or not math.isfinite(value):
        said = any("recorded" in text for text in texts(ax))
        assert said == (plot is not plots.exponent_histogram)
    lay_out(ax)


@each_plot
def test_hostile_names_are_drawn_as_they_are(plot: Callable[..., Axes]) -> None:
    ax = plot({name: {0: numbers(1), 1: numbers(2)} for name in HOSTILE}, title=HOSTILE[0])
    svg = plots.figure_svg(ax)
    ET.fromstring(svg)
    assert b"<script" not in svg
    if plot in (plots.exponent_heatmap, plots.underflow_heatmap):
        ax = plot({"$x_^{": numbers(1), "_hidden": numbers(2)})
        assert rows(ax) == ["$x_^{", "_hidden"]


def test_names_lose_what_they_share_first() -> None:
    names = [f"model.layers.{i}.attention.{part}" for i in range(3) for part in ("query", "key")]
    short, common = shorten_all(names, 20)
    assert short[0] == "…0.attention.query"
    assert common == "model.layers.…"
    names = [f"model.layers.{i}.{'deep.' * 8}weight" for i in range(12)]
    short, common = shorten_all(names)
    assert short == [f"…{i}…" for i in range(12)]
    assert common.startswith("model.layers.…")
    assert common.endswith(".weight")
    assert shorten_all(["a" * 300]) == ([shorten("a" * 300)], "")
    assert shorten_all([]) == ([], "")
    assert all(len(shorten(name)) <= 40 for name in HOSTILE)


def test_plain_text_has_a_glyph_for_everything() -> None:
    assert plain("layer.0/β²") == "layer.0/β²"
    assert plain("层\n\u202e\ud800") == r"\u5c42\n\u202e\ud800"


@pytest.mark.parametrize("count", [1, 2, 7, 50, 51, 500, 10**6])
@pytest.mark.parametrize("room", [0, 1, 2, 50])
def test_thin_stays_within_the_room(count: int, room: int) -> None:
    shown = thin(count, room)
    assert shown[0] == 0
    assert len(shown) <= max(room, 1)
    assert set(np.diff(shown)) <= {shown[1] - shown[0] if len(shown) > 1 else 0}


@pytest.mark.parametrize("count", [40, 500])
def test_labels_do_not_overlap(count: int) -> None:
    run = {f"model.decoder.layers.{i}.attention.output.weight": numbers(i) for i in range(count)}
    for ax in (plots.exponent_heatmap(run), plots.underflow_heatmap(run)):
        renderer = FigureCanvasAgg(ax.figure).get_renderer()
        ax.figure.draw(renderer)
        for labels in (ax.get_yticklabels(), ax.get_xticklabels()):
            boxes = [label.get_window_extent(renderer) for label in labels]
            assert len(boxes) >= 1
            assert not any(a.overlaps(b) for a, b in pairwise(boxes))
        drawn = ax.get_legend()
        if drawn is not None:
            box = drawn.get_window_extent(renderer)
            assert not box.overlaps(ax.xaxis.label.get_window_extent(renderer))
            assert ax.figure.bbox.contains(*box.p0)


def test_users_own_settings_are_survived() -> None:
    with matplotlib.rc_context({"text.usetex": False, "font.family": "monospace"}):
        ax = plots.lost_by_scale({"x": numbers(1)})
        assert plots.figure_svg(ax)
    assert divide(np.array([1]), np.array([0])).tolist() == [pytest.approx(math.nan, nan_ok=True)]


# --- files ---------------------------------------------------------------------------------------


def test_svg_stands_alone_in_a_page() -> None:
    one = plots.figure_svg(plots.underflow_heatmap(layers(3, 4)))
    two = plots.figure_svg(plots.exponent_histogram(numbers(1)), title='a "title" <b>')
    page = ET.fromstring(b"<div>" + one + two + b"</div>")
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert page[1].get("aria-label") == 'a "title" <b>'
    assert page[0].get("aria-label") == "Underflow in float16"
    for svg in (one, two):
        assert set(re.findall(rb'https?://[^"]*', svg)) <= {
            b"http://www.w3.org/2000/svg",
            b"http://www.w3.org/1999/xlink",
        }
        links = re.findall(rb'href="(.{5})', svg)
        assert all(link.startswith(b"#") or link == b"data:" for link in links)
        known = set(re.findall(rb' id="([^"]+)"', svg))
        assert set(re.findall(rb'(?:href="#|url\(#)([^")]+)', svg)) <= known


@pytest.mark.parametrize("render", [plots.figure_svg, plots.figure_png, plots.figure_pdf])
def test_the_same_plot_gives_the_same_bytes(render: Callable[[Axes], bytes]) -> None:
    first, second = (render(plots.underflow_heatmap({"x": numbers(1)})) for _ in range(2))
    assert first == second


def test_files_stay_small_even_for_noise() -> None:
    rng = np.random.default_rng(0)
    counts = (10 ** rng.uniform(0, 5, (500, 1000))).astype(np.int64)
    names = tuple(f"layer{i}" for i in range(500))
    whole = np.full(counts.shape, 10**5)
    data = compute.UnderflowHeatmap(names, tuple(range(1000)), counts, whole, "float16", 1.0)
    ax = plots.underflow_heatmap(data)
    assert len(plots.figure_svg(ax)) < 300_000
    assert len(plots.figure_png(ax)) < 300_000


def test_png_keeps_its_colours() -> None:
    ax = plots.exponent_histogram(numbers(1))
    figure: Any = ax.figure
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=110)
    want = np.asarray(Image.open(raw).convert("RGB")).astype(int)
    found = np.asarray(Image.open(io.BytesIO(plots.figure_png(ax))).convert("RGB"))
    assert np.abs(found - want).max() <= 16
    figure.patch.set_alpha(0.0)  # a transparent background stays so
    assert Image.open(io.BytesIO(plots.figure_png(ax))).mode == "RGBA"


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("b.SVG", b"<svg "), ("c.pdf", b"%PDF")]
)
def test_save_writes_by_suffix(tmp_path: Path, name: str, start: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    assert plots.save(plots.exponent_histogram(numbers(1)), str(path)) == path
    assert path.read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_save_refuses_in_one_line(tmp_path: Path) -> None:
    ax = plots.new_axes(1, 1)
    ax.set_axis_off()
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    for path, rule in (
        ("a.gif", "written as .png, .svg, .pdf"),
        ("noending", "written as"),
        ("missing/a.png", "cannot write"),
        ("folder.png", "cannot write"),
        ("file/a.png", "cannot write"),
        ("x" * 300 + ".png", "cannot write"),
        ("nul\0.png", "cannot write"),
    ):
        with pytest.raises(InputError, match=rule) as refused:
            plots.save(ax, tmp_path / path)
        assert "\n" not in str(refused.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.png"]
    with pytest.raises(InputError, match="Figure or Axes"):
        plots.save(3, tmp_path / "a.png")  # type: ignore[arg-type]


def test_threads_draw_the_same_pictures() -> None:
    runs = [layers(count, 2) for count in (2, 3)]

    def picture(run: Any) -> bytes:
        return plots.figure_png(plots.exponent_heatmap(run))

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(picture, 2 * runs))
    assert together == [picture(run) for run in runs] * 2


def test_pyplot_is_never_imported_and_matplotlib_only_to_draw() -> None:
    script = """
import sys, fpemu
from fpemu.analysis import plots
assert "matplotlib" not in sys.modules, "import"
record = plots.compute.exponent_histogram(fpemu.Tally())
assert "matplotlib" not in sys.modules, "compute"
plots.figure_svg(plots.exponent_histogram(record))
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
