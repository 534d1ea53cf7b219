"""Train a small convolution net on handwritten digits in float32, float16 and E4M3, side by side.

    python examples/train_digits.py [--steps 100]

Every run starts from the same weights and sees the same images; only the precision differs, and
that is emulated. Two more runs train for 8 and 4 bits at a scale: fake quantization. The float32
run is watched, and a verdict on each format follows from its numbers.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fpemu.analysis import Trace, report, watch
from fpemu.analysis.digits import digits
from fpemu.torch import emulate, prepare

BATCH = 64


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


# --- training ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    name: str
    policy: str | None = None  #: what is emulated; None: nothing
    loss_scaling: bool = False
    quantized: str | None = None  #: what weights and activations are quantized to


RUNS = (
    Run("float32"),
    Run("float16, model.half()", "torch.half"),  # Adam's epsilon, 1e-8, is 0 there
    Run("float16 autocast", "torch.autocast.cuda.float16"),
    Run("float16 autocast, loss scaling", "torch.autocast.cuda.float16", loss_scaling=True),
    Run("E4M3 everywhere", "uniform:e4m3fn:overflow=saturate"),
    Run("E4M3 at a scale, fake", quantized="e4m3fn"),
    Run("INT4 at a scale, fake", quantized="int4"),
)


def images(part: str) -> tuple[Tensor, Tensor]:
    found = digits()._asdict()
    pixels, labels = (torch.from_numpy(found[f"{part}_{what}"]) for what in ("images", "labels"))
    return pixels.reshape(-1, 1, 8, 8), labels


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    pixels, labels = images("train")
    draws = torch.Generator().manual_seed(1)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (BATCH,), generator=draws)
        yield pixels[chosen], labels[chosen]


def train(run: Run, steps: int) -> tuple[list[float], float, Trace | None]:
    """Return the losses, the accuracy on images apart, and the trace if the run is watched."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=run.loss_scaling)
    losses, watched = [], None
    with ExitStack() as stack:
        if run.policy:
            stack.enter_context(emulate(run.policy, model=model))
        elif run.quantized:
            stack.enter_context(prepare(model, weights=run.quantized, activations=run.quantized))
        else:
            watched = stack.enter_context(watch(model, optimizer, every=max(steps // 10, 1)))
        for pixels, labels in batches(steps):
            loss = cross_entropy(model(pixels), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
        model.eval()
        pixels, labels = images("test")
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).double().mean().item()
    return losses, right, watched.trace if watched else None


def judged(losses: list[float], right: float, plain: float) -> str:
    broken = [step for step, loss in enumerate(losses) if not math.isfinite(loss)]
    if broken:
        return f"breaks at step {broken[0]}"
    return "as good as float32" if right > plain - 0.02 else "worse than float32"


def verdicts(trace: Trace, formats: tuple[str, ...]) -> Iterator[str]:
    """What the numbers of the watched run say of each format."""
    for to in formats:
        verdict = report.build(trace, to=to).verdict
        yield from (verdict.headline, *(f"- {reason}" for reason in verdict.reasons[:2]))


def main() -> None:
    parser = argparse.ArgumentParser(description="A small convolution net in several precisions.")
    parser.add_argument("--steps", type=int, default=100, help="of each run (100)")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print(f"{'run':32}{'loss, first':>12}{'last':>8}{'right':>8}   verdict")
    plain, trace = 0.0, Trace()
    for run in RUNS:
        losses, right, found = train(run, steps)
        if found is not None:
            plain, trace = right, found
        verdict = "" if found is not None else judged(losses, right, plain)
        print(f"{run.name:32}{losses[0]:12.3f}{losses[-1]:8.3f}{right:8.1%}   {verdict}".rstrip())
    print("\nFrom the numbers of the float32 run:")
    print(*verdicts(trace, ("float16", "float8_e4m3fn")), sep="\n")


if __name__ == "__main__":
    main()
