"""The command `fpemu`: a table of commands, each loaded when it is called.

Exit codes: 0 fine, 1 a check failed, 2 bad usage or input, 130 interrupted, 141 a closed pipe.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from fpemu import __version__
from fpemu.analysis.typed import HELP
from fpemu.errors import FpemuError

__all__ = ["main"]

#: Name -> where it lives, and its line in the help: `fpemu --help` imports none of them.
COMMANDS = {
    "demo": (
        "fpemu.analysis.demo.command:demo",
        "Train on real digits and see what a small format would lose.",
    ),
    "run": (
        "fpemu.analysis.run.command:run",
        "Run a PyTorch training script, watch its numbers and report.",
    ),
    "report": (
        "fpemu.analysis.report.commands:report",
        "Say whether a format is ready for the numbers of a recorded run.",
    ),
    "diff": (
        "fpemu.analysis.diff.command:diff",
        "Say what got better and what worse from one run to another.",
    ),
    "whatif": (
        "fpemu.analysis.report.commands:whatif",
        "Count what each format would lose of each tensor, at each scale.",
    ),
    "advise": (
        "fpemu.analysis.advice.command:advise",
        "Say which formats, scales and loss scale a recorded run needs, and why.",
    ),
    "replay": (
        "fpemu.analysis.lossscale.command:replay",
        "Say what loss scalers would have done on a recorded run.",
    ),
    "scan": (
        "fpemu.analysis.checkpoints.command:scan",
        "Count every tensor of a checkpoint: what would each format lose of it.",
    ),
    "convert": (
        "fpemu.analysis.conversion.command:convert",
        "Write a checkpoint rounded to a recipe or format, and say what is left.",
    ),
    "plot": (
        "fpemu.analysis.plots.command:plot",
        "Draw one plot of a recorded run as PNG, SVG or PDF, or list the plots.",
    ),
    "round": (
        "fpemu.analysis.number.command:round",
        "Show what one number becomes in a format, bit by bit.",
    ),
    "formats": (
        "fpemu.analysis.formats.command:formats",
        "List the number formats, or all facts of one.",
    ),
    "bench": (
        "fpemu.analysis.bench:bench",
        "Time fpemu on this machine, beside other libraries.",
    ),
}


class Commands(click.Group):
    """A group that loads its commands late and says every refusal in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; where nobody reads its output any more, end quietly, as SIGPIPE would."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout once more as it ends: into nothing
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(141)
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with a code of this module's table."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="replace")  # a terminal that lacks a sign shows '?'
        try:
            code = super().main(args, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            _refuse(_one_line(error), error.exit_code)
        except FpemuError as error:
            _refuse(str(error), 2)
        except (click.Abort, KeyboardInterrupt):
            _refuse("interrupted", 130)
        sys.exit(code if isinstance(code, int) else 0)


def _one_line(error: click.ClickException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    where = f" (see {context.command_path} --help)" if context else ""
    return f"{message}{where}"


def _refuse(message: str, code: int) -> NoReturn:
    click.echo(f"fpemu: {' '.join(message.split())}", err=True)
    sys.exit(code)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings=HELP,
)
@click.version_option(__version__, prog_name="fpemu")
@click.pass_context
def main(context: click.Context) -> None:
    """What FP16, BF16, FP8 and other small formats would do to your numbers, exactly."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


if __name__ == "__main__":
    main(prog_name="fpemu")
