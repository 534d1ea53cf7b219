"""Whether the advice is any good: runs that a format breaks, and the same runs as advised.

    OMP_NUM_THREADS=1 python benchmarks/advised_runs.py [--seeds 5] [--only NAME ...] [--json]

Each run is trained three times from the same weights on the same data: in float32, watched; in the
format as it is (naive); and as `advise` says from the float32 run's trace: its policy, emulated,
with its loss scale. The losses at the end are those of fixed data, in the run's own precision. Of
the loss that the format costs, the advice wins back

    closed = (naive - advised) / (naive - float32)

A run that ends in NaN counts as one that has learned nothing. The last runs are safe as they are,
and the advice has to say that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FPEMU_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fpemu.analysis import Trace, advise, watch
from fpemu.analysis.digits import digits
from fpemu.policies import Policy, find_policy
from fpemu.torch import emulate

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
import train_gpt

Pieces = tuple[Tensor, Tensor]

# --- networks and data -------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Something to learn: a network, pieces to train on, and what to measure the loss on."""

    network: Callable[[], nn.Module]
    pieces: Callable[[int, int], Iterator[Pieces]]  #: of a count and a seed
    fixed: Callable[[], Pieces]
    nothing: float  #: the loss of a network that knows nothing


def dense(layers: int, activation: type[nn.Module]) -> Callable[[], nn.Module]:
    """A network for digits; `layers` counts those with weights."""
    sizes = [64, *[48] * (layers - 1), 10]

    def made() -> nn.Module:
        parts: list[nn.Module] = []
        for k in range(layers):
            parts += [nn.Linear(sizes[k], sizes[k + 1]), activation()]
        return nn.Sequential(*parts[:-1])

    return made


def images() -> Pieces:
    found = digits()
    return torch.from_numpy(found.train_images), torch.from_numpy(found.train_labels)


def some_images(count: int, seed: int) -> Iterator[Pieces]:
    pixels, labels = images()
    draws = torch.Generator().manual_seed(seed)
    for _ in range(count):
        chosen = torch.randint(len(labels), (64,), generator=draws)
        yield pixels[chosen], labels[chosen]


TEXT, CHARACTERS = train_gpt.characters()


def some_text(count: int, seed: int) -> Iterator[Pieces]:
    return train_gpt.batches(TEXT[20_000:], count, seed)


def text_apart() -> Pieces:
    several = list(train_gpt.batches(TEXT[:20_000], 4, seed=0))
    return torch.cat([a for a, _ in several]), torch.cat([b for _, b in several])


SHALLOW = Task(dense(3, nn.ReLU), some_images, images, math.log(10))
DEEP = Task(dense(8, nn.Tanh), some_images, images, math.log(10))
GPT = Task(lambda: train_gpt.GPT(CHARACTERS), some_text, text_apart, math.log(CHARACTERS))

# --- the runs ----------------------------------------------------------------------------------


def sgd(model: nn.Module, factor: float) -> torch.optim.Optimizer:
    """The same steps whatever the loss is multiplied by."""
    return torch.optim.SGD(model.parameters(), lr=0.1 / factor, momentum=0.9)


def adam(model: nn.Module, factor: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-8 * factor)


@dataclass(frozen=True)
class Run:
    """A way to train something that a format breaks, or does not."""

    name: str
    task: Task
    optimizer: Callable[[nn.Module, float], torch.optim.Optimizer]
    policy: str | Policy  #: the format as it is
    to: tuple[str, ...]  #: what the advice is asked about
    factor: float = 1.0  #: that the loss is multiplied by: one of many terms, a mean over more
    steps: int = 100
    base: str | Policy | None = None  #: the policy that the advice changes; None: its own choice


FLOAT16, BFLOAT16 = "torch.autocast.cuda.float16", "torch.autocast.cuda.bfloat16"
FLOAT8 = ("e4m3fn", "e5m2", "bf16")  #: forward, backward, and what is kept
E4M3 = "uniform:e4m3fn:overflow=saturate"
E4M3_PRODUCTS = find_policy("fp8_hybrid; gradient: e4m3fn:overflow=saturate; policy: E4M3")

BROKEN = (
    Run("digits-small-loss", SHALLOW, sgd, FLOAT16, ("fp16",), factor=2.0**-22, base=FLOAT16),
    Run("digits-deep", DEEP, adam, FLOAT16, ("fp16",), factor=2.0**-16, base=FLOAT16),
    Run("gpt-small-loss", GPT, adam, FLOAT16, ("fp16",), factor=2.0**-18, steps=40, base=FLOAT16),
    Run("digits-e4m3-products", SHALLOW, adam, E4M3_PRODUCTS, FLOAT8, factor=2.0**-6),
    Run("digits-e4m3", SHALLOW, adam, E4M3, FLOAT8),
    Run("gpt-e4m3", GPT, adam, E4M3, FLOAT8, steps=40),
)

SAFE = (
    Run("digits-bfloat16", SHALLOW, adam, BFLOAT16, ("bf16",), base=BFLOAT16),
    Run("digits-float16", SHALLOW, adam, FLOAT16, ("fp16",), steps=50, base=FLOAT16),
    Run("gpt-bfloat16", GPT, adam, BFLOAT16, ("bf16",), steps=40, base=BFLOAT16),
)


def train(
    run: Run, seed: int, steps: int, policy: str | Policy | None = None, scale: float = 1.0
) -> tuple[float, Trace | None]:
    """Return the loss at the end, and the trace of a run without a policy."""
    torch.manual_seed(seed)
    model = run.task.network()
    optimizer = run.optimizer(model, run.factor)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
    precision = emulate(policy, model=model) if policy is not None else ExitStack()
    watching = watch(model, optimizer, every=5) if policy is None else ExitStack()
    with precision, watching as watched:
        for given, wanted in run.task.pieces(steps, seed):
            logits = model(given)
            loss = cross_entropy(logits.flatten(0, -2), wanted.flatten()) * run.factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    given, wanted = run.task.fixed()
    with precision, torch.no_grad():
        logits = model(given)
    end = cross_entropy(logits.flatten(0, -2), wanted.flatten()).item()
    trace = watched.trace if policy is None else None
    return end if math.isfinite(end) else run.task.nothing, trace


@dataclass(frozen=True)
class Result:
    """One run at one seed: the three losses, and what was advised."""

    run: str
    seed: int
    float32: float
    naive: float
    advised: float
    status: str
    headline: str
    loss_scale: float
    layers: int  #: with products of matrices
    lowered: int  #: how many of them go forward in the format asked for

    @property
    def closed(self) -> float:
        """The part of what the format costs that the advice wins back, in percent."""
        return 100 * (self.naive - self.advised) / (self.naive - self.float32)


def proved(run: Run, seed: int, steps: int | None = None) -> Result:
    """Train three times."""
    steps = steps or run.steps
    plain, trace = train(run, seed, steps)
    assert trace is not None
    advice = advise(trace, formats=run.to)
    policy = advice.policy(run.base)
    naive, _ = train(run, seed, steps, run.policy)
    advised, _ = train(run, seed, steps, policy, advice.loss_scale_advised)
    products = [layer for layer in advice.layers if layer.matmul]
    lowered = sum(layer.to == str(advice.formats[0]) for layer in products)
    return Result(run.name, seed, plain, naive, advised, advice.status, advice.headline,
                  advice.loss_scale_advised, len(products), lowered)  # fmt: skip


# --- the tables --------------------------------------------------------------------------------


def mean(results: list[Result], what: str) -> float:
    return statistics.fmean(getattr(one, what) for one in results)


BROKEN_HEAD = (f"{'broken by the format':24}{'float32':>9}{'naive':>9}{'advised':>9}{'closed':>9}"
               f"{'least':>9}   advice at seed 0")  # fmt: skip
SAFE_HEAD = f"{'safe as it is':24}{'float32':>9}{'naive':>9}{'advised':>9}   advice"


def broken_row(found: list[Result]) -> str:
    least = min(one.closed for one in found)
    return (f"{losses(found)}{mean(found, 'closed'):8.1f}%{least:8.1f}%   {found[0].headline} "
            f"Layers in the format: {found[0].lowered} of {found[0].layers}.")  # fmt: skip


def safe_row(found: list[Result]) -> str:
    statuses = [one.status for one in found]
    said = (f"{one}: {statuses.count(one)} of {len(found)}" for one in sorted(set(statuses)))
    return f"{losses(found)}   {', '.join(said)}"


def losses(found: list[Result]) -> str:
    figures = (mean(found, what) for what in ("float32", "naive", "advised"))
    return f"{found[0].run:24}" + "".join(f"{figure:9.3f}" for figure in figures)


def main() -> None:
    names = [run.name for run in BROKEN + SAFE]
    parser = argparse.ArgumentParser(description="Runs that a format breaks, and as advised.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind (5)")
    parser.add_argument("--steps", type=int, help="of each run, instead of its own")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=f"some of {', '.join(names)}")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print every result as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    every = []
    for runs, head, row in ((BROKEN, BROKEN_HEAD, broken_row), (SAFE, SAFE_HEAD, safe_row)):
        chosen = [run for run in runs if run.name in given.only]
        if chosen and not given.json:
            print(head, flush=True)
        for run in chosen:
            found = [proved(run, seed, given.steps) for seed in range(given.seeds)]
            every += found
            if not given.json:
                print(row(found), flush=True)
    if given.json:
        print(json.dumps([asdict(one) for one in every], indent=1))


if __name__ == "__main__":
    main()
