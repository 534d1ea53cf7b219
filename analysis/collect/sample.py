"""Sample: what one recorded step has shown so far, kept apart until the step is over.

A step whose tensors cannot be counted leaves nothing behind: its records go into the trace in
one piece, at its end.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fpemu.analysis.collect.arrays import array_of, check_tensor, measure
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.places import Place
from fpemu.analysis.counted import key_of
from fpemu.analysis.first_cause import Glimpse
from fpemu.analysis.records import Record
from fpemu.analysis.totals import add_to
from fpemu.blocks import block_tally
from fpemu.errors import InputError
from fpemu.moments import Moments
from fpemu.scaling.tally import recipe_tally
from fpemu.tallies import Tally

if TYPE_CHECKING:
    import numpy as np

    from fpemu.analysis.collect.causes import Causes, Origin
    from fpemu.analysis.collect.settings import Settings
    from fpemu.analysis.trace import Trace
    from fpemu.scaling.recipe import Recipe

__all__ = ["Entry", "Numbers", "Sample", "Site"]


_CONSUMERS = 8  # of a tensor that are remembered: a weight may have one for each micro-batch


class Numbers(NamedTuple):
    """A tensor's counts."""

    tally: Tally
    moments: Moments


@dataclass(slots=True, eq=False)
class Site:
    """Where a tensor comes from: an operation in a module, or a parameter."""

    name: str
    operation: str
    module: str
    place: Place | None
    value: Glimpse | None = None  #: what was seen of the tensor
    gradient: Glimpse | None = None  #: and of its gradient
    masked: bool = False  #: holds infinities that the script itself put there
    tensor: int = 0  #: the id of the tensor itself, which views share the site with
    hooked: bool = False  #: its gradient is watched
    inputs: tuple[weakref.ref[torch.Tensor], ...] = ()
    consumers: deque[Site] = field(default_factory=lambda: deque(maxlen=_CONSUMERS))


class Entry(NamedTuple):
    """A tensor that was met in this step, as it was then; it is not kept alive."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    site: Site


class Sample:
    """The tensors of one step in the order in which they were met."""

    def __init__(self, step: int, settings: Settings, causes: Causes) -> None:
        self.step, self.settings, self._causes = step, settings, causes
        self._records: dict[tuple[str, str], Record] = {}
        self._counted: dict[tuple[str, str, str], Any] = {}
        self._inputs: dict[str, dict[str, None]] = {}
        self._entries: dict[int, Entry] = {}
        self.unsupported: dict[str, str] = {}  #: name -> why it was left out
        self.spoilt = False

    # --- which tensor is which ---------------------------------------------------------------

    def entry(self, tensor: torch.Tensor) -> Entry | None:
        """Return what is known of a tensor, which may have been changed in place since."""
        entry = self._entries.get(id(tensor))
        return entry if entry is not None and entry.tensor() is tensor else None

    def current(self, tensor: torch.Tensor) -> Entry | None:
        """Return what is known of a tensor that has not been changed since."""
        entry = self.entry(tensor)
        return entry if entry is not None and entry.version == version(tensor) else None

    def remember(self, tensor: torch.Tensor, site: Site) -> None:
        """Note where a tensor comes from."""
        key, entries = id(tensor), self._entries

        def gone(_: object) -> None:
            entries.pop(key, None)  # before the id can be another tensor's

        entries[key] = Entry(weakref.ref(tensor, gone), version(tensor), site)

    # --- numbers -----------------------------------------------------------------------------

    def measure(self, name: str, tensor: torch.Tensor) -> Numbers | None:
        """Count a tensor's numbers; None for one that is empty or left out."""
        if tensor.numel() == 0 or self.settings.skipped(name):
            return None
        try:
            check_tensor(tensor, name)
            return Numbers(*measure(tensor))
        except InputError as error:
            if self.settings.skip_unsupported:
                self.unsupported[name] = str(error).partition(": ")[0]
                return None
            self.spoilt = True
            raise

    def take(
        self,
        name: str,
        kind: str,
        tensor: torch.Tensor,
        numbers: Numbers,
        phase: str,
        operation: str,
        origin: Callable[[], Origin],
    ) -> Glimpse:
        """Keep a tensor's numbers under a name, and look whether they left the range."""
        record = Record(name, kind, self.step, tuple(tensor.shape), *numbers)
        known = self._records.get((name, kind))
        self._records[name, kind] = known + record if known else record
        if self.settings.blocks is not None:
            blocks = block_tally(array_of(tensor), block=self.settings.blocks)
            self.count(name, kind, blocks)
        for recipe in self.settings.recipes:
            self.count(name, kind, recipe_tally(_matrix(array_of(tensor), recipe), recipe))
        seen = glimpse(name, kind, phase, operation, numbers)
        self._causes.look(self.step, seen, *numbers, origin)
        return seen

    def count(self, name: str, kind: str, counts: Any) -> None:
        """Keep what else was counted of a tensor."""
        add_to(self._counted, (name, kind, key_of(counts)), counts)

    def reads(self, name: str, names: Iterable[str]) -> None:
        """Note which tensors a matrix product was given, "" for what is not recorded."""
        self._inputs.setdefault(name, {}).update(dict.fromkeys(names))

    @property
    def inputs(self) -> dict[str, list[str]]:
        """The tensors that each matrix product was given, by the name of its result."""
        return {name: list(names) for name, names in self._inputs.items()}

    def write(self, trace: Trace) -> None:
        """Hand the step's records over to the trace."""
        if not self.spoilt:
            for record in self._records.values():
                trace.add(record)
            for (name, kind, _), counts in self._counted.items():
                trace.count(name, kind, self.step, counts)
        self._records.clear()
        self._counted.clear()
        self._entries.clear()  # which breaks the cycle through the weak references' callbacks


def glimpse(name: str, kind: str, phase: str, operation: str, numbers: Numbers) -> Glimpse:
    """Return what a lead-up shows of a tensor."""
    tally, moments = numbers
    total = moments.count + tally.nan + tally.inf  # tally.total would sum its cells
    return Glimpse(name, kind, phase, operation, moments.amax, tally.nan, tally.inf, total)


def _matrix(array: np.ndarray[Any, Any], recipe: Recipe) -> np.ndarray[Any, Any]:
    """A vector as one row, for blocks of several."""
    short = array.ndim < 2 and (recipe.block.rows or 1) > 1
    return array.reshape(1, -1) if short else array


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; tensors of inference mode do not count it."""
    return -1 if tensor.is_inference() else tensor._version
