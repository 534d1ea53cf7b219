"""Pages: the templates of a folder as Jinja reads them, and the filters that all pages have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpemu.analysis.report import numbers

if TYPE_CHECKING:
    import jinja2

__all__ = ["templates"]


def templates(
    folder: Path, *, lenient: bool = False, **filters: Callable[..., Any]
) -> jinja2.Environment:
    """Return a folder's templates; a name that is not given is an error unless lenient."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.ChainableUndefined if lenient else jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bar=numbers.bar_length,
        count=numbers.count,
        interval=numbers.interval,
        kind_words=numbers.kind_words,
        number=numbers.number,
        plain=numbers.plain,
        power=numbers.power,
        share=numbers.share,
        shorten=numbers.shorten,
        **filters,
    )
    return environment
