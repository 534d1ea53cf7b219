"""fpemu's own calls, in each of its builds."""

from __future__ import annotations

import numpy as np

import fpemu
from fpemu.analysis.bench.peers import Array, Calls
from fpemu.cast import make_cast
from fpemu.format import Format
from fpemu.kernels.plan import new_plan
from fpemu.kernels.pool import run_chunks

__all__ = ["general", "small", "special"]


def special(form: Format, x: Array, out: Array, threads: int) -> Calls:
    """Return calls whose loops have the cast's constants built in."""
    fpemu.warmup(form, dtype=x.dtype)
    codes = fpemu.encode(x, form, threads=threads)
    return Calls(
        lambda: fpemu.round(x, form, out=out, threads=threads),
        lambda: fpemu.encode(x, form, out=codes, threads=threads),
        lambda: fpemu.decode(codes, form, x.dtype, out=out, threads=threads),
    )


def general(form: Format, x: Array, out: Array, threads: int) -> Calls:
    """Return calls whose loops take the cast's constants at run time."""
    words, results = x.view(np.uint32), out.view(np.uint32)
    cast = make_cast(form)

    def run() -> None:
        # a plan that has seen nothing yet: one that has seen much compiles a loop of its own
        fresh = new_plan("round", cast, 32, 32)
        run_chunks(lambda a, b: fresh.run(words[a:b], results[a:b]), x.size, threads)

    return Calls(run, run, run)


def small(form: Format, x: Array, out: Array, threads: int) -> Calls:
    """Return the call that users of small arrays write: a name, and no threads."""
    fpemu.warmup(form)
    name = form.name

    def run() -> object:
        return fpemu.round(x, name, out=out)

    return Calls(run, run, run)
