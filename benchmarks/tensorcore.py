"""How long a multiply-add takes as each chip's matrix units do it, on one thread.

    OMP_NUM_THREADS=1 python benchmarks/tensorcore.py [--size 256] [--repeats 9] [--json]

For each chip, format of the operands and of the sum: the best time of the processor (which others
at work on the machine disturb less) for a product of two square matrices by
`fpemu.tensorcore.mma`, rounding of the operands included, in ns a multiply-add, and how many times
numpy's float32 product of the same matrices that is.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy reads them: its product on one thread too

import numpy as np  # noqa: E402

from fpemu import tensorcore  # noqa: E402


def best(work: Callable[[], Any], repeats: int) -> float:
    """The shortest of some times of the processor, in seconds, after a first one that compiles."""
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def cases() -> list[tuple[str, str, str, int | None]]:
    """Chip, format of the operands, format of the sum, promotion."""
    found: list[tuple[str, str, str, int | None]] = [
        (chip.name, unit.formats[0].name, unit.out.name, None)
        for chip in tensorcore.chips.values()
        for unit in chip.units
    ]
    after = max(i for i, case in enumerate(found) if case[0] == "hopper")
    found.insert(after + 1, ("hopper", "float8_e4m3fn", "float32", 128))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="rows, columns, products of a sum")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((given.size,) * 2).astype(np.float32) for _ in range(2))
    count = given.size**3
    plain = best(lambda: a @ b, given.repeats) / count * 1e9
    rows = []
    for chip, form, out, promote in cases():
        options = {"chip": chip, "to": form, "out": out, "promote": promote, "threads": 1}
        each = best(lambda o=options: tensorcore.mma(a, b, **o), given.repeats)  # type: ignore[misc]
        ns = each / count * 1e9
        rows.append(options | {"ns": round(ns, 3), "times_numpy": round(ns / plain, 1)})
    if given.json:
        print(json.dumps({"size": given.size, "numpy_float32_ns": plain, "rows": rows}, indent=1))
        return
    print(f"{given.size}^3 on one thread; numpy's float32 product: {plain:.3f} ns a multiply-add")
    print(f"{'chip':10} {'operands':16} {'sum':8} {'promote':>7} {'ns':>6} {'x numpy':>8}")
    for row in rows:
        print(f"{row['chip']:10} {row['to']:16} {row['out']:8} {row['promote'] or '':>7} "
              f"{row['ns']:6.2f} {row['times_numpy']:8.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
