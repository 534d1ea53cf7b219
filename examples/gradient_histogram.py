"""How many of a small GPT's activation gradients lie below float16's range, by loss scale.

    python examples/gradient_histogram.py [--plot gradients.png]

After 100 steps on Python's own documentation the gradients of one step are counted: which part of
the non-zero ones is smaller than 2^-24, float16's smallest number, and which part float16 rounds to
zero, at loss scales 1, 8, 128 and 1024. This is the histogram that loss scaling began with
(Micikevicius et al., arXiv 1710.03740, figure 3). The counts of all scales come from one pass.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from train_gpt import characters

from fpemu.analysis import Trace, plots, watch
from fpemu.analysis.shown import share

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from gpt import GPT, Shape

SCALES = (1, 8, 128, 1024)
SMALLEST = "float16:toward_zero"  # makes zero of exactly what is below float16's smallest number


@dataclass(frozen=True)
class Shares:
    """Of the non-zero activation gradients at one loss scale, in percent."""

    scale: int
    below: float  #: smaller than 2^-24
    zero: float  #: rounded to zero: below 2^-25, and 2^-25 itself


def batches(text: torch.Tensor, shape: Shape, count: int) -> list[torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    starts = torch.randint(len(text) - shape.context, (count, shape.batch, 1), generator=draws)
    return [text[first + torch.arange(shape.context + 1)] for first in starts]


def train(text: torch.Tensor, shape: Shape, steps: int, seed: int) -> Trace:
    """Train, and return the gradients of every operation's result at the last step."""
    torch.manual_seed(seed)
    model = GPT(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, optimizer, every=steps, kinds="activation_gradient") as run:
        for pieces in batches(text, shape, steps + 1):
            logits = model(pieces[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return run.trace


def shares(trace: Trace, step: int) -> list[Shares]:
    tally = trace.total(kind="activation_gradient", step=step)
    below, zero = (tally.outcomes(cast, SCALES) for cast in (SMALLEST, "float16"))
    return [
        Shares(scale, 100 * a.underflow_fraction, 100 * b.underflow_fraction)
        for scale, a, b in zip(SCALES, below, zero, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradients below float16's range.")
    parser.add_argument("--steps", type=int, default=100, help="trained before counting (100)")
    parser.add_argument("--layers", type=int, default=4, help="of the GPT (4)")
    parser.add_argument("--batch", type=int, default=16, help="sequences of 128 characters (16)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (0)")
    parser.add_argument("--plot", help="draw the histogram into this file (png, svg or pdf)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    text, vocabulary = characters()
    shape = Shape(vocabulary=vocabulary, layers=given.layers, batch=given.batch)
    trace = train(text, shape, given.steps, given.seed)
    total = trace.total(kind="activation_gradient", step=given.steps)
    print(f"{total.total:,} activation gradients of step {given.steps}, "
          f"{share(100 * total.zero / total.total)} of them zero; of the others:")  # fmt: skip
    print(f"{'loss scale':>10}{'below 2^-24':>15}{'float16 makes zero':>22}")
    for one in shares(trace, given.steps):
        print(f"{one.scale:10}{share(one.below):>15}{share(one.zero):>22}")
    if given.plot:
        title = f"Activation gradients of step {given.steps}, without loss scaling"
        axes = plots.exponent_histogram(total, formats=["fp16"], title=title, log=False)
        plots.save(axes, given.plot)


if __name__ == "__main__":
    main()
