"""prepare: FakeQuantize modules in front of a model's layers and in their weights, and undo."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, NamedTuple

from torch import nn
from torch.nn.utils import parametrize

from fpemu.cast import Overflow
from fpemu.errors import InputError
from fpemu.torch.fake_quantize import FakeQuantize, Observer
from fpemu.torch.grid import Grid, Integer, make_grid
from fpemu.torch.rounding import Target

__all__ = ["LAYERS", "Layer", "Prepared", "prepare"]


class Layer(NamedTuple):
    """What can be quantized in a kind of module."""

    module: type[nn.Module]
    weight: str = "weight"
    axis: int = 0  #: of the weight's output channels
    input: bool = True  #: whether its first argument is an activation that its own call takes


#: The kinds of modules that `prepare` knows; the first that matches counts.
LAYERS = (
    # attention takes this one's weight and never calls it
    Layer(nn.modules.linear.NonDynamicallyQuantizableLinear, input=False),
    Layer(nn.Linear),
    Layer(nn.Conv1d), Layer(nn.Conv2d), Layer(nn.Conv3d),
    Layer(nn.ConvTranspose1d, axis=1), Layer(nn.ConvTranspose2d, axis=1),
    Layer(nn.ConvTranspose3d, axis=1),
    Layer(nn.Embedding, input=False), Layer(nn.EmbeddingBag, input=False),
    Layer(nn.MultiheadAttention, "in_proj_weight", input=False),
)  # fmt: skip

_INPUT = "input_quantizer"  #: the name of a layer's FakeQuantize for its input


@dataclass(frozen=True)
class Prepared:
    """What `prepare` put into a model, and the way back.

    weights, activations: names of what is quantized now. left: names of modules that hold
    parameters and were left as they are, with their class. As a context manager it ends with
    `undo`.
    """

    weights: tuple[str, ...]
    activations: tuple[str, ...]
    left: tuple[str, ...]
    _ways_back: list[Callable[[], None]] = field(repr=False, compare=False)

    def undo(self) -> None:
        """Take everything out again: weights are what training made of them, not rounded."""
        while self._ways_back:
            self._ways_back.pop()()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


def prepare(
    model: nn.Module,
    *,
    weights: FakeQuantize | Grid | Target | None = None,
    activations: FakeQuantize | Grid | Target | None = None,
    only: str | Sequence[str] = "*",
    skip: str | Sequence[str] = (),
) -> Prepared:
    """Put fake quantization into a model: into its layers' weights and in front of the layers.

    >>> import torch
    >>> from fpemu.torch import prepare
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    >>> prepared = prepare(model, weights="int8", activations="e4m3fn", skip=["2"])
    >>> prepared.weights, prepared.activations, prepared.left
    (('0.weight',), ('0',), ('2 (Linear)',))
    >>> prepared.undo()

    weights: a format for each layer's weight, at the scale of its amax: a scale for each output
    channel for integers, one for the whole weight for floats.
    activations: a format for each layer's input, at a scale from a moving average of amax, which
    is learned in training mode.
    For both, a `FakeQuantize` may be given instead: each place gets a copy of it.
    only, skip: patterns of module names, as "encoder.*", one or several; all and none unless given.

    The model is changed in place. Optimizers made before or after work on the same parameters,
    which stay float32; state dicts name them "parametrizations.weight.original" until `undo`.
    Layers are linear, (transposed) convolution, embedding, and the input projection of
    attention, see `LAYERS`; recurrent ones are left. Nothing to do is an InputError, and so is a
    layer that is prepared or lazy; then nothing is changed.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"{type(model).__name__}: give a torch.nn.Module")
    make_weight, make_input = _maker(weights, _weight), _maker(activations, _activation)
    sites = [site for site in _sites(model) if _chosen(site.name, only, skip)]
    todo = [
        *((site, _wrap_weight, make_weight) for site in sites if make_weight and site.weight),
        *((site, _wrap_input, make_input) for site in sites if make_input and site.layer.input),
    ]
    if not todo:
        raise InputError("nothing to quantize: give weights= or activations=, and names that exist")
    for site, *_ in todo:
        _check(site)
    prepared = Prepared(
        weights=tuple(site.path for site, wrap, _ in todo if wrap is _wrap_weight),
        activations=tuple(site.name for site, wrap, _ in todo if wrap is _wrap_input),
        left=tuple(_left(model, {site.name for site, *_ in todo})),
        _ways_back=[],
    )
    try:
        for site, wrap, make in todo:
            prepared._ways_back.append(wrap(site, make(site.layer)))
    except BaseException:
        prepared.undo()
        raise
    return prepared


# --- where -------------------------------------------------------------------------------------


class _Site(NamedTuple):
    name: str
    module: nn.Module
    layer: Layer

    @property
    def weight(self) -> str:
        """The weight's name; empty where this module has none (attention of unlike widths)."""
        return self.layer.weight if getattr(self.module, self.layer.weight) is not None else ""

    @property
    def path(self) -> str:
        return f"{self.name}.{self.weight}".lstrip(".")


def _sites(model: nn.Module) -> Iterator[_Site]:
    for name, module in model.named_modules():
        layer = next((one for one in LAYERS if isinstance(module, one.module)), None)
        if layer:
            yield _Site(name, module, layer)


def _chosen(name: str, only: str | Sequence[str], skip: str | Sequence[str]) -> bool:
    return _matches(name, only) and not _matches(name, skip)


def _matches(name: str, patterns: str | Sequence[str]) -> bool:
    each = (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(each, Iterable) or not all(isinstance(one, str) for one in each):
        raise InputError(f"{repr(patterns)[:80]}: only= and skip= are patterns of module names")
    return any(fnmatchcase(name, pattern) for pattern in each)


def _left(model: nn.Module, done: set[str]) -> Iterator[str]:
    for name, module in model.named_modules():
        if name not in done and any(True for _ in module.parameters(recurse=False)):
            yield f"{name} ({type(module).__name__})".lstrip()


def _check(site: _Site) -> None:
    if any(map(nn.parameter.is_lazy, site.module.parameters(recurse=False))):
        raise InputError(f"module {site.name!r} is lazy: run a batch through the model first")
    if parametrize.is_parametrized(site.module) or hasattr(site.module, _INPUT):
        raise InputError(
            f"module {site.name!r} is prepared or parametrized already: undo that, or skip it"
        )


# --- what --------------------------------------------------------------------------------------

_Make = Callable[[Layer], FakeQuantize]


def _maker(
    wanted: FakeQuantize | Grid | Target | None, make: Callable[[Grid, Layer], FakeQuantize]
) -> _Make | None:
    if wanted is None:
        return None
    if isinstance(wanted, FakeQuantize):
        return lambda layer: copy.deepcopy(wanted)
    grid = make_grid(wanted, overflow=Overflow.SATURATE)  # an unknown name is refused here
    return lambda layer: make(grid, layer)


def _weight(grid: Grid, layer: Layer) -> FakeQuantize:
    return FakeQuantize(grid, axis=layer.axis if isinstance(grid, Integer) else None)


def _activation(grid: Grid, layer: Layer) -> FakeQuantize:
    return FakeQuantize(grid, observer=Observer.MOVING_AVERAGE)


# --- how ---------------------------------------------------------------------------------------


def _wrap_weight(site: _Site, quantize: FakeQuantize) -> Callable[[], None]:
    module, name = site.module, site.weight
    order = list(module._parameters)
    parametrize.register_parametrization(module, name, quantize.train(module.training))

    def undo() -> None:
        parametrize.remove_parametrizations(module, name, leave_parametrized=False)
        for each in order:  # as it was: optimizers' state dicts count parameters
            module._parameters[each] = module._parameters.pop(each)

    return undo


def _wrap_input(site: _Site, quantize: FakeQuantize) -> Callable[[], None]:
    module = site.module
    module.add_module(_INPUT, quantize.train(module.training))
    hook = module.register_forward_pre_hook(_quantize_input, with_kwargs=True)

    def undo() -> None:
        hook.remove()
        delattr(module, _INPUT)

    return undo


def _quantize_input(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    quantize = getattr(module, _INPUT)
    if arguments:
        return (quantize(arguments[0]), *arguments[1:]), options
    return arguments, options | {"input": quantize(options["input"])}
