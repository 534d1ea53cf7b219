"""Which format would keep these arrays? Counts, for each, what every format would lose.

    python examples/which_format.py                 two arrays made here
    python examples/which_format.py a.npy b.npz     your own
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import fpemu
from fpemu.analysis.report.numbers import interval
from fpemu.analysis.scales import safe_scales

Array = npt.NDArray[np.float32]

FORMATS = ("float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2", "float6_e3m2fn")


def made_here() -> Iterator[tuple[str, Array]]:
    """Weights that many formats hold, and gradients, small and wide, that few do."""
    rng = np.random.default_rng(0)
    yield "weights", rng.normal(0, 0.05, 100_000).astype(np.float32)
    gradients = rng.standard_normal(100_000) * 2.0 ** rng.normal(-20, 4, 100_000)
    yield "gradients", gradients.astype(np.float32)


def from_files(paths: list[str]) -> Iterator[tuple[str, Array]]:
    for path in paths:
        loaded = np.load(path)
        arrays = dict(loaded) if path.endswith(".npz") else {path: loaded}
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                yield name, array.astype(np.float32)


def main() -> None:
    arrays = from_files(sys.argv[1:]) if sys.argv[1:] else made_here()
    for name, array in arrays:
        tally = fpemu.tally(array)  # one pass; the rest is arithmetic on its counts
        print(f"{name}: {tally}")
        print(f"  {'format':15}{'lost':>8}{'subnormal':>11}   safe scales")
        for to in FORMATS:
            outcome = tally.outcome(to)
            subnormal = outcome.subnormal / max(outcome.nonzero, 1)
            found = safe_scales(tally, to)
            print(f"  {to:15}{outcome.lost_fraction:8.2%}{subnormal:11.2%}   {interval(found)}")


if __name__ == "__main__":
    main()
