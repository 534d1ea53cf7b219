"""The command `fpemu formats`."""

from __future__ import annotations

import click

from fpemu.analysis.typed import HELP

__all__ = ["formats"]


@click.command(context_settings=HELP)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def formats(name: str | None, as_json: bool) -> None:
    """List the number formats, or all facts of NAME.

    NAME is a format's name or alias, or one of IEEE P3109's such as binary8p4se.
    """
    from fpemu.analysis.formats.sheet import facts
    from fpemu.catalog import FORMATS, find_format

    if as_json:
        import json

        known = facts(find_format(name)) if name else [facts(form) for form in FORMATS.values()]
        click.echo(json.dumps(known, indent=1, allow_nan=False))
        return
    from rich.console import Console

    from fpemu.analysis.formats import text

    if name:
        text.render_one(find_format(name), Console())
    else:
        text.render_table(FORMATS.values(), Console())
