"""The command `fpemu plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click

from fpemu.analysis.report.options import names_of_casts
from fpemu.analysis.typed import HELP, read_scale
from fpemu.errors import InputError, did_you_mean

__all__ = ["DRAWINGS", "Drawing", "plot"]

_TENSORS = ("kind", "name", "step", "recorded")


class Drawing(NamedTuple):
    """A plot as the command knows it."""

    line: str  #: what it shows
    takes: str  #: "trace", "array" (a .npy file) or "" for a format alone
    options: tuple[str, ...]


DRAWINGS = {
    "exponent_histogram": Drawing(
        "How often each power of two occurs, with the formats' ranges.",
        "trace", ("formats", *_TENSORS),
    ),
    "exponent_heatmap": Drawing(
        "The same as a map, one row a tensor.", "trace", ("to", "scale", *_TENSORS)
    ),
    "underflow_heatmap": Drawing(
        "Tensor x step: what share becomes zero.", "trace", ("to", "scale", *_TENSORS)
    ),
    "scale_plot": Drawing(
        "How far each layer's numbers reach, forward and backward.",
        "trace", ("to", "scale", *_TENSORS),
    ),
    "amax_by_step": Drawing(
        "The largest magnitude by step, and a format's largest value.",
        "trace", ("to", "scale", *_TENSORS),
    ),
    "loss_scale_trajectory": Drawing(
        "The loss scale by step, recorded and replayed.", "trace", ("to", "scaler")
    ),
    "lost_by_scale": Drawing(
        "What each format loses at each scale.", "trace", ("formats", *_TENSORS)
    ),
    "sqnr_by_scale": Drawing(
        "Signal to quantization noise at each scale.", "trace", ("formats", *_TENSORS)
    ),
    "sqnr_by_layer": Drawing(
        "The same layer by layer, the worst first.", "trace", ("to", "scale", *_TENSORS)
    ),
    "update_ratio": Drawing(
        "How large updates are beside their weights.", "trace", ("name", "step")
    ),
    "error_distribution": Drawing(
        "How often each error of one cast or two occurs.", "array", ("formats", "measure")
    ),
    "qsnr_by_crest": Drawing(
        "Signal to noise of blocks, by their crest factor.", "array",
        ("recipes", "to", "block"),
    ),
    "staircase": Drawing("What each number becomes in a format.", "", ("to",)),
}  # fmt: skip


def _names_of_recipes(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Read an option that lists recipes; a text has spaces, and commas of its own."""
    parts = (text.split(",") if " " not in text.strip() else [text] for text in value)
    return tuple(name.strip() for names in parts for name in names if name.strip())


@click.command(context_settings=HELP)
@click.argument("plot_name", metavar="[NAME]", required=False)
@click.argument("source", metavar="[TRACE]", required=False, type=click.Path(path_type=str))
@click.option("--out", metavar="FILE", help="Where to: a name that ends in .png, .svg or .pdf.")
@click.option("--to", metavar="CAST", help="A format, with rules if any. Default: float16.")
@click.option("--formats", metavar="CASTS", multiple=True, callback=names_of_casts,
              help="Formats to compare: 'fp16,e4m3fn' (repeatable).")  # fmt: skip
@click.option("--scale", metavar="SCALE", help="Multiplies the values before the cast: 2^k.")
@click.option("--kind", help="Tensors of this kind only.")
@click.option("--name", help="Tensors of this name only.")
@click.option("--step", type=int, help="This step only.")
@click.option("--recorded", is_flag=True, default=None,
              help="Gradients with the loss scale that they were recorded times.")  # fmt: skip
@click.option("--scaler", multiple=True, help="A loss scaler to replay: torch (repeatable).")
@click.option("--measure", help="Of errors: ulp or relative.")
@click.option("--recipes", metavar="RECIPES", multiple=True, callback=_names_of_recipes,
              help="Recipes to compare: 'mxfp8,nvfp4' (repeatable).")  # fmt: skip
@click.option("--block", type=int, help="How many numbers share a scale.")
def plot(plot_name: str | None, source: str | None, out: str | None, **options: Any) -> None:
    """Draw the plot NAME of a recorded run; without NAME, list the plots.

    TRACE is a trace; of error_distribution and qsnr_by_crest an array in a .npy file; of staircase
    nothing.
    """
    if plot_name is None:
        _list()
        return
    drawing = _drawing(plot_name)
    given = {key: value for key, value in options.items() if value not in (None, ())}
    for key in given:
        if key not in drawing.options:
            takes = ", ".join(f"--{option}" for option in drawing.options)
            raise InputError(f"{plot_name} takes no --{key}; it takes {takes}")
    if out is None:
        raise InputError(f"{plot_name}: say where to write it, as in --out {plot_name}.png")
    if bool(source) != bool(drawing.takes):
        needs = {"trace": "a trace", "array": "an array in a .npy file", "": "no file"}
        raise InputError(f"{plot_name} is drawn from {needs[drawing.takes]}; see fpemu plot --help")
    from fpemu.analysis import plots

    ax = _draw(plot_name, _source(source, drawing.takes), given)
    click.echo(plots.save(ax, Path(out)))


def _list() -> None:
    width = max(map(len, DRAWINGS))
    for name, drawing in DRAWINGS.items():
        click.echo(f"{name:{width}}  {drawing.line}")


def _drawing(name: str) -> Drawing:
    if name not in DRAWINGS:
        hint = did_you_mean(name, DRAWINGS)
        raise InputError(f"unknown plot {name!r}; {hint}plots: {', '.join(DRAWINGS)}")
    return DRAWINGS[name]


def _source(path: str | None, takes: str) -> Any:
    if takes == "trace":
        from fpemu.analysis.trace import Trace

        return Trace.load(str(path))
    return _array(str(path)) if takes == "array" else None


def _array(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from None
    except (ValueError, EOFError):  # pickled objects too: they are never loaded
        raise InputError(f"{path!r}: is no array of plain numbers in a .npy file") from None


def _draw(name: str, source: Any, given: dict[str, Any]) -> Any:
    from fpemu.analysis import plots

    if "scale" in given:
        given["scale"] = read_scale(given["scale"])
    if given.pop("recorded", False):
        given["unscaled"] = False
    casts = given.pop("formats", ())
    if name == "error_distribution":
        if not 1 <= len(casts) <= 2:
            raise InputError("error_distribution: give one cast or two, as in --formats fp16,bf16")
        return plots.error_distribution(source, *casts, **given)
    if casts:
        given["formats"] = casts
    if name == "loss_scale_trajectory":
        return plots.loss_scale_trajectory(source, replays=_replays(source, **given))
    if name == "staircase":
        return plots.staircase(given.get("to", "float16"))
    return getattr(plots, name)(source, **given)


def _replays(trace: Any, scaler: tuple[str, ...] = (), to: str | None = None) -> list[Any]:
    from fpemu.analysis import lossscale

    return [lossscale.replay(trace, lossscale.scaler(name), to=to) for name in scaler]
