"""The command `fpemu bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fpemu.analysis.typed import HELP
from fpemu.catalog import find_format
from fpemu.errors import FpemuError, InputError

if TYPE_CHECKING:
    from fpemu.analysis.bench.setup import Setup

__all__ = ["bench"]

_QUICK_SIZE, _SIZE = "2**20", "2**24"
_QUICK_REPEATS, _REPEATS = 5, 15


@click.command(context_settings=HELP)
@click.option("--to", multiple=True, metavar="FORMAT",
              help="A format to measure; give it again for more. [float16, bfloat16, tf32, "
              "e4m3fn, e5m2]")
@click.option("--size", metavar="N", help=f"Elements: 2**24, 16M or a whole number. [{_SIZE}]")
@click.option("--repeats", type=int, help=f"Pairs measured at most. [{_REPEATS}]")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads at most.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the data.")
@click.option("--modes", is_flag=True, help="Also the other rounding modes.")
@click.option("--float64", is_flag=True, help="Also float64 input.")
@click.option("--scaled", is_flag=True, help="Also scaled formats: MXFP8, MXFP4, NVFP4.")
@click.option("--no-peers", is_flag=True, help="fpemu alone, without other libraries.")
@click.option("--cpu-time", is_flag=True,
              help="Time on the processor, not on the wall: steadier where others work too.")
@click.option("--import", "startup", is_flag=True,
              help="Only: what `import fpemu` and `fpemu --help` take.")
@click.option("--quick", is_flag=True,
              help=f"{_QUICK_SIZE} elements, {_QUICK_REPEATS} pairs (caches flatter such sizes).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")  # fmt: skip
def bench(startup: bool, as_json: bool, **options: Any) -> None:
    """Time fpemu on this machine, as ratios to np.copyto, beside other libraries.

    Each figure is a median over pairs: a copy of the arrays, then the work, in turn. Nothing is
    compared with a limit.
    """
    try:
        if startup:
            _startup(_repeats(options), options["cpu_time"], as_json)
        else:
            _bench(_setup(options), as_json)
    except FpemuError as error:
        raise _Refused(str(error)) from None


class _Refused(click.ClickException):
    """Bad input: one line, and the exit code of bad usage."""

    exit_code = 2


def _setup(options: dict[str, Any]) -> Setup:
    from fpemu.analysis.bench.setup import FORMATS, Setup
    from fpemu.analysis.bench.sizes import parse_size
    from fpemu.kernels.pool import thread_count

    if options["cpu_time"] and options["threads"] != 1:
        raise InputError("--cpu-time counts the calling thread alone: leave --threads at 1")
    if options["seed"] < 0:
        raise InputError(f"--seed {options['seed']}: must be 0 or more")
    size = parse_size(options["size"] or (_QUICK_SIZE if options["quick"] else _SIZE))
    if options["scaled"] and size % 1024:
        raise InputError(f"--size {size}: scaled formats take whole rows of 1024; give a multiple")
    return Setup(
        to=tuple(dict.fromkeys(find_format(name).name for name in options["to"] or FORMATS)),
        size=size,
        repeats=_repeats(options),
        threads=thread_count(options["threads"]),
        seed=options["seed"],
        modes=options["modes"],
        float64=options["float64"],
        scaled=options["scaled"],
        peers=not options["no_peers"],
        cpu_time=options["cpu_time"],
    )


def _repeats(options: dict[str, Any]) -> int:
    repeats = options["repeats"]
    if repeats is None:
        return _QUICK_REPEATS if options["quick"] else _REPEATS
    if not 1 <= repeats <= 1000:
        raise InputError(f"--repeats {repeats}: must be 1 to 1000")
    return int(repeats)


def _bench(setup: Setup, as_json: bool) -> None:
    from fpemu.analysis.bench.result import run

    with _bar() as progress:
        result = run(setup, progress=progress)
    if as_json:
        _print_json(result.to_json())
    else:
        from rich.console import Console

        from fpemu.analysis.bench.tables import render

        render(result, Console())


def _startup(repeats: int, cpu_time: bool, as_json: bool) -> None:
    from fpemu.analysis.bench.imports import startup
    from fpemu.analysis.bench.machine import machine_facts
    from fpemu.analysis.bench.result import SCHEMA

    facts = machine_facts()
    found = startup(repeats, cpu_time=cpu_time)
    if as_json:
        rows = [row.to_json() for row in found]
        _print_json({"schema": SCHEMA, "machine": facts, "startup": rows})
    else:
        from rich.console import Console

        from fpemu.analysis.bench.tables import render_startup

        render_startup(found, facts, Console())


def _print_json(facts: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(facts, indent=1))


@contextmanager
def _bar() -> Iterator[Callable[[int, int, str], None] | None]:
    """Yield a progress callback that draws on a terminal, or None where stderr is none."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("bench")
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )
