"""Why long sums in float16 stop growing, and what helps: 4,096 times 0.1, and a dot product.

    python examples/sums_stagnate.py [--terms N] [--seed S]

Prints what each way of adding makes of N times 0.1, after how many terms a plain float16 sum
stands still, and the relative error of dot products in several formats and orders, for data with
mean zero and for positive data.
"""

from __future__ import annotations

import argparse

import numpy as np

import fpemu
from fpemu import arithmetic
from fpemu.arithmetic import Accumulation

#: What is printed, and how the sum is taken.
WAYS = (
    ("float16, one after the other", Accumulation("float16")),
    ("float16, rounded up and down at random", Accumulation("float16:stochastic")),
    ("float16, pairwise", Accumulation("float16", order="pairwise")),
    ("float16, Kahan", Accumulation("float16", order="kahan")),
    ("float16, in blocks of 64", Accumulation("float16", block=64)),
    ("float16, to float32 every 64 terms", Accumulation("float16", block=64, outer="float32")),
    ("bfloat16, one after the other", Accumulation("bfloat16")),
    ("float32, one after the other", Accumulation("float32")),
)

#: The same for dot products of float16 numbers.
PRODUCTS = (
    ("float16, unfused", Accumulation("float16", product="float16")),
    ("float16, fused", Accumulation("float16")),
    ("float16, fused, pairwise", Accumulation("float16", order="pairwise")),
    ("float16, fused, 8 splits", Accumulation("float16", splits=8)),
    ("float16, fused, float32 every 64", Accumulation("float16", block=64, outer="float32")),
    ("float32, fused", Accumulation("float32")),
)


def stands_still_at(x: np.float32, terms: int) -> int:
    """After how many terms a float16 sum of a number no longer changes (0: it never does so)."""
    total = np.float32(0)
    for count in range(terms):
        next_total = arithmetic.add(total, x, "float16")
        if next_total == total:
            return count
        total = next_total
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=4096, help="terms of each sum")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    x = np.full(given.terms, 0.1, np.float32)
    exact = given.terms * float(x[0])

    print(f"{f'{given.terms} times 0.1':42} {'sum':>9} {'error':>8}")
    for name, how in WAYS:
        found = float(arithmetic.sum(x, how, seed=given.seed))
        print(f"{name:42} {found:9.2f} {abs(found - exact) / exact:8.1%}")
    count = stands_still_at(x[0], given.terms)
    if count:
        print(f"a float16 sum stands still after {count} terms: 0.1 is less than half of the gap, "
              f"{fpemu.spacing(np.float32(256), 'float16')}, between 256 and the next number")

    random = np.random.default_rng(given.seed)
    shape = (64, given.terms)
    normal = [fpemu.round(random.standard_normal(shape).astype(np.float32), "float16")
              for _ in range(2)]
    print(f"\n{f'dot products of {given.terms} terms, error':42} {'mean zero':>9} {'positive':>9}")
    for name, how in PRODUCTS:
        errors = [error(a, b, how) for a, b in (normal, [np.abs(v) for v in normal])]
        print(f"{name:42} {errors[0]:9.2%} {errors[1]:9.2%}")


def error(a: np.ndarray, b: np.ndarray, how: Accumulation) -> float:
    """Root mean square error of dot products of rows, as a part of their root mean square."""
    found = arithmetic.matmul(a[:, None, :], b[:, :, None], how).ravel().astype(np.float64)
    exact = np.einsum("ij,ij->i", a.astype(np.float64), b.astype(np.float64))
    return float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)))


if __name__ == "__main__":
    main()
