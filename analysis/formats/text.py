"""Text: the table of formats, and one format's facts, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fpemu.analysis.formats.sheet import aliases, facts
from fpemu.format import Format, NaN

__all__ = ["render_one", "render_table"]

#: Title, value, and the width of the terminal from which the column is shown.
_COLUMNS: tuple[tuple[str, Callable[[Format], str], int], ...] = (
    ("bits", lambda f: str(f.bits), 0),
    ("e+m", lambda f: f"{f.exponent_bits}+{f.mantissa_bits}", 0),
    ("bias", lambda f: str(f.bias), 0),
    ("max", lambda f: _number(f.max, 4), 0),
    ("normal", lambda f: _number(f.smallest_normal, 4), 0),
    ("min", lambda f: _number(f.smallest_subnormal, 4), 0),
    ("eps", lambda f: _number(f.eps, 4), 90),
    ("has", lambda f: " ".join(["inf"] * f.inf + ["NaN"] * f.has_nan), 0),
)

_NAN_WORDS = {
    NaN.TOP_BINADE: "exponent all ones, fraction not zero",
    NaN.TOP_CODE: "all ones",
    NaN.MINUS_ZERO: "the code of -0",
    NaN.NONE: "none; NaN becomes the largest value",
}

_FEW = 32  #: values above zero that fit in a line or two


def render_table(forms: Iterable[Format], console: Console) -> None:
    """Print one line for each format, with as many columns as there is room for."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("format", style="bold", no_wrap=True)
    shown = [column for column in _COLUMNS if console.width >= column[2]]
    for title, _, _ in shown:
        table.add_column(title, justify="right", no_wrap=True)
    named = console.width >= 110
    if named:
        table.add_column("also", style="dim")
    for form in forms:
        cells = [Text(value(form)) for _, value, _ in shown]
        table.add_row(form.name, *cells, *([", ".join(aliases(form))] if named else []))
    console.print(table)
    console.print(Text(
        "e+m: exponent and mantissa bits. normal, min: the smallest normal value, and the smallest "
        "above zero. Also IEEE P3109's: binary{K}p{P}{s,u}{e,f} with K from 3 to 15. "
        "fpemu formats NAME says all of one.", "dim",
    ))  # fmt: skip


def render_one(form: Format, console: Console) -> None:
    """Print all facts of a format."""
    known = facts(form)
    also = ", ".join([*known["aliases"], *known["same_values_as"]])
    console.print(Text.assemble((form.name, "bold"), (f"  also {also}" if also else "", "dim")))
    console.print(_layout(form))
    console.print(Text(f"{_meaning(form)}\n", "dim"))
    console.print(_values(form, known))
    if form.max_code <= _FEW:
        codes = range(form.min_code, form.max_code + 1)
        listed = " ".join(_number(float(form.exact_magnitude(code))) for code in codes)
        console.print(Text.assemble(("\nall values above zero  ", "dim"), listed))
    if known["presets"]:
        console.print(Text.assemble(("\npresets  ", "dim"), ", ".join(known["presets"])))


def _layout(form: Format) -> Table:
    """The fields of a code."""
    widths = {
        "sign": int(form.signed),
        "exponent": form.exponent_bits,
        "fraction": form.mantissa_bits,
    }
    fields = {name: width for name, width in widths.items() if width}
    table = Table(box=box.SQUARE, padding=(0, 1))
    for name in fields:
        table.add_column(name, justify="center", no_wrap=True)
    table.add_row(*(f"{width} bit{'s' * (width > 1)}" for width in fields.values()))
    return table


def _meaning(form: Format) -> str:
    """The value of a normal code."""
    sign = "(-1)^sign x " if form.signed else ""
    significand = "1.fraction x " if form.mantissa_bits else ""
    return f"{sign}{significand}2^(exponent - {form.bias})"


def _values(form: Format, known: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value, code in _rows(form, known):
        table.add_row(Text(name, "dim"), Text(value), Text(code, "cyan"))
    return table


def _rows(form: Format, known: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    def hexadecimal(code: int | None) -> str:
        return "" if code is None else f"0x{code:0{-(-form.bits // 4)}x}"

    codes = known["codes"]
    yield "largest", _value(form.max), hexadecimal(codes["max"])
    yield "one", "1" if codes["one"] is not None else "none", hexadecimal(codes["one"])
    yield "smallest normal", _value(form.smallest_normal), hexadecimal(codes["smallest_normal"])
    if form.smallest_subnormal < form.smallest_normal:
        lowest = hexadecimal(codes["smallest_subnormal"])
        yield "smallest subnormal", _value(form.smallest_subnormal), lowest
    yield "eps", _value(form.eps), ""
    yield "precision", f"{form.precision} significant bit{'s' * (form.precision > 1)}", ""
    yield "exponents", f"{form.emin} to {form.emax}, bias {form.bias}", ""
    yield "infinity", "yes" if form.inf else "none", hexadecimal(codes["inf"])
    nans = [hexadecimal(code) for code in codes["nan"]]
    many = form.nan is NaN.TOP_BINADE and form.mantissa_bits > 1
    pairs = [f"{a} to {b}" for a, b in zip(nans[::2], nans[1::2], strict=False)] if many else nans
    yield "NaN", _NAN_WORDS[form.nan], ", ".join(pairs)
    zero = "+0 and -0" if form.minus_zero else "one, without a sign" if form.zero else "none"
    zeros = [hexadecimal(0), hexadecimal(1 << form.magnitude_bits)][: 1 + int(form.minus_zero)]
    yield "zero", zero, ", ".join(zeros) if form.zero else ""
    yield "finite values", f"{known['values']:,}", ""


def _value(x: float) -> str:
    """A value, and the power of two that it is or the one below it."""
    mantissa, exponent = math.frexp(x)
    exact = f"2^{exponent - 1}" if mantissa == 0.5 else f"{2 * mantissa:.10g} x 2^{exponent - 1}"
    return f"{_number(x)}  = {exact}"


def _number(x: float, digits: int = 6) -> str:
    return str(int(x)) if x == int(x) and abs(x) < 1e6 else f"{x:.{digits}g}"
