"""Find an overflow in a residual stream, by module and source line: T5's, in small.

    python examples/find_overflow.py

Large T5 models trained in bfloat16 give infinity in float16. No layer's result is too large for
float16 (65504); but each block adds its own to what came before, and one of these additions goes
beyond. No hook on a module sees it, since an addition is no module. Here the same happens in six
small blocks: each adds about 11,000 to one channel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpemu.analysis import watch
from fpemu.analysis.first_cause import FirstCauseError
from fpemu.torch import emulate

WIDTH, BLOCKS = 16, 6


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wi, self.wo = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        with torch.no_grad():
            self.wo.bias[3] = 11_000.0  # what training makes of one channel

    def forward(self, x: Tensor) -> Tensor:
        return self.wo(self.wi(x).relu())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.feed_forward = nn.LayerNorm(WIDTH), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.feed_forward(self.norm(x))  # the culprit


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.blocks(x))


def main() -> None:
    torch.manual_seed(0)
    encoder, x = Encoder(), torch.randn(8, WIDTH)

    print("What would float16 do to this float32 model?")
    with watch(encoder, to="float16", evaluation=True) as run, torch.no_grad():
        encoder(x)
    for cause in run.causes:
        print(cause.text())

    print("\nAnd in float16, emulated, stopping where it happens:")
    try:
        with emulate("torch.half", model=encoder), watch(encoder, stop_on="overflow"):
            encoder(x)
    except FirstCauseError as error:
        print(error.cause.headline)

    print("\nIn bfloat16:")
    with watch(encoder, to="bfloat16", evaluation=True) as run, torch.no_grad():
        encoder(x)
    print(run.causes or "nothing overflows")


if __name__ == "__main__":
    main()
