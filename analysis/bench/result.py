"""run: measure all cases of a setup and keep the figures with what they were measured on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fpemu.analysis.bench.cases import Case, cases
from fpemu.analysis.bench.machine import machine_facts
from fpemu.analysis.bench.pairs import Clock, Timing, paired
from fpemu.analysis.bench.sample import DESCRIPTION
from fpemu.analysis.bench.setup import Arrays, Setup

__all__ = ["SCHEMA", "Result", "Row", "run"]

SCHEMA = "fpemu-bench/1"


@dataclass(frozen=True)
class Row:
    """One figure."""

    verb: str  #: which table
    who: str  #: the library; for modes, the rounding mode
    to: str | None  #: the format
    size: int  #: elements a call
    timing: Timing | None  #: None: the library lacks the format

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict; its figures are null where there are none."""
        timing = self.timing.to_json() if self.timing else None
        return {"verb": self.verb, "who": self.who, "to": self.to, "size": self.size,
                "timing": timing}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """All figures of a run."""

    setup: Setup
    machine: dict[str, Any]
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON-ready dict."""
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "setup": asdict(self.setup) | {"data": DESCRIPTION},
            "rows": [row.to_json() for row in self.rows],
        }


def run(
    setup: Setup,
    *,
    clock: Clock | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Result:
    """Measure all that a setup asks for.

    >>> from fpemu.analysis.bench import Setup, run
    >>> result = run(Setup(to=("bf16",), size=1024, repeats=3, peers=False))
    >>> [row.timing.pairs for row in result.rows if row.verb == "round"]
    [3, 3]

    clock: returns nanoseconds; the thread's CPU time or the wall's unless given.
    progress: called with (cases done, cases in all, what comes next).
    """
    facts = machine_facts()  # first: the load is that of the machine before we started
    arrays, found = Arrays(setup), cases(setup)
    clock = clock or (time.thread_time_ns if setup.cpu_time else time.perf_counter_ns)
    rows = []
    for done, case in enumerate(found):
        if progress:
            progress(done, len(found), " ".join(filter(None, (case.verb, case.who, case.to))))
        rows.append(Row(case.verb, case.who, case.to, case.size, _measure(case, arrays, clock)))
    return Result(setup, facts, tuple(rows))


def _measure(case: Case, arrays: Arrays, clock: Clock) -> Timing | None:
    with np.errstate(all="ignore"):  # peers warn of overflow, which the data has on purpose
        loads = case.prepare(arrays)
        if loads is None:
            return None
        return paired(*loads, repeats=arrays.setup.repeats, clock=clock)
