"""How fast sums of products are, one thread: ns a multiply-add, best of several.

    python benchmarks/arithmetic.py [--size 256] [--repeat 7]

Rows of a, terms and columns of b are all `size`; the inputs are of the format of the products.
Elementwise operations come last, in ns an element.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fpemu
from fpemu import arithmetic
from fpemu.arithmetic import Accumulation

#: Format of the inputs, what is printed, how they are summed.
WAYS = (
    ("float16", "float16, fused", Accumulation("float16")),
    ("float16", "float16, unfused", Accumulation("float16", product="float16")),
    ("float16", "float16, float32 every 32", Accumulation("float16", block=32, outer="float32")),
    ("float16", "float32, fused", Accumulation("float32")),
    ("float8_e4m3fn", "bfloat16, fused", Accumulation("bfloat16")),
    ("bfloat16", "float32 toward zero", Accumulation("float32:toward_zero")),
    ("float16", "float16 stochastic", Accumulation("float16:stochastic")),
    ("float16", "float16, pairwise", Accumulation("float16", order="pairwise")),
    ("float16", "float16, Kahan", Accumulation("float16", order="kahan")),
)


def best(work: Callable[[], object], repeat: int) -> float:
    """Seconds of processor time of the fastest run; the first one compiles."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    n = given.size
    random = np.random.default_rng(0)
    pair = [random.standard_normal((n, n)).astype(np.float32) for _ in range(2)]
    for source, name, how in WAYS:
        a, b = (fpemu.round(x, source) for x in pair)
        took = best(partial(arithmetic.matmul, a, b, how, seed=0, threads=1), given.repeat)
        print(f"{source:14} {name:28} {took / n**3 * 1e9:6.2f} ns a multiply-add")
    x, y = (random.standard_normal(1 << 20).astype(np.float32) for _ in range(2))
    for name in ("add", "multiply", "divide", "fma"):
        operands = (x, y, x) if name == "fma" else (x, y)
        work = getattr(arithmetic, name)
        took = best(partial(work, *operands, "float16", threads=1), given.repeat)
        shown = f"{'float32':14} {name + ' into float16':28}"
        print(f"{shown} {took / x.size * 1e9:6.2f} ns an element")


if __name__ == "__main__":
    main()
