"""The command `fpemu round`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import click

from fpemu.analysis.typed import HELP
from fpemu.cast import Negative, Overflow, Rounding, Subnormals, Zero

__all__ = ["round"]


def _rule(
    name: str, kind: type[enum.Enum], say: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    choices = click.Choice([member.value for member in kind])
    return click.option(f"--{name}", type=choices, help=say)


class _NumberCommand(click.Command):
    """A command whose argument may begin with a minus sign."""

    ignore_unknown_options = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for option in self.get_params(ctx) for name in option.opts}
        for word in args:
            if word.startswith("--") and word != "--" and word.partition("=")[0] not in known:
                raise click.NoSuchOption(word, ctx=ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_NumberCommand, context_settings=HELP)
@click.argument("number", metavar="VALUE")
@click.option("--to", required=True, metavar="CAST",
              help="A format, 'format:rules' or a preset: fp16, e4m3fn:toward_zero, cublas.tf32.")
@_rule("rounding", Rounding, "How a number between two values chooses.")
@_rule("overflow", Overflow, "What lies beyond the largest value becomes.")
@_rule("subnormals", Subnormals, "What lies below the smallest normal becomes.")
@_rule("negative", Negative, "What a negative becomes in an unsigned format.")
@_rule("zero", Zero, "What zero becomes in a format without it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")  # fmt: skip
def round(number: str, to: str, as_json: bool, **rules: str | None) -> None:
    """Show what one number becomes in a format, bit by bit.

    VALUE is taken exactly: 0.1 is one tenth; also 6e-8, 0x1.8p3, 1/3, inf, nan, and -1.5.
    """
    from fpemu.analysis.number import explain, read_number, text
    from fpemu.cast import make_cast

    found = explain(read_number(number), make_cast(to, **rules))
    if as_json:
        import json

        click.echo(json.dumps(text.to_json(found, number), indent=1, allow_nan=False))
    else:
        from rich.console import Console

        text.render(found, number, Console())
