"""Flow: which tensors a layer's products read, as far as a trace tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.metadata import READ_BY_PRODUCTS
from fpemu.analysis.tensor_names import is_input

if TYPE_CHECKING:
    from fpemu.analysis.advice.layers import Layer
    from fpemu.analysis.parts import Parts
    from fpemu.analysis.totals import Total
    from fpemu.analysis.trace import Trace

__all__ = ["Read", "inputs_of", "joined"]


@dataclass(frozen=True)
class Read:
    """What the products of a layer read."""

    parts: Parts | None  #: all that is known of it; None: nothing
    whole: bool  #: whether that is all


def inputs_of(
    trace: Trace, layers: Iterable[Layer], totals: Mapping[tuple[str, str], Total]
) -> dict[str, Read]:
    """Return by layer what its products read; a trace that does not tell has their results instead.

    A watch of matrix products records their inputs themselves; any other one notes their names.
    """
    noted = trace.metadata.get(READ_BY_PRODUCTS)
    noted = noted if isinstance(noted, Mapping) else {}
    return {layer.name: _read(layer, noted, totals) for layer in layers}


def _read(layer: Layer, noted: Mapping[str, Any], totals: Mapping[tuple[str, str], Total]) -> Read:
    results = [t for t in layer.tensors if t.kind == "activation"]
    given = [t for t in results if is_input(t.name)]
    if given:
        return Read(joined(given), True)
    named = [noted[name] for name in dict.fromkeys(t.name for t in layer.tensors) if name in noted]
    if not named:
        return Read(joined(results), True)
    names = [name for one in named if isinstance(one, list | tuple) for name in one]
    keys = [(str(name), "activation") for name in dict.fromkeys(names)]
    known = [totals[key] for key in keys if key in totals]
    return Read(joined(known), bool(known) and len(known) == len(keys))


def joined(totals: Sequence[Total]) -> Parts | None:
    """Return the values of several tensors together; None of none."""
    return sum((t.parts for t in totals[1:]), totals[0].parts) if totals else None
