"""What tensors' names say, against the modules of the model that a watch named them after."""

from __future__ import annotations

import pytest

from fpemu.analysis.tensor_names import is_input, layer_of, module_of, operation_of, without_input
from fpemu.analysis.trace import Trace

torch = pytest.importorskip("torch", reason="a watch is of a PyTorch run")


def watched(tensors: str) -> tuple[Trace, dict[str, str], set[str]]:
    """A step of a model with a weight of its own; the module of each parameter; all modules."""
    from fpemu.analysis import watch

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(4))
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.matmul(self.fc(x) * self.gain, torch.ones(4, 4))

    model = torch.nn.Sequential(Block(), torch.nn.ReLU(), Block())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watch(model, optimizer, tensors=tensors) as run:
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
    owners = {
        f"{module}.{name}": module
        for module, part in model.named_modules()
        for name, _ in part.named_parameters(recurse=False)
    }
    return run.trace, owners, {name for name, _ in model.named_modules()}


def test_parameters_belong_to_the_modules_that_have_them() -> None:
    trace, owners, _ = watched("all")
    about = [(n, k) for n, k in trace.tensors() if k not in ("activation", "activation_gradient")]
    assert {kind for _, kind in about} >= {"weight", "weight_gradient", "optimizer_state"}
    for name, kind in about:
        [owner] = [own for of, own in owners.items() if f"{name}.".startswith(f"{of}.")]
        assert module_of(name, kind) == layer_of(name, kind) == owner


def test_results_belong_to_modules_and_say_their_operation() -> None:
    trace, _, modules = watched("all")
    names = [name for name, kind in trace.tensors() if kind == "activation"]
    assert {module_of(name, "activation") for name in names} <= modules
    assert {operation_of(name) for name in names} >= {None, "mul", "matmul"}


def test_inputs_of_products_are_told_apart() -> None:
    trace, _, modules = watched("matmul")
    inputs = [name for name, kind in trace.tensors() if kind == "activation"]
    assert inputs
    assert all(map(is_input, inputs))
    products = {without_input(name) for name in inputs}
    assert {module_of(name, "activation") for name in products} <= modules
    assert not any(map(is_input, products))
