"""Record a small numpy computation and write its report: logistic regression by gradient descent.

    python examples/record_numpy.py [FOLDER] [--to FORMAT]

Writes run.fpemu, the recorded numbers, and report.html, what a format would do to them, into
FOLDER (the current one unless given).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpemu.analysis import report
from fpemu.analysis.trace import Trace

Array = npt.NDArray[np.float32]

FEATURES = 64


def samples(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Points around two centres, and which centre each belongs to."""
    labels = rng.integers(0, 2, count).astype(np.float32)
    centre = np.linspace(-1, 1, FEATURES, dtype=np.float32)
    points = rng.normal(0, 1, (count, FEATURES)).astype(np.float32)
    return points + np.outer(2 * labels - 1, centre), labels


def train(trace: Trace, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, labels = samples(2048, rng)
    weight = np.zeros(FEATURES, np.float32)
    for step in range(steps):
        logits = points @ weight
        predicted = 1 / (1 + np.exp(-logits))
        error = (predicted - labels) / np.float32(len(labels))  # the gradient at the logits
        gradient = points.T @ error
        update = np.float32(-0.5) * gradient

        trace.record("logits", "activation", logits, step)
        trace.record("logits", "activation_gradient", error, step)
        trace.record("weight", "weight", weight, step)
        trace.record("weight", "weight_gradient", gradient, step)
        trace.record("weight", "update", update, step)
        correct = np.mean((predicted > 0.5) == (labels > 0.5))
        trace.scalar(step, "accuracy", float(correct))

        weight = weight + update


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a logistic regression.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--to", default="float16", help="the format judged (float16)")
    arguments = parser.parse_args()
    path = arguments.folder / "run.fpemu"

    with Trace.create(path, metadata={"seed": 0}, overwrite=True) as trace:
        train(trace, steps=100, seed=0)

    found = report.build(Trace.load(path), to=arguments.to)
    page = arguments.folder / "report.html"
    report.write_text(page, report.html.render(found))
    print(found.verdict.headline)
    for reason in found.verdict.reasons:
        print(f"- {reason}")
    print(f"wrote {path} and {page}")


if __name__ == "__main__":
    main()
