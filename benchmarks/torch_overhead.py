"""What emulating a policy costs: a 0.9 M-parameter GPT on one CPU thread, ratios in one run.

    OMP_NUM_THREADS=1 FPEMU_THREADS=1 python benchmarks/torch_overhead.py [POLICY ...]

Each figure is the median, over pairs of a plain training step and an emulated one just after it,
of their times' ratio; the quartiles stand behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FPEMU_THREADS", "1")

import torch
import torch.nn.functional as F
from gpt import Shape, batch, make

import fpemu
from fpemu.analysis.bench.pairs import Load, Timing, paired
from fpemu.torch import emulate

POLICIES = (
    "torch.autocast.cuda.float16",
    "torch.autocast.cpu.bfloat16",
    "torch.half",
    "fp8_hybrid",
    "uniform:e5m2",
)


class Training:
    """A network, its optimizer and a batch."""

    def __init__(self) -> None:
        shape = Shape()
        self.model, self.optimizer = make(shape)
        self.tokens, self.targets = batch(shape)

    def step(self) -> None:
        self.optimizer.zero_grad()
        logits = self.model(self.tokens)
        F.cross_entropy(logits.flatten(0, 1), self.targets.flatten()).backward()
        self.optimizer.step()


def inside(emulation: Any, step: Callable[[], None]) -> None:
    with emulation:
        step()


def measure(policies: list[str], pairs: int, cpu: bool) -> dict[str, Timing]:
    """Return a step's time under each policy, against a plain step's."""
    clock = time.process_time_ns if cpu else time.perf_counter_ns
    found = {}
    for policy in policies:
        plain, other = Training(), Training()
        emulation = emulate(policy, model=other.model)
        fpemu.warmup(emulation.policy.compute)  # the loop that a long run ends up with
        loads = Load(partial(inside, emulation, other.step), 1), Load(plain.step, 1)
        found[policy] = paired(*loads, repeats=pairs, budget_s=600, clock=clock)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--cpu", action="store_true", help="time of this process, not of day")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(given.policies, given.pairs, given.cpu)
    if given.json:
        print(json.dumps({policy: timing.to_json() for policy, timing in found.items()}, indent=1))
        return
    for policy, t in found.items():
        print(f"{t.ratio:5.2f}x  ({t.low:.2f} to {t.high:.2f})  {policy}")
    print(f"a plain step: {next(iter(found.values())).baseline_ns / 1e6:.0f} ms")


if __name__ == "__main__":
    main()
