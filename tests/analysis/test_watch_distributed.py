"""watch under DistributedDataParallel: a trace for each rank, and their merge is one process's."""

# ruff: noqa: E402 (PyTorch is optional: without it the module is skipped before it is needed)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="watching a model needs PyTorch, an extra")

import fpemu
from fpemu.analysis import Trace

SCRIPT = """
import sys
import torch
from torch import nn
import torch.distributed as dist
from fpemu.analysis import watch

def shard(step, rank):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(2 * step + rank))

def train(model, optimizer, parts, average):
    for step in range(2):
        for part in parts:
            loss = model(shard(step, part)).square().mean()
            loss.backward()
        if average:
            for weight in model.parameters():
                weight.grad *= 0.5
        optimizer.step()
        optimizer.zero_grad()

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
rank, folder = int(sys.argv[1]), sys.argv[2]
if rank >= 0:
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())
with watch(model, optimizer, path=f"{folder}/run.fpemu"):
    train(model, optimizer, [0, 1] if rank < 0 else [rank], average=rank < 0)
if rank >= 0:
    dist.destroy_process_group()
"""


def test_the_merged_ranks_are_one_process(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    path = {"PYTHONPATH": str(Path(fpemu.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path)], env=os.environ | path,
            stderr=subprocess.PIPE, text=True,
        )
        for rank in (-1, 0, 1)
    ]  # fmt: skip
    for process in started:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    assert sorted(p.name for p in tmp_path.glob("*.fpemu")) == [
        "run-rank0.fpemu", "run-rank1.fpemu", "run.fpemu",
    ]  # fmt: skip
    ranks = [Trace.load(tmp_path / f"run-rank{rank}.fpemu") for rank in (0, 1)]
    one, both = Trace.load(tmp_path / "run.fpemu"), Trace()
    for rank, trace in enumerate(ranks):
        assert (trace.metadata["rank"], trace.metadata["processes"]) == (rank, 2)
        both.merge(trace)
    assert ranks[1].kinds() == ["activation", "weight_gradient", "activation_gradient"]
    want = {r.key: (r.tally, r.recordings, r.shape) for r in one.records()}
    got = {r.key: (r.tally, r.recordings, r.shape) for r in both.records()}
    assert got == want
    assert len(want) == 2 * (5 * 2 + 4 * 3 + 8)
    assert got["0.weight", "weight", 0][1] == 1
    assert got["0.weight", "weight_gradient", 0][1] == 2
    for record in one.records():
        [other] = both.records(*record.key)
        assert other.moments.amax == record.moments.amax
        assert other.moments.m2 == pytest.approx(record.moments.m2, rel=1e-9)
