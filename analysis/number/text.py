"""Text: an explained number for a terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fpemu.analysis.number.explain import Explained, Neighbour
from fpemu.format import Format
from fpemu.rounding import Real, value_of

__all__ = ["bit_fields", "render", "to_json"]


def bit_fields(form: Format, code: int) -> dict[str, str]:
    """Return a code's bits by field, of those fields that the format has.

    >>> import fpemu
    >>> bit_fields(fpemu.finfo("e4m3fn"), 0xBC)
    {'sign': '1', 'exponent': '0111', 'fraction': '100'}
    """
    widths = {
        "sign": int(form.signed),
        "exponent": form.exponent_bits,
        "fraction": form.mantissa_bits,
    }
    bits, fields = f"{code:0{form.bits}b}", {}
    for name, width in widths.items():
        if width:
            fields[name], bits = bits[:width], bits[width:]
    return fields


def render(found: Explained, typed: str, console: Console) -> None:
    """Print the number, its code in boxes, the error, the neighbours and the other roundings."""
    form = found.cast.format
    console.print(Text.assemble(
        (typed, "bold"), " rounded to ", (str(found.cast), "bold"), " is ",
        (_number(found.value), "bold green" if found.error is not None else "bold red"),
        _hexadecimal(found.value), ", ", _outcome(found),
    ))  # fmt: skip
    console.print(_boxes(form, found.result.code))
    if found.error is not None:
        console.print(_error(found))
    if found.ulp is not None:
        console.print(_neighbours(found))
    console.print(_roundings(found))


def _outcome(found: Explained) -> str:
    word = _WORDS.get(found.result.outcome, found.result.outcome)
    return f"{word}, exactly" if found.error == 0 and found.exact else word


#: The outcomes whose names do not say enough.
_WORDS = {
    "nan": "of a NaN",
    "inf": "of an infinity",
    "invalid": "of a sign that the format lacks",
    "saturated": "saturated at the largest value",
    "underflow": "underflow: it was not zero",
}


def _boxes(form: Format, code: int) -> Table:
    fields = bit_fields(form, code)
    table = Table(box=box.SQUARE, padding=(0, 1), show_footer=True)
    for name, footer in zip(fields, _meaning(form, code), strict=True):
        table.add_column(name, footer, justify="center", style="bold cyan", footer_style="dim",
                         no_wrap=True)  # fmt: skip
    table.add_row(*(" ".join(bits) for bits in fields.values()))
    table.caption = Text(f"code {_code(form, code)}")
    table.caption_justify = "left"
    return table


def _meaning(form: Format, code: int) -> Iterator[str]:
    """What each field of a code says."""
    magnitude = code & ((1 << form.magnitude_bits) - 1)
    value = value_of(form, code)
    if form.signed:
        yield "-" if value.sign and not value.is_nan else "+"
    field, fraction = divmod(magnitude, 1 << form.mantissa_bits)
    if value.denominator == 0:
        yield "NaN" if value.is_nan else "infinity"
        if form.mantissa_bits:
            yield ""
        return
    lead = 0 if field == 0 and form.zero else 1
    yield f"2^{max(field, int(form.zero)) - form.bias}"
    if form.mantissa_bits:
        yield f"{lead} + {fraction}/{1 << form.mantissa_bits}"


def _error(found: Explained) -> Table:
    table = _grid()
    if not found.error or found.ulp_error is None or found.ulp is None:
        table.add_row(Text("error", "dim"), "none")
        return table
    relative = found.relative_error
    said = "" if relative is None else f", {_short(relative)} of the number"
    table.add_row(Text("error", "dim"), Text(f"{_short(found.error)}{said}"))
    table.add_row("", Text(f"{_short(found.ulp_error)} ulp (1 ulp is {_short(found.ulp)})"))
    return table


def _neighbours(found: Explained) -> Table:
    table = _grid()
    for name, side in (("below", found.below), ("above", found.above)):
        if side is None:
            end = "above" if found.result.outcome == "overflow" else ""
            value = value_of(found.cast.format, found.result.code)
            if end == name or (end and name == "below" and value.sign):
                table.add_row(
                    Text(name, "dim"), Text(_number(value), "bold"),
                    Text(_code(found.cast.format, found.result.code)),
                    Text("beyond the largest value"), Text("taken", "green"),
                )  # fmt: skip
                continue
            table.add_row(Text(name, "dim"), Text("none", "dim"))
            continue
        taken = side.code == found.result.code
        table.add_row(
            Text(name, "dim"),
            Text(_number(side.value), "bold" if taken else ""),
            Text(_code(found.cast.format, side.code)),
            Text(f"{_short(side.distance)} away"),
            Text("taken" if taken else "", "green"),
        )
    return table


def _roundings(found: Explained) -> Table:
    """Each result with the roundings that give it."""
    table = _grid()
    groups: dict[tuple[int, str], list[str]] = {}
    for mode, result in found.others.items():
        groups.setdefault((result.code, result.outcome), []).append(mode.value)
    for (code, outcome), modes in groups.items():
        value = _number(value_of(found.cast.format, code))
        first = "" if table.row_count else "roundings"
        table.add_row(Text(first, "dim"), Text(value), Text(outcome, "dim"), Text(", ".join(modes)))
    chance = found.up_chance
    if chance is not None:
        chances = f"{_short(100 * chance)} % above, {_short(100 - 100 * chance)} % below"
        table.add_row("", "", "", Text(f"stochastic: {chances}"))
    return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=9)
    return table


def _number(x: Real) -> str:
    if x.denominator == 0:
        sign = "-" if x.sign else ""
        return "NaN" if x.is_nan else f"{sign}infinity"
    return repr(float(x)).removesuffix(".0")


def _hexadecimal(x: Real) -> str:
    """The value with nothing left out, where it is not a short whole number."""
    return f" ({_hex(float(x))})" if x.denominator > 1 else ""


def _hex(x: float) -> str:
    """float.hex without the zeros that say nothing."""
    mantissa, _, power = x.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{int(power)}"


def _short(x: Fraction) -> str:
    """Six significant digits; a fraction may lie beyond every float."""
    if 2.0**-1000 < abs(x) < 2.0**1000 or not x:
        return f"{float(x):.6g}"
    return f"{Decimal(x.numerator) / x.denominator:.5e}"


def _code(form: Format, code: int) -> str:
    return f"0x{code:0{-(-form.bits // 4)}x}"


def to_json(found: Explained, typed: str) -> dict[str, Any]:
    """Return everything as a JSON-ready dict; what is not finite is "inf", "-inf" or "nan"."""
    form = found.cast.format
    return {
        "schema": 1,
        "number": typed,
        "exact_number": _ratio(found.number),
        "to": str(found.cast),
        "value": _json(found.value),
        "code": found.result.code,
        "hex": _code(form, found.result.code),
        "bits": bit_fields(form, found.result.code),
        "outcome": found.result.outcome,
        "exact": found.exact,
        "error": {
            "absolute": _float(found.error),
            "relative": _float(found.relative_error),
            "ulp": _float(found.ulp_error),
        },
        "below": _side(form, found.below),
        "above": _side(form, found.above),
        "roundings": {
            mode.value: {
                "value": _json(value_of(form, result.code)),
                "code": result.code,
                "outcome": result.outcome,
            }
            for mode, result in found.others.items()
        },
        "stochastic_up_chance": _float(found.up_chance),
    }


def _side(form: Format, side: Neighbour | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "value": _json(side.value),
        "code": side.code,
        "hex": _code(form, side.code),
        "distance": _float(side.distance),
    }


def _ratio(x: Real) -> str:
    if x.denominator == 0:
        return str(float(x))
    sign = "-" if x.sign else ""
    return f"{sign}{x.numerator}/{x.denominator}"


def _json(x: Real) -> float | str:
    value = float(x)
    return value if math.isfinite(value) else str(value)


def _float(x: Fraction | None) -> float | str | None:
    """A number, or text where it lies beyond float64."""
    try:
        return None if x is None else float(x)
    except OverflowError:
        return _short(x) if x is not None else None
