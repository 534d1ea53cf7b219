"""How far FP8 products err where their sums are kept: by chip, length of the sum, and data.

    python examples/fp8_accumulation.py [--rows N] [--lengths 256 1024 4096] [--seed S]

Multiplies random matrices as the matrix units of several chips do, bit for bit, and compares with
the exact sums of the same rounded operands: what is left is what the accumulation did. Zero-mean
data are normally distributed; of these the root mean square error is printed, relative to that of
the sums. Positive data lie evenly in [0, 1): of one sign, as what a ReLU or a softmax gives; of
these it is the mean relative difference, for cutting makes all sums of one sign too small.
"""

from __future__ import annotations

import argparse

import numpy as np

import fpemu
from fpemu import tensorcore

#: What is printed, the chip, the format of the operands, and after how many products a new sum.
TABLE = (
    ("Hopper FP16", "hopper", "float16", None),
    ("Hopper FP8", "hopper", "float8_e4m3fn", None),
    ("Hopper FP8, promoted each 128", "hopper", "float8_e4m3fn", 128),
    ("Ada FP8", "ada", "float8_e4m3fn", None),
    ("Ada FP8, promoted each 128", "ada", "float8_e4m3fn", 128),
    ("Blackwell FP8", "blackwell", "float8_e4m3fn", None),
)


def operands(positive: bool, rows: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices of random numbers, as float32."""
    random = np.random.default_rng(seed)
    draw = random.random if positive else random.standard_normal
    return draw((rows, length), np.float32), draw((length, rows), np.float32)


def differences(
    a: np.ndarray, b: np.ndarray, chip: str, to: str, promote: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """How far a chip's sums are off, and the exact sums of the operands that it was given."""
    found = tensorcore.mma(a, b, chip=chip, to=to, promote=promote)
    x, y = (fpemu.round(m, to).astype(np.float64) for m in (a, b))
    exact = x @ y  # but for about 1e-15
    return found - exact, exact


def error(positive: bool, wrong: np.ndarray, exact: np.ndarray) -> str:
    """The figure of one cell: a mean difference in percent, or a root mean square error."""
    if positive:
        return f"{100 * wrong.mean() / exact.mean():+.2g} %"
    return f"{np.sqrt(np.mean(wrong**2) / np.mean(exact**2)):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64, help="rows and columns of the result")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for positive in (False, True):
        print("positive: mean difference" if positive else "zero mean: error")
        print(f"{'products of a sum':30}" + "".join(f"{n:>12,}" for n in given.lengths))
        matrices = [operands(positive, given.rows, n, given.seed) for n in given.lengths]
        for name, chip, to, promote in TABLE:
            pairs = (differences(a, b, chip, to, promote) for a, b in matrices)
            cells = (error(positive, wrong, exact) for wrong, exact in pairs)
            print(f"{name:30}" + "".join(f"{cell:>12}" for cell in cells))
        print()


if __name__ == "__main__":
    main()
