"""watch(blocks=...): the blocks of each recorded tensor, as a look at the tensor itself finds."""

from __future__ import annotations

import numpy as np
import pytest

from fpemu.blocks import block_tally
from fpemu.errors import InputError

torch = pytest.importorskip("torch", reason="watch is for PyTorch")

from fpemu.analysis import watch  # noqa: E402


def test_each_recorded_tensor_has_its_blocks() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 6)
    weight = model.weight.detach().numpy().copy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(5, 10), torch.randn(5, 10)]
    with watch(model, optimizer, blocks=4) as run:
        for batch in batches:  # two micro-batches of one step
            model(batch).square().sum().backward()
        gradient = model.weight.grad.numpy().copy()
        optimizer.step()
    found = {(c.name, c.kind): c.value for c in run.trace.counted("blocks", step=0)}
    assert found["weight", "weight"] == block_tally(weight, block=4)
    assert set(found) == set(run.trace.tensors())
    assert found["weight", "weight_gradient"].blocks == 2 * 6 * 3
    assert found["weight", "update"].amax == block_tally(
        np.float32(model.weight.detach().numpy() - weight), block=4
    ).amax
    assert np.isfinite(gradient).all()


def test_none_are_counted_unless_asked_for() -> None:
    model = torch.nn.Linear(3, 2)
    with watch(model) as run:
        model(torch.ones(1, 3)).sum().backward()
        run.next_step()
    assert list(run.trace.counted("blocks")) == []


def test_a_block_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="blocks=0"):
        watch(torch.nn.Linear(3, 2), blocks=0)
