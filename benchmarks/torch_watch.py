"""What watching a training run costs: a 0.9 M-parameter GPT on one CPU thread, in one run.

    OMP_NUM_THREADS=1 FPEMU_THREADS=1 python benchmarks/torch_watch.py [--pairs 9] [--json]

Each figure is the median, over pairs of a plain block of steps and a watched one just after it,
of their times' ratio; the quartiles stand behind it. The trace is written to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FPEMU_THREADS", "1")

import torch
import torch.nn.functional as F
from gpt import Shape, batch, make

from fpemu.analysis import watch
from fpemu.analysis.bench.pairs import Load, Timing, paired

STEPS = 8  # in a block

MATMULS = {"tensors": "matmul", "kinds": ["activation", "weight", "activation_gradient"]}

#: What is watched -> the options of watch.
CASES: dict[str, dict[str, Any]] = {
    "matmul tensors, every step": MATMULS,
    "matmul tensors, every step, first causes in float16": {**MATMULS, "to": "float16"},
    "matmul tensors, all kinds, every step": {"tensors": "matmul"},
    "all tensors, activations, weights, gradients": {
        "kinds": ["activation", "weight", "activation_gradient", "weight_gradient"]
    },
    "everything, every step": {},
}

UNRECORDED = "steps that are not recorded"


class Training:
    """A network, its optimizer and a batch; `steps` trains."""

    def __init__(self) -> None:
        shape = Shape()
        self.model, self.optimizer = make(shape)
        self.tokens, self.targets = batch(shape)

    def steps(self) -> None:
        for _ in range(STEPS):
            logits = self.model(self.tokens)
            F.cross_entropy(logits.flatten(0, 1), self.targets.flatten()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def watched(training: Training, folder: Path, options: dict[str, Any]) -> Callable[[], None]:
    """Return what trains a block of steps while it is watched."""

    def steps() -> None:
        path = folder / "run.fpemu"
        with watch(training.model, training.optimizer, path=path, overwrite=True, **options):
            training.steps()

    return steps


def unrecorded(training: Training) -> Callable[[], None]:
    """Return what trains a block of steps none of which is recorded."""
    run = watch(training.model, training.optimizer, every=10**9)
    run.__enter__()
    run.next_step()

    def steps() -> None:
        training.steps()

    return steps


def measure(pairs: int, only: str, cpu: bool) -> dict[str, Timing]:
    """Return the figures of all cases whose name holds `only`."""
    plain, other = Training(), Training()
    found = {}
    clock = time.process_time_ns if cpu else time.perf_counter_ns

    def pair(call: Callable[[], None]) -> Timing:
        loads = Load(call, STEPS), Load(plain.steps, STEPS)
        return paired(*loads, repeats=pairs, budget_s=600, clock=clock)

    with tempfile.TemporaryDirectory() as name:
        for case, options in CASES.items():
            if only in case:
                found[case] = pair(watched(other, Path(name), options))
    if only in UNRECORDED:
        found[UNRECORDED] = pair(unrecorded(other))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--cpu", action="store_true", help="time of this process, not of day")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(given.pairs, given.only, given.cpu)
    if given.json:
        print(json.dumps({case: timing.to_json() for case, timing in found.items()}, indent=1))
        return
    for case, t in found.items():
        print(f"{t.ratio:5.2f}x  ({t.low:.2f} to {t.high:.2f})  {case}")
        if t.ratio > 1 and case in CASES:
            share = (t.ratio - 1) / 100
            print(f"        every=100: {share:.2%} of a plain step, on average")
    plain = next(iter(found.values())).baseline_ns if found else 0
    print(f"a plain step: {plain / 1e6:.0f} ms")


if __name__ == "__main__":
    main()
