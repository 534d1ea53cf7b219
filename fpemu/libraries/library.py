"""Library: what fpemu needs of a library of arrays; and which library an array belongs to.

No library is imported unless one of its arrays was given: by then it has been imported.
"""

from __future__ import annotations

import enum
import importlib
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fpemu.errors import FpemuError, InputError

__all__ = ["Library", "Place", "host_array", "host_out", "library_of", "one_line", "out_of"]

Array = np.ndarray[Any, Any]


class Place(enum.Enum):
    """Where an array lies."""

    HOST = "host"
    CUDA = "cuda"


class Library(Protocol):
    """A library of arrays. Dense arrays lie in one piece, without gaps, in some order of axes.

    To add one: a module like the others here, and a line in `_KNOWN`. A library whose arrays
    lie in one place only leaves out the other place's methods.
    """

    #: Results are ready only when the device is: the library has streams of its own.
    waits: bool

    def place(self, x: Any) -> Place:
        """Where x lies; an array that cannot be taken is an InputError."""

    def open_out(self, out: Any) -> None:
        """Refuse an array that takes no results, as an InputError; others will be written to."""

    # --- of arrays on the host

    def to_numpy(self, x: Any) -> Array:
        """An array on the host, without a copy where the library allows."""

    def from_numpy(self, array: Array, like: Any) -> Any:
        """The same on the host as an array of the library."""

    # --- of arrays on a CUDA device

    def dtype(self, x: Any) -> np.dtype[Any]:
        """numpy's dtype, or ml_dtypes'."""

    def dense(self, x: Any, c_order: bool) -> Any:
        """x itself, or a dense copy; with c_order, its elements in C order."""

    def shape(self, x: Any) -> tuple[int, ...]:
        """Lengths of the axes."""

    def strides(self, x: Any) -> tuple[int, ...]:
        """Steps between elements along each axis, in elements."""

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new array of the shape, order and device of a dense one."""

    def new(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array of another shape, in C order, on a dense one's device."""

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, stream and device ordinal (None: the current one) of a dense array."""

    def copy(self, source: Any, out: Any) -> None:
        """Copy to an array of the same shape and dtype, of any layout."""


#: Root of the type's module -> module and name of its Library.
_KNOWN = {
    "torch": ("fpemu.libraries.torch_tensors", "TORCH"),
    "jax": ("fpemu.libraries.jax_arrays", "JAX"),
    "jaxlib": ("fpemu.libraries.jax_arrays", "JAX"),
    "cupy": ("fpemu.libraries.cupy_arrays", "CUPY"),
    "numba": ("fpemu.libraries.device_arrays", "NUMBA"),
    "numpy": None,
    "builtins": None,
    "ml_dtypes": None,
}


def library_of(x: Any) -> Library | None:
    """Return the library of an array; None for numpy's, and for all that numpy has to read."""
    kind: Any = type(x)
    return _library_of(kind)


@lru_cache(maxsize=256)
def _library_of(kind: Any) -> Library | None:
    for base in kind.__mro__[:-1]:  # a user's subclass of a tensor is a tensor
        found = _KNOWN.get(base.__module__.partition(".")[0], "")
        if found is None:
            return None
        if found and _is_array(base):
            return _load(*found)
    if hasattr(kind, "__cuda_array_interface__"):
        return _load("fpemu.libraries.device_arrays", "INTERFACE")
    if hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__"):
        return _load("fpemu.libraries.dlpack_arrays", "DLPACK")
    return None


def _is_array(kind: type) -> bool:
    """Whether a library's class is one of arrays: it has other classes too."""
    return any(
        hasattr(kind, name)
        for name in ("__cuda_array_interface__", "__dlpack__", "__jax_array__", "__cuda_ndarray__")
    ) or kind.__name__.endswith("Tracer")


def _load(module: str, name: str) -> Library:
    library: Library = getattr(importlib.import_module(module), name)
    return library


class one_line:
    """Turn whatever an array's own library raises into an InputError of one line.

    A class, as `contextmanager` would take a microsecond more of each call.
    """

    __slots__ = ("_way", "_x")

    def __init__(self, x: Any, way: str) -> None:
        self._x, self._way = x, way

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, wrong: BaseException | None, trace: Any) -> None:
        if isinstance(wrong, Exception) and not isinstance(wrong, FpemuError):
            said = (str(wrong).splitlines() or [""])[0][:120]
            raise InputError(
                f"{type(self._x).__name__}: cannot be taken ({type(wrong).__name__}: {said}); "
                f"{self._way}"
            ) from None


def host_array(x: Any) -> Any:
    """Return another library's array as numpy's; everything else as it is.

    An array on a CUDA device is an InputError: it is not copied without being asked.
    """
    library = None if type(x) is np.ndarray else library_of(x)
    if library is None:
        return x
    if library.place(x) is Place.CUDA:
        raise InputError(
            f"{type(x).__name__} on a CUDA device: only round, encode, decode, tally and recipes "
            "work there; copy it to the host (torch: x.cpu(), cupy: x.get())"
        )
    return library.to_numpy(x)


def out_of(out: Any, library: Library, place: Place) -> Any:
    """Check that `out` is of the input's library and lies where it does."""
    if library_of(out) is not library:
        raise InputError(f"out={type(out).__name__}: must be an array of x's own library")
    if library.place(out) is not place:
        raise InputError("out lies on another device than x: give an array on x's own")
    library.open_out(out)
    return out


def host_out(out: Any, library: Library) -> Any:
    """Return `out`, an array on the host, as numpy's; None as it is."""
    return None if out is None else library.to_numpy(out_of(out, library, Place.HOST))
