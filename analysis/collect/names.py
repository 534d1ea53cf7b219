"""Names: what the watched modules and parameters are called, wrappers left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fpemu.analysis.collect.framework import torch
from fpemu.errors import InputError

__all__ = ["Names", "is_replicated", "models_of"]

#: Wrappers -> the attribute that holds the model they wrap.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
}


class Names:
    """The names of the modules and parameters of some models, read anew for each recorded step.

    >>> import torch
    >>> from fpemu.analysis.collect.names import Names
    >>> names = Names({"": torch.nn.Sequential(torch.nn.Linear(2, 2))})
    >>> sorted(names.parameters().values())
    ['0.bias', '0.weight']

    A model's own name goes before its modules' names; "" is that of the only model. A module or
    parameter that is used under several names has the first one.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module]) -> None:
        self._models = dict(models)
        self._modules: dict[int, str] = {}
        self._weights: dict[int, str] = {}
        self._order: list[torch.nn.Parameter] = []
        self.read()

    def read(self) -> None:
        """Look through the models: modules may have been added or replaced."""
        self._modules, self._weights, self._order = {}, {}, []
        for prefix, model in self._models.items():
            self._read(prefix, model)

    def _read(self, prefix: str, model: torch.nn.Module) -> None:
        for wrapper in _wrappers(model):
            self._modules.setdefault(id(wrapper), "")  # passed through: it has no name
        bare = unwrapped(model)
        for name, module in bare.named_modules(remove_duplicate=False):
            full = ".".join(filter(None, (prefix, name))) or type(bare).__name__
            self._modules.setdefault(id(module), full)
        for name, weight in bare.named_parameters(remove_duplicate=False):
            if id(weight) not in self._weights and not _is_lazy(weight):
                self._weights[id(weight)] = ".".join(filter(None, (prefix, name)))
                self._order.append(weight)

    def add(self, model: torch.nn.Module) -> None:
        """Take one model more; a second one, and those after it, are named by their class."""
        kind, taken = type(unwrapped(model)).__name__, set(self._models)
        if "" in taken:  # its own operations go by its class
            taken.add(type(unwrapped(self._models[""])).__name__)
        choices = ["", kind, *(f"{kind}{k}" for k in range(2, len(taken) + 3))]
        name = choices[0] if not taken else next(c for c in choices[1:] if c not in taken)
        self._models[name] = model
        self._read(name, model)

    def module(self, module: torch.nn.Module) -> str | None:
        """Return a module's name; "" for a wrapper, None for a stranger."""
        return self._modules.get(id(module))

    def weight(self, weight: Any) -> str | None:
        """Return a parameter's name, or None for any other tensor."""
        return self._weights.get(id(weight))

    def parameters(self) -> dict[torch.nn.Parameter, str]:
        """Return each parameter with its name, in the order of the models."""
        return {weight: self._weights[id(weight)] for weight in self._order}

    def forget(self) -> None:
        """Let go of the models."""
        self._models.clear()
        self._modules, self._weights, self._order = {}, {}, []


def models_of(model: Any) -> dict[str, torch.nn.Module]:
    """Return the models that a caller gave, by name: one, a list, a dict, or None for none yet."""
    if model is None:
        return {}
    if isinstance(model, torch.nn.Module):
        return {"": model}
    if isinstance(model, Mapping):
        named = {str(name): value for name, value in model.items()}
    elif isinstance(model, Iterable):
        given = list(model)
        named = dict(zip(_class_names(given), given, strict=True))
    else:
        named = {"": model}
    if not named:
        raise InputError(f"model {model!r}: holds no model; give one, or None to have all found")
    for value in named.values():
        if not isinstance(value, torch.nn.Module):
            raise InputError(
                f"model {type(value).__name__}: no torch.nn.Module; give the model, or a list or "
                "dict of models"
            )
    return named


def _class_names(models: list[Any]) -> list[str]:
    """The name of each model's class, with a number where it comes again."""
    names: list[str] = []
    for model in models:
        kind = type(unwrapped(model)).__name__ if isinstance(model, torch.nn.Module) else "?"
        same = sum(name.rstrip("0123456789") == kind for name in names)
        names.append(f"{kind}{same + 1}" if same else kind)
    return names


def is_replicated(models: Iterable[torch.nn.Module]) -> bool:
    """Whether each process of the run has a copy of the same weights (DistributedDataParallel)."""
    return any(type(w).__name__ == "DistributedDataParallel" for m in models for w in _wrappers(m))


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside its wrappers."""
    for wrapper in _wrappers(model):
        model = getattr(wrapper, _WRAPPERS[type(wrapper).__name__])
    return model


def _wrappers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    while (inner := _WRAPPERS.get(type(model).__name__)) and hasattr(model, inner):
        yield model
        model = getattr(model, inner)


def _is_lazy(weight: torch.nn.Parameter) -> bool:
    return isinstance(weight, torch.nn.UninitializedParameter)
