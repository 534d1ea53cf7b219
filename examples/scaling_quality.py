"""How good are scaled formats on Gaussian data? The published table, computed again.

    python examples/scaling_quality.py [--rows N] [--seed S]

Prints the signal to quantization noise of each format in dB: as published (arXiv 2510.25602,
figure 4b, on rotated tensors of a language model), as computed here with the scale that clips
nothing, 2^ceil(log2(amax / max)), and with the rule of the OCP standard, which clips.
"""

from __future__ import annotations

import argparse

import numpy as np

import fpemu
from fpemu.scaling import find_recipe

#: Name, published dB, the recipe, and the same with OCP's rule where there is one.
TABLE = (
    ("MXFP8 (E4M3)", 31.51, "mxfp8.fit", "mxfp8"),
    ("MXFP6 (E2M3)", 31.03, "mxfp6_e2m3.fit", "mxfp6_e2m3"),
    ("MXFP4", 18.79, "mxfp4.fit", "mxfp4"),
    ("NVFP4", 20.35, "nvfp4", None),
    ("MXINT8", 41.93, "mxint8.fit", "mxint8"),
    ("MXINT6", 30.18, "mxint6.fit", "mxint6"),
    ("MXINT4", 17.22, "mxint4.fit", "mxint4"),
    ("NVINT4", 21.65, "1x16 two_level int4:symmetric", None),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024, help="rows of 1,024 numbers")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    x = np.random.default_rng(given.seed).standard_normal((given.rows, 1024)).astype(np.float32)

    def quality(name: str) -> float:
        return fpemu.error(x, find_recipe(name).round(x)).sqnr

    print(f"{'format':14} {'published':>9} {'here':>7} {'OCP rule':>9}")
    for name, published, recipe, ocp in TABLE:
        rule = f"{quality(ocp):9.2f}" if ocp else f"{'–':>9}"
        print(f"{name:14} {published:9.2f} {quality(recipe):7.2f} {rule}")


if __name__ == "__main__":
    main()
