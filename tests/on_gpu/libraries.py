"""Kinds of arrays on a CUDA device: how to make one of a host array, and how to read it back."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["KINDS", "NARROW", "DLPackOnly", "InterfaceOnly", "Kind"]

Array = np.ndarray[Any, Any]


class InterfaceOnly:
    """An array of nobody's: a numba device array behind the CUDA array interface alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        facts: dict[str, Any] = self._array.__cuda_array_interface__
        return facts


class DLPackOnly:
    """A tensor behind DLPack alone."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def __dlpack_device__(self) -> tuple[Any, int]:
        found: tuple[Any, int] = self._tensor.__dlpack_device__()
        return found

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)


class Kind(NamedTuple):
    """A kind of array on the current device."""

    name: str
    why_not: Callable[[], str]  #: why there is none here; empty if there is
    put: Callable[[Array], Any]
    get: Callable[[Any], Array]  #: of what fpemu returns for it
    result: Callable[[], type]  #: the type of what fpemu returns
    strided: bool = True  #: an array of any strides is taken
    writable: bool = True  #: may be given as out=


def _torch() -> Any:
    return importlib.import_module("torch")


def _numba() -> Any:
    return importlib.import_module("fpemu.kernels.cuda_target").cuda


def _no_torch() -> str:
    from on_gpu.frameworks import why_no_torch

    return why_no_torch()


def _no_cupy() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed"
    cupy: Any = importlib.import_module("cupy")
    return "" if cupy.cuda.is_available() else "cupy sees no CUDA device"


def _no_jax() -> str:
    if importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    jax: Any = importlib.import_module("jax")
    try:
        return "" if jax.devices("cuda") else "jax sees no CUDA device"
    except RuntimeError as error:  # it has no CUDA plugin
        return f"jax sees no CUDA device: {str(error).splitlines()[0]}"


def _from_torch(tensor: Any) -> Array:
    from fpemu.libraries.torch_tensors import TORCH

    return TORCH.to_numpy(tensor.cpu())


def _to_torch(array: Array) -> Any:
    from fpemu.libraries.torch_tensors import TORCH

    tensor = TORCH.from_numpy(np.array(array, order="C"), None)
    return tensor.cuda()


def _jax_put(array: Array) -> Any:
    jax: Any = importlib.import_module("jax")
    return jax.device_put(array, jax.devices("cuda")[0])


def _cupy() -> Any:
    return importlib.import_module("cupy")


def _device_array(array: Array) -> Any:
    return _numba().to_device(np.array(array, order="C"))


def _numba_type() -> type:
    return type(_numba().device_array(1))


KINDS = (
    Kind("torch", _no_torch, _to_torch, _from_torch, lambda: _torch().Tensor),
    Kind("cupy", _no_cupy, lambda a: _cupy().asarray(a), lambda x: x.get(),
         lambda: _cupy().ndarray),
    Kind("jax", _no_jax, _jax_put, lambda x: np.asarray(x),
         lambda: importlib.import_module("jax").Array, writable=False),
    Kind("numba", lambda: "", _device_array, lambda x: x.copy_to_host(), _numba_type,
         strided=False),
    Kind("interface", lambda: "", lambda a: InterfaceOnly(_device_array(a)),
         lambda x: x.copy_to_host(), _numba_type, strided=False, writable=False),
    Kind("dlpack", _no_torch, lambda a: DLPackOnly(_to_torch(a)), lambda x: x.copy_to_host(),
         _numba_type, strided=False, writable=False),
)  # fmt: skip

#: Narrow dtypes of PyTorch that numpy or ml_dtypes has too.
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
