"""The numbers behind the plots, against plain recounts and exact definitions."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.analysis.parts import Parts
from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute.noise import measured as noise_of
from fpemu.analysis.plots.compute.noise import predicted
from fpemu.analysis.totals import Total
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import update_tally
from fpemu.errors import InputError
from fpemu.kernels.bucket import EDGES
from fpemu.rounding import round_exact
from fpemu.scaling import find_recipe

SCALES = {0: 2.0**16, 10: 2.0**13, 20: 2.0**13}  # a loss scale by step


def numbers(seed: int, size: int = 80, center: int = -18) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size) * np.exp2(rng.normal(center, 4, size))
    x[:3] = 0.0, -0.0, 2.0**-30
    return x.astype(np.float32)


def scaled_run(scales: dict[int, float] = SCALES) -> tuple[Trace, dict[str, dict[int, Any]]]:
    """A trace whose gradients were recorded times a loss scale, and what they truly are."""
    trace, true = Trace(), {}
    for step, scale in scales.items():
        trace.scalar(step, "loss_scale", scale)
        for layer in range(3):
            name = f"fc{layer}"
            gradient = numbers(100 * layer + step, center=-20 - 3 * layer)
            activation = numbers(7 * layer + step, center=0)
            true.setdefault(name, {})[step] = gradient
            trace.record(name, "activation_gradient", gradient * np.float32(scale), step)
            trace.record(name, "activation", activation, step)
    return trace, true


# --- gradients without their loss scale ----------------------------------------------------------


def test_plots_show_gradients_without_their_loss_scale() -> None:
    trace, true = scaled_run()
    chosen: dict[str, Any] = {"kind": "activation_gradient"}
    joined = {name: np.concatenate(list(steps.values())) for name, steps in true.items()}
    histogram = compute.exponent_histogram(trace, **chosen)
    whole = compute.exponent_histogram(np.concatenate(list(joined.values())))
    shift = histogram.binades.start - whole.binades.start
    assert shift == -16
    assert not histogram.counts[:, :16].any()
    assert histogram.counts[:, 16:].tolist() == whole.counts.tolist()
    assert (histogram.zero, histogram.unscaled, whole.unscaled) == (whole.zero, True, False)
    heat = compute.exponent_heatmap(trace, **chosen)
    assert heat.counts[:, 16:].tolist() == compute.exponent_heatmap(joined).counts.tolist()
    under = compute.underflow_heatmap(trace, to="fp16", scale=2.0, **chosen)
    want = compute.underflow_heatmap(true, to="fp16", scale=2.0)
    assert under.underflow.tolist() == want.underflow.tolist()
    assert under.nonzero.tolist() == want.nonzero.tolist()
    lost, plain = compute.lost_by_scale(trace, **chosen), compute.lost_by_scale(joined)
    assert lost.lost.tolist() == plain.lost.tolist()
    assert (lost.safe, lost.nonzero) == (plain.safe, plain.nonzero)


def test_gradients_can_be_shown_as_they_were_recorded() -> None:
    trace, true = scaled_run()
    recorded = {
        name: {step: x * np.float32(SCALES[step]) for step, x in steps.items()}
        for name, steps in true.items()
    }
    found = compute.underflow_heatmap(trace, to="fp16", kind="activation_gradient", unscaled=False)
    want = compute.underflow_heatmap(recorded, to="fp16")
    assert found.underflow.tolist() == want.underflow.tolist()
    amax = compute.amax_by_step(trace, kind="activation_gradient", unscaled=False)
    assert amax.amax.tolist() == compute.amax_by_step(recorded).amax.tolist()
    assert not amax.unscaled


def test_true_gradients_may_lie_below_float32() -> None:
    trace = Trace()
    for step, scale in enumerate((2.0**16, 2.0**10)):
        trace.scalar(step, "loss_scale", scale)
        trace.record("fc", "weight_gradient", np.float32([2.0**-140, 2.0**-130]), step)
    found = compute.exponent_histogram(trace)
    counts = {k: int(n) for k, n in zip(found.binades, found.counts[0], strict=True) if n}
    assert counts == {-156: 1, -146: 1, -150: 1, -140: 1}
    assert compute.scale_plot(trace).smallest.tolist() == [[2.0**-156]]


def test_totals_count_as_the_trace_does() -> None:
    trace, true = scaled_run()
    totals = [
        Total.of(record, 1.0 / (SCALES[record.step] if "gradient" in record.kind else 1.0))
        for record in trace.records()
    ]
    kind = {"kind": "activation_gradient"}
    for draw in (compute.exponent_heatmap, compute.exponent_histogram):
        assert draw(totals, **kind).counts.tolist() == draw(trace, **kind).counts.tolist()
    both = compute.scale_plot(totals), compute.scale_plot(trace)
    np.testing.assert_allclose(both[0].rms, both[1].rms, rtol=1e-12)
    assert both[0].amax.tolist() == both[1].amax.tolist()
    assert both[0].unscaled
    assert both[0].labels == tuple(true)


def test_other_loss_scales_than_powers_of_two() -> None:
    trace, _ = scaled_run({0: 1000.0})
    for exact in (compute.exponent_histogram, compute.lost_by_scale, compute.sqnr_by_scale):
        with pytest.raises(InputError, match=r"1000\.0.*powers of two"):
            exact(trace)
    gradients = {"kind": "activation_gradient"}
    raw = compute.amax_by_step(trace, unscaled=False, **gradients).amax
    np.testing.assert_allclose(compute.amax_by_step(trace, **gradients).amax * 1000.0, raw)
    found = compute.scale_plot(trace)
    np.testing.assert_allclose(
        found.rms[1] * 1000, compute.scale_plot(trace, unscaled=False).rms[1]
    )


# --- ranges and largest values -------------------------------------------------------------------


def test_scale_plot_is_the_range_of_all_steps() -> None:
    trace, true = scaled_run()
    found = compute.scale_plot(trace, to="e4m3fn")
    assert (found.labels, found.kinds) == (tuple(true), ("activation", "activation_gradient"))
    assert found.band == compute.Band.of("e4m3fn")
    for column, steps in enumerate(true.values()):
        x = np.concatenate(list(steps.values())).astype(np.float64)
        assert found.amax[1, column] == np.abs(x).max()
        assert found.smallest[1, column] == np.abs(x[x != 0]).min()
        assert found.rms[1, column] == pytest.approx(math.sqrt(np.mean(x * x)), rel=1e-12)
    one = compute.scale_plot(trace, kinds="activation", step=10)
    assert one.kinds == ("activation",)
    with pytest.raises(InputError, match="unknown kind"):
        compute.scale_plot(trace, kinds=["gradients"])


def test_scale_plot_falls_back_to_weights_and_leaves_gaps() -> None:
    trace = Trace()
    trace.record("a", "weight", np.float32([0.0, np.inf]), 0)
    trace.record("b", "weight_gradient", np.float32([0.25, np.nan]), 0)
    found = compute.scale_plot(trace)
    assert found.kinds == ("weight", "weight_gradient")
    np.testing.assert_array_equal(found.amax, [[np.nan, np.nan], [np.nan, 0.25]])
    with pytest.raises(InputError, match="counts alone"):
        compute.scale_plot({"x": fpemu.tally(np.float32([1]))})


def test_amax_by_step_is_the_largest_finite_magnitude() -> None:
    trace, true = scaled_run()
    trace.record("fc1", "activation_gradient", np.float32([np.inf]), 10)
    found = compute.amax_by_step(trace, to="e5m2", scale=4.0, kind="activation_gradient")
    want = [[float(np.abs(x).max()) for x in steps.values()] for steps in true.values()]
    assert found.amax.tolist() == want
    assert found.steps == tuple(SCALES)
    assert found.nonfinite.tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert found.limit == 57344.0 / 4
    assert found.unscaled
    room = math.log2(found.limit / max(want[0]))
    assert found.headroom.tolist()[:2] == [pytest.approx(room), -math.inf]


def test_amax_by_step_without_a_record_or_a_finite_value() -> None:
    run = {"a": {0: np.float32([np.nan])}, "b": {5: np.float32([0.0])}}
    found = compute.amax_by_step(run)
    np.testing.assert_array_equal(found.amax, [[np.nan, np.nan], [np.nan, 0.0]])
    assert found.headroom.tolist() == [-math.inf, math.inf]


# --- loss scales ---------------------------------------------------------------------------------


def replay(scales: list[float], *, skipped: tuple[int, ...] = (), name: str = "torch") -> Any:
    steps = tuple(
        SimpleNamespace(step=k, scale=scale, recorded_scale=2.0**k, skipped=k in skipped)
        for k, scale in enumerate(scales)
    )
    return SimpleNamespace(scaler=name, steps=steps, open_loop=name != "torch")


def test_trajectory_of_a_trace_and_its_replays() -> None:
    trace, _ = scaled_run()
    trace.event(10, "", "skip", "gradients not finite")
    trace.event(15, "", "skip", "between two recorded steps")
    trace.event(20, "fc1", "overflow", "no skip")
    found = compute.loss_scale_trajectory(trace, replays=[replay([4, 2, 2]), replay([8, 8, 8])])
    real, one, two = found.lines
    assert (real.label, real.recorded, real.steps) == ("recorded", True, (0, 10, 15, 20))
    assert real.scales == (2.0**16, 2.0**13, 2.0**13, 2.0**13)
    assert real.skipped == (False, True, True, False)
    assert (one.scales, two.scales, one.recorded) == ((4.0, 2.0, 2.0), (8.0, 8.0, 8.0), False)
    assert one.exponents.tolist() == [2.0, 1.0, 1.0]


def test_trajectory_of_replays_alone() -> None:
    found = compute.loss_scale_trajectory({"mine": replay([1, 0], skipped=(1,), name="static")})
    real, mine = found.lines
    assert real.scales == (1.0, 2.0)
    assert (mine.label, mine.skipped, mine.open_loop) == ("mine", (False, True), True)
    assert mine.exponents.tolist() == [0.0, -math.inf]
    alike = compute.loss_scale_trajectory([replay([1, 2], name=n) for n in ("jmp", "apex")])
    assert [line.label for line in alike.lines] == ["recorded", "jmp, apex"]
    assert compute.loss_scale_trajectory(Trace()).lines == ()
    for wrong in (3, "torch", [3]):
        with pytest.raises(InputError, match=r"lossscale\.replay returns"):
            compute.loss_scale_trajectory(wrong)


# --- noise ---------------------------------------------------------------------------------------


def exactly(cast: fpemu.Cast, x: Fraction) -> float:
    """What the exact scalar definition makes of a number."""
    code = np.uint32(round_exact(cast, x).code)
    return float(fpemu.decode(np.array([code]), cast.format, np.float64)[0])


def exact_noise(x: np.ndarray, to: str, scale: float) -> tuple[Fraction, Fraction]:
    """Sums of x^2 and of the squared error, by the exact scalar definition."""
    cast, s = fpemu.Cast.from_str(to), Fraction(scale)
    signal = noise = Fraction(0)
    for value in map(Fraction, x.tolist()):
        rounded = Fraction(exactly(cast, value * s)) / s
        signal, noise = signal + value**2, noise + (value - rounded) ** 2
    return signal, noise


@pytest.mark.parametrize(
    "to",
    [
        "float16:overflow=saturate",
        "float8_e4m3fn:overflow=saturate",
        "float8_e5m2:toward_zero",
        "float4_e2m1fn",
    ],
)
@pytest.mark.parametrize("scale", [1.0, 2.0**12, 2.0**-9])
def test_sqnr_of_arrays_is_exact(to: str, scale: float) -> None:
    x = numbers(3, center=-3)
    signal, noise = exact_noise(x, to, scale)
    want = 10 * math.log10(signal / noise)
    found = compute.sqnr_by_scale({"a": x[:30], "b": x[30:]}, formats=[to], scales=[scale])
    assert found.exact
    assert found.sqnr[0, 0] == pytest.approx(want, abs=1e-9)
    layer = compute.sqnr_by_layer(x, to=to, scale=scale)
    assert layer.sqnr.tolist() == [pytest.approx(want, abs=1e-9)]


def test_sqnr_at_overflow_without_error_and_of_nothing() -> None:
    run = {
        "over": np.float32([1, 70000]),
        "same": np.float32([0.5, 0.25, np.inf, np.nan]),
        "none": np.float32([0, np.nan]),
        "some": np.float32([1 + 2.0**-12]),
    }
    found = compute.sqnr_by_layer(run, to="fp16")
    assert found.labels == ("over", "some", "same")
    assert found.sqnr[0] == -math.inf
    assert found.sqnr[2] == math.inf
    given = compute.sqnr_by_layer({"b": 3.0, "c": math.nan, "a": -math.inf})
    assert (given.labels, given.sqnr.tolist()) == (("a", "b"), [-math.inf, 3.0])
    scales = [2.0**k for k in (-12, 0, 1, 2)]
    by_scale = compute.sqnr_by_scale(np.float32([40000.5]), formats=["fp16"], scales=scales)
    assert np.isneginf(by_scale.sqnr[0, 2:]).all()
    assert by_scale.best == (1.0,)


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "fp6_e3m2"])
@pytest.mark.parametrize("shape", ["normal", "laplace", "uniform"])
def test_predicted_sqnr_is_close_in_the_working_range(to: str, shape: str) -> None:
    rng = np.random.default_rng(1)
    x = getattr(rng, shape)(size=20_000).astype(np.float32) * np.float32(2.0**-9)
    to = "float6_e3m2fn" if to == "fp6_e3m2" else to
    scales = [2.0**k for k in range(0, 24, 2)]
    real = compute.sqnr_by_scale(x, formats=[to], scales=scales)
    guess = compute.sqnr_by_scale(fpemu.tally(x), formats=[to], scales=scales)
    assert (real.exact, guess.exact) == (True, False)
    np.testing.assert_array_equal(np.isneginf(real.sqnr), np.isneginf(guess.sqnr))
    kept = np.isfinite(real.sqnr) & (real.sqnr > 3)
    assert kept.any()
    assert np.abs(real.sqnr[kept] - guess.sqnr[kept]).max() < 0.3


def test_predicted_noise_of_saturation_is_within_the_facts() -> None:
    x = np.random.default_rng(2).normal(size=20_000).astype(np.float32)
    for to in ("float8_e4m3fn:overflow=saturate", "float6_e2m3fn"):
        scales = [2.0**k for k in range(-2, 14)]
        real = compute.sqnr_by_scale(x, formats=[to], scales=scales).sqnr
        guess = compute.sqnr_by_scale(fpemu.tally(x), formats=[to], scales=scales).sqnr
        assert np.abs(real - guess).max() < 4


@pytest.mark.parametrize(
    "to", ["float8_e5m2", "float8_e4m3fn:overflow=saturate", "float8_e5m2:subnormals=flush"]
)
def test_predicted_noise_is_the_mean_over_each_slot(to: str) -> None:
    """One number in a slot is predicted as the mean over many that fill that slot evenly."""
    cast = fpemu.Cast.from_str(to)
    ends = [*map(float, EDGES), 2.0]
    for exponent in (-20, -17, -16, -15, -14, -3, 7, 8):
        for low, high in pairwise(ends[:-2]):
            one = np.float32(np.ldexp((low + high) / 2, exponent))
            inside = np.ldexp(low + (high - low) * (np.arange(4000) + 0.5) / 4000, exponent)
            _, [found] = predicted(Parts.of(fpemu.tally(np.atleast_1d(one))), cast, [1.0])
            rounded = np.asarray(fpemu.round(inside, cast))
            assert found == pytest.approx(np.mean((rounded - inside) ** 2), rel=2e-3, abs=1e-30)


def test_predicted_noise_of_one_number_on_an_edge_is_exact() -> None:
    cast = fpemu.Cast.from_str("float8_e4m3fn")
    edges = np.float32([float(edge) for edge in EDGES[:-1]] + [2.0**-8 * 1.5, 2.0**-11])
    for one in edges:
        array = np.atleast_1d(one)
        for scale in (1.0, 2.0**-6):
            guess = predicted(Parts.of(fpemu.tally(array)), cast, [scale])
            real = noise_of(array, cast, [scale])
            assert guess[0] == real[0]
            assert guess[1].tolist() == real[1].tolist()


def test_predicted_sqnr_of_a_trace_knows_its_loss_scale() -> None:
    trace, true = scaled_run()
    found = compute.sqnr_by_layer(trace, to="fp16", scale=2.0**10, kind="activation_gradient")
    tallies = {name: fpemu.tally(np.concatenate(list(x.values()))) for name, x in true.items()}
    want = compute.sqnr_by_layer(tallies, to="fp16", scale=2.0**10)
    assert found.labels == want.labels
    np.testing.assert_allclose(found.sqnr, want.sqnr, rtol=1e-12)
    assert found.unscaled
    assert not found.exact


@pytest.mark.parametrize("to", ["float16:toward_zero", "float32", "float8_e8m0fnu:negative=abs"])
def test_what_cannot_be_predicted_is_refused(to: str) -> None:
    with pytest.raises(InputError, match="give arrays, where it is measured"):
        compute.sqnr_by_layer({"x": fpemu.tally(np.float32([1]))}, to=to)
    with pytest.raises(InputError, match="at least one power of two"):
        compute.sqnr_by_scale(numbers(1), scales=[])


# --- errors of casts -----------------------------------------------------------------------------


def test_errors_in_ulp_are_the_exact_definitions() -> None:
    x = np.append(numbers(5, 150, center=-8), np.float32([np.inf, np.nan, 1e6]))
    found = compute.error_distribution(x, "e5m2", "fp16:toward_zero")
    assert found.labels == ("float8_e5m2", "float16:toward_zero")
    finite = [Fraction(v) for v in x.tolist() if math.isfinite(v)]
    assert found.total == len(finite)
    for row, to in enumerate(found.labels):
        cast = fpemu.Cast.from_str(to)
        errors, other = [], 0
        for value in finite:
            result = exactly(cast, value)
            if not math.isfinite(result):
                other += 1
                continue
            gap = Fraction(float(fpemu.spacing(np.float64(value), cast.format)))
            errors.append((Fraction(result) - value) / gap)
        bins = Counter(math.floor(error * 32 + Fraction(1, 2)) + 33 for error in errors)
        inside = {k: n for k, n in bins.items() if 0 <= k < len(found.edges) - 1}
        assert {k: n for k, n in enumerate(found.counts[row]) if n} == inside
        assert found.below[row] + found.above[row] == len(errors) - sum(inside.values())
        assert found.exact[row] == errors.count(0)
        assert found.nonfinite[row] == other == (1 if to != "float16:toward_zero" else 0)


def test_errors_beyond_the_axis_are_counted() -> None:
    x = np.float32([0.0, 1e5, -1e5, 1.0, 2.0**-30])
    ulp = compute.error_distribution(x, "e4m3fn:overflow=saturate")
    assert (ulp.below.tolist(), ulp.above.tolist(), ulp.total) == ([1], [1], 5)
    relative = compute.error_distribution(x, "e4m3fn:overflow=saturate", measure="relative")
    assert (relative.total, relative.exact.tolist()) == (4, [1])
    assert relative.counts.sum() == 3  # twice nearly 1, and 1 where it became zero
    at = np.flatnonzero(relative.counts[0])
    assert all(relative.edges[k] <= 1.0 < relative.edges[k + 1] or k == at[0] for k in at)
    assert relative.below.tolist() == [0]
    with pytest.raises(InputError, match="did you mean 'relative'"):
        compute.error_distribution(x, "fp16", measure="relativ")
    with pytest.raises(InputError, match="arrays of floats"):
        compute.error_distribution([1, 2], "fp16")


def test_errors_in_the_ulp_of_another_format() -> None:
    x = np.float32([1 + 2.0**-8])
    found = compute.error_distribution(x, "bf16", format="fp16")
    [k] = np.flatnonzero(found.counts[0]) if found.counts.any() else [None]
    assert k is None or found.edges[k] <= -4 < found.edges[k + 1]
    assert found.below.tolist() == [1]  # -2^-8 is four gaps of float16 above 1


# --- updates -------------------------------------------------------------------------------------


def test_updates_are_counted_by_their_ratio() -> None:
    rng = np.random.default_rng(3)
    runs = []
    for step in range(2):
        weight = rng.normal(size=300).astype(np.float32)
        update = (weight * np.exp2(rng.normal(-9, 3, 300)) * rng.choice([0, 1], 300)).astype("f4")
        weight[:5], update[-1] = 0.0, np.nan
        runs.append((weight, update, step))
    trace = Trace()
    for weight, update, step in runs:
        trace.record("fc", "update", update, step)
        trace.count("fc", "update", step, update_tally(weight, update))
    found = compute.update_ratio(trace)
    pairs = [
        (float(w), float(d))
        for weight, update, _ in runs
        for w, d in zip(weight, update, strict=True)
    ]
    changed = [(w, d) for w, d in pairs if d != 0 and math.isfinite(d)]
    bins = Counter(math.frexp(Fraction(abs(d)) / Fraction(abs(w)))[1] - 1 for w, d in changed if w)
    assert dict(zip(found.binades, found.counts.tolist(), strict=True)) == {
        k: bins.get(k, 0) for k in found.binades
    }
    assert (found.changed, found.nonfinite) == (len(changed), 2)
    assert found.zero == sum(d == 0 for _, d in pairs)
    alone = compute.update_ratio(trace, step=1)
    assert alone.changed == compute.update_ratio({"fc": runs[1][:2]}).changed
    for row, form in enumerate(found.formats):
        rounded = [(np.float64(fpemu.round(w, form, overflow="saturate")), d) for w, d in changed]
        lost = sum(float(fpemu.round(w + d, form, overflow="saturate")) == w for w, d in rounded)
        assert found.lost[row] == pytest.approx(100 * lost / len(changed))
    with pytest.raises(InputError, match="give a Trace, an UpdateTally"):
        compute.update_ratio(3)  # type: ignore[arg-type]


# --- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "level"),
    [  # arXiv 2510.25602, figure 4b, and the same rules on Gaussian data by another script
        ("mxfp8.fit", 31.52),
        ("mxfp8", 30.65),
        ("mxfp6_e2m3.fit", 30.96),
        ("mxfp4.fit", 18.76),
        ("nvfp4", 20.44),
    ],
)
def test_published_levels_of_blocks(recipe: str, level: float) -> None:
    x = np.random.default_rng(4).normal(size=(4096, 64)).astype(np.float32)
    found = compute.qsnr_by_crest(x, recipe)
    assert found.overall[0] == pytest.approx(level, abs=0.12)
    assert found.labels == (recipe,)
    assert found.block == (16 if recipe == "nvfp4" else 32)


def test_blocks_are_measured_one_by_one() -> None:
    x = np.random.default_rng(5).normal(size=(40, 37)).astype(np.float32)
    x[0, :16], x[1, 3], x[2, 20] = 0.0, np.inf, np.nan
    found = compute.qsnr_by_crest({"a": x[:10], "b": x[10:]}, to="fp4", block=16)
    assert found.labels == ("fit", "floor", "amax")
    assert (found.zero, found.nonfinite) == (1, 2)
    by_bin: dict[int, list[float]] = {}
    signal = noise = 0.0
    for row in x.astype(np.float64):
        for block in (row[:16], row[16:32], row[32:]):
            if not np.isfinite(block).all() or not block.any():
                continue
            amax, square = max(abs(block)), float((block**2).sum())
            scale = 2.0 ** (math.floor(math.log2(amax)) - 2)
            q = [float(fpemu.round(v / scale, "fp4")) * scale for v in block]
            error = sum((v - r) ** 2 for v, r in zip(block, q, strict=True))
            crest = math.log2(amax / math.sqrt(square / block.size))
            by_bin.setdefault(math.floor(8 * crest), []).append(10 * math.log10(square / error))
            signal, noise = signal + square, noise + error
    assert found.overall[1] == pytest.approx(10 * math.log10(signal / noise))
    firsts = [round(8 * edge) for edge in found.edges[:-1]]
    for column, k in enumerate(firsts):
        levels = sorted(by_bin.get(k, []))
        assert found.blocks[column] == len(levels)
        if levels:
            middle = levels[math.ceil(len(levels) / 2) - 1]
            assert found.median[1, column] == pytest.approx(middle)
            assert levels[0] <= found.low[1, column] <= middle <= found.high[1, column]
        else:
            assert np.isnan(found.median[1, column])


@pytest.mark.parametrize("k", range(-3, 4))
def test_blocks_just_around_powers_of_two(k: int) -> None:
    """What fits is what the first power of two leaves that lets nothing saturate."""
    for amax in (
        448.0 * 2.0**k,
        np.nextafter(np.float32(448.0 * 2.0**k), np.float32(0)),
        np.nextafter(np.float32(448.0 * 2.0**k), np.float32(1e9)),
    ):
        x = np.float32([[amax, amax / 3]])
        scale = next(2.0**j for j in range(-9, 9) if 448 * 2.0**j >= float(amax))
        q = [float(fpemu.round(v / scale, "e4m3fn")) * scale for v in x[0].astype(np.float64)]
        noise = sum((float(v) - r) ** 2 for v, r in zip(x[0], q, strict=True))
        found = compute.qsnr_by_crest(x, to="e4m3fn", block=2)
        square = float((x.astype(np.float64) ** 2).sum())
        assert found.overall[0] == pytest.approx(10 * math.log10(square / noise))


def test_recipes_are_compared_on_the_same_blocks() -> None:
    x = np.random.default_rng(6).normal(size=(60, 70)).astype(np.float32)
    recipes = ["mxfp8", "nvfp4", "te.current", "1x7 exponent fp4"]
    found = compute.qsnr_by_crest(x, recipes)
    assert (found.labels, found.block, found.to) == (tuple(recipes), 32, "")
    assert found.blocks.sum() == 60 * 3
    for level, name in zip(found.overall, recipes, strict=True):
        left = find_recipe(name).round(x).astype(np.float64)
        noise = ((left - x) ** 2).sum()
        square = (x.astype(np.float64) ** 2).sum()
        assert level == pytest.approx(10 * math.log10(square / noise))
    tiles = compute.qsnr_by_crest(x, "te.block.weight")
    assert (tiles.block, tiles.to) == (32, "float8_e4m3fn")
    assert compute.qsnr_by_crest(x, "nvfp4", block=70).blocks.sum() == 60


def test_a_block_that_becomes_nan_is_not_skipped() -> None:
    """In torchao's tensor-wise float8 an infinity makes everything NaN: its scale is 0."""
    x = np.float32([[1.0, 2.0], [np.inf, 1.0]])
    found = compute.qsnr_by_crest(x, "torchao.float8.tensorwise", block=2)
    assert (found.nonfinite, found.blocks.sum(), found.overall) == (1, 1, (-math.inf,))


def test_blocks_of_nothing_and_refusals() -> None:
    nothing = compute.qsnr_by_crest(np.zeros((3, 0), np.float32))
    assert (nothing.blocks.size, nothing.zero) == (0, 0)
    same = compute.qsnr_by_crest(np.ones((2, 32), np.float32), "mxfp8.fit")
    assert (same.median.tolist(), same.edges[0]) == ([[math.inf]], 0.0)
    for wrong, match in (
        ({"block": 0}, "from 1 on"),
        ({"recipes": ["mxfp9"]}, "did you mean 'mxfp8'"),
        ({"recipes": "mxfp8", "to": "fp4"}, "they say their elements"),
    ):
        with pytest.raises(InputError, match=match):
            compute.qsnr_by_crest(np.ones(4, np.float32), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="arrays of floats"):
        compute.qsnr_by_crest(np.arange(4))


# --- staircases ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "to",
    ["float8_e4m3fn", "float4_e2m1fn", "float8_e5m2:toward_zero", "float8_e4m3fn:up",
     "float8_e5m2:subnormals=flush", "float16", "bfloat16", "float6_e3m2fn", "float8_e8m0fnu"],
)  # fmt: skip
def test_a_staircase_misses_no_step(to: str) -> None:
    cast = fpemu.Cast.from_str(to)
    found = compute.staircase(to)
    assert (found.x[0], found.x[-1]) == (found.low, found.high)
    for x, rounded in zip(found.x.tolist(), found.rounded.tolist(), strict=True):
        want = exactly(cast, Fraction(x))
        assert rounded == want or (math.isnan(rounded) and math.isnan(want))
    rng = np.random.default_rng(6)
    between = rng.uniform(found.low, found.high, 2000)
    after = np.searchsorted(found.x, between)
    before, behind = found.rounded[after - 1], found.rounded[after]
    assert (before == behind).all(), "a step lies between two corners"
    np.testing.assert_array_equal(np.asarray(fpemu.round(between, cast)), before)


def test_a_staircase_of_negative_numbers_and_beyond_the_largest() -> None:
    found = compute.staircase("fp4", low=-8, high=8)
    assert sorted(set(np.abs(found.rounded).tolist())) == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert found.rounded[0] == -6
    wide = compute.staircase("e5m2", low=50000, high=70000)
    assert set(wide.rounded.tolist()) == {49152.0, 57344.0, math.inf}


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"to": "fp16", "low": 0, "high": 1}, "narrower range"),
        ({"to": "fp16", "low": 1, "high": 1}, "low < high"),
        ({"to": "fp16", "high": math.inf}, "finite"),
        ({"to": "fp16:stochastic"}, "no staircase"),
    ],
)
def test_staircases_that_cannot_be(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        compute.staircase(**wrong)


@pytest.mark.parametrize("step", ["x", 2.5, None])
def test_steps_of_a_mapping_are_integers(step: Any) -> None:
    with pytest.raises(InputError, match="must be an integer, the step of the run"):
        compute.underflow_heatmap({"a": {step: np.float32([1.0])}}, to="fp16")
    steps = compute.underflow_heatmap({"a": {np.int16(7): np.float32([1.0])}}, to="fp16").steps
    assert steps == (7,)


@pytest.mark.parametrize("amax", [1e300, 1e-300])
def test_squares_beyond_float64_are_refused(amax: float) -> None:
    x = np.array([amax, amax / 2])
    for measure in (compute.sqnr_by_scale, compute.sqnr_by_layer, compute.qsnr_by_crest):
        with pytest.raises(InputError, match="its square is beyond float64"):
            measure(x)


def test_sqnr_of_what_is_no_array_of_real_numbers() -> None:
    for measure in (compute.sqnr_by_scale, compute.sqnr_by_layer):
        with pytest.raises(InputError, match="complex"):
            measure(np.array([1j]))


def test_a_block_longer_than_every_row_takes_no_memory() -> None:
    x = np.float32(np.random.default_rng(0).normal(size=(4, 48)))
    whole, beyond = (compute.qsnr_by_crest(x, block=block) for block in (48, 10**15))
    assert (beyond.overall, beyond.blocks.tolist()) == (whole.overall, whole.blocks.tolist())
    assert beyond.block == 10**15
