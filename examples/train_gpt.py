"""Train a small GPT on Python's own documentation in float32, float16 and E4M3, side by side.

    python examples/train_gpt.py [--steps 60]

Every run starts from the same weights and sees the same text; only the precision differs, and that
is emulated. The float32 run is watched, and a verdict on each format follows from its numbers.
(Where everything is E4M3, so is the loss that is printed.)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from fpemu.analysis import Trace, report, watch
from fpemu.torch import emulate

CONTEXT, BATCH, WIDTH, HEADS, LAYERS = 48, 8, 48, 4, 2


# --- the text and the model --------------------------------------------------------------------


def characters() -> tuple[Tensor, int]:
    """The text of `help("topics")` as numbers, and how many different characters it has."""
    text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    numbers = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[character] for character in text]), len(numbers)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_up = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        # without biases: a key's has no effect, and so only rounding errors as gradient
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before_attention(x))
        return x + self.down(gelu(self.up(self.before_up(x))))

    def attend(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads = self.attention(x).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return self.project((weights @ value).transpose(1, 2).reshape(batch, length, WIDTH))


class GPT(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, text: Tensor) -> Tensor:
        x = self.token(text) + self.place(torch.arange(text.shape[1]))
        return self.head(self.norm(self.blocks(x)))


# --- training ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    name: str
    policy: str | None = None  #: None: as it is
    loss_scaling: bool = False


RUNS = (
    Run("float32"),
    Run("float16 autocast", "torch.autocast.cuda.float16"),
    Run("float16 autocast, loss scaling", "torch.autocast.cuda.float16", loss_scaling=True),
    Run("E4M3 everywhere", "uniform:e4m3fn:overflow=saturate"),
)


def batches(text: Tensor, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of text and, for each character of them, the one that follows."""
    draws = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(len(text) - CONTEXT, (BATCH, 1), generator=draws)
        pieces = text[starts + torch.arange(CONTEXT + 1)]
        yield pieces[:, :-1], pieces[:, 1:]


def loss_of(model: GPT, text: Tensor, following: Tensor) -> Tensor:
    return cross_entropy(model(text).flatten(0, 1), following.flatten())


def train(
    run: Run, text: Tensor, vocabulary: int, steps: int
) -> tuple[list[float], float, Trace | None]:
    """Return the training losses, the loss on text apart, and the trace if the run is watched."""
    torch.manual_seed(0)
    model = GPT(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=run.loss_scaling)
    precision = emulate(run.policy) if run.policy else nullcontext()
    watching = nullcontext() if run.policy else watch(model, optimizer, every=max(steps // 5, 1))
    losses = []
    with precision, watching as watched:
        for pieces in batches(text[20_000:], steps, seed=1):
            loss = loss_of(model, *pieces)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
    with precision, torch.no_grad():
        apart = [loss_of(model, *pieces).item() for pieces in batches(text[:20_000], 5, seed=2)]
    return losses, sum(apart) / len(apart), watched.trace if watched else None


def judged(losses: list[float], apart: float, plain: float) -> str:
    broken = [step for step, loss in enumerate(losses) if not math.isfinite(loss)]
    if broken:
        return f"breaks at step {broken[0]}"
    return "as good as float32" if apart < plain + 0.05 else f"worse by {apart - plain:.2f}"


def verdicts(trace: Trace, formats: tuple[str, ...]) -> Iterator[str]:
    """What the numbers of the watched run say of each format."""
    for to in formats:
        verdict = report.build(trace, to=to).verdict
        yield from (verdict.headline, *(f"- {reason}" for reason in verdict.reasons[:2]))


def main() -> None:
    parser = argparse.ArgumentParser(description="A small GPT in four precisions.")
    parser.add_argument("--steps", type=int, default=60, help="of each run (60)")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    text, vocabulary = characters()
    print(f"{'run':32}{'loss, first':>12}{'last':>8}{'apart':>8}   verdict")
    plain, trace = math.inf, Trace()
    for run in RUNS:
        losses, apart, found = train(run, text, vocabulary, steps)
        if found is not None:
            plain, trace = apart, found
        verdict = "" if found is not None else judged(losses, apart, plain)
        print(f"{run.name:32}{losses[0]:12.3f}{losses[-1]:8.3f}{apart:8.3f}   {verdict}".rstrip())
    print("\nFrom the numbers of the float32 run:")
    print(*verdicts(trace, ("float16", "float8_e4m3fn")), sep="\n")


if __name__ == "__main__":
    main()
