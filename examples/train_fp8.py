"""Train a small classifier of handwritten digits in float32 and by FP8 and FP4 recipes.

    python examples/train_fp8.py [--steps 80]

Every run starts from the same weights and sees the same images. A recipe says how the operands of
each linear layer's three matrix products are scaled and rounded; all else is bfloat16, as where
the recipes are used. The last run shows why a recipe scales at all: the same 8 bits without.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fpemu.analysis.digits import digits
from fpemu.torch import emulate

BATCH = 64
#: Gradients of losses that are means are small. This makes them as small as a large model's are.
SHRINK = 1e-6

RUNS = (
    ("float32", None),
    ("FP8, delayed scaling", "te.delayed"),
    ("MXFP8", "te.mxfp8"),
    ("NVFP4", "te.nvfp4"),
    ("NVFP4, last layer in bfloat16", "te.nvfp4; override: to=bf16 module=4"),
    ("FP8 without scales", "fp8_hybrid"),
)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def images(part: str) -> tuple[Tensor, Tensor]:
    found = digits()._asdict()
    pixels, labels = (torch.from_numpy(found[f"{part}_{what}"]) for what in ("images", "labels"))
    return pixels.reshape(len(labels), -1).float(), labels


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    pixels, labels = images("train")
    draws = torch.Generator().manual_seed(1)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (BATCH,), generator=draws)
        yield pixels[chosen], labels[chosen]


def train(policy: str | None, steps: int) -> tuple[list[float], float]:
    """Return the losses, and the accuracy on images apart."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-8 * SHRINK)
    losses = []
    with emulate(policy, model=model, seed=0) if policy else nullcontext():
        for pixels, labels in batches(steps):
            loss = cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            (loss * SHRINK).backward()
            optimizer.step()
            losses.append(loss.item())
        pixels, labels = images("test")
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).double().mean().item()
    return losses, right


def curve(losses: list[float]) -> str:
    """A loss as a line of bars, one for each tenth of the run, from 0 to the first one."""
    tenth = max(len(losses) // 10, 1)
    means = [sum(part) / len(part) for i in range(0, len(losses), tenth)
             if (part := losses[i : i + tenth])]  # fmt: skip
    return "".join("▁▂▃▄▅▆▇█"[min(int(8 * mean / means[0]), 7)] for mean in means)


def main() -> None:
    parser = argparse.ArgumentParser(description="Digits by FP8 and FP4 recipes.")
    parser.add_argument("--steps", type=int, default=80, help="of each run (80)")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print(f"{'run':32}{'loss, first':>12}{'last':>8}{'right':>8}   loss over the run")
    for name, policy in RUNS:
        losses, right = train(policy, steps)
        last = sum(losses[-10:]) / len(losses[-10:])
        print(f"{name:32}{losses[0]:12.3f}{last:8.3f}{right:8.1%}   {curve(losses)}")


if __name__ == "__main__":
    main()
