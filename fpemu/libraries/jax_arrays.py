"""JAX's arrays, on the host and on CUDA devices."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.library import Place, one_line

__all__ = ["JAX", "Jax"]

Array = np.ndarray[Any, Any]


class Jax:
    """JAX, as `fpemu.libraries.library.Library`."""

    waits = True  # XLA computes in streams of its own

    def place(self, x: Any) -> Place:
        """Where an array lies; traced and sharded ones are refused."""
        if isinstance(x, sys.modules["jax"].core.Tracer):
            raise InputError(
                f"{type(x).__name__}: fpemu cannot be traced by JAX; call it outside of jit, grad "
                "and vmap, or through jax.pure_callback"
            )
        if x.is_deleted():
            raise InputError(
                "array of JAX that has been deleted or donated: its memory is gone; keep it, or "
                "give a copy"
            )
        kinds = {device.platform for device in x.devices()}
        if kinds == {"cpu"}:
            return Place.HOST
        if kinds <= {"gpu", "cuda"} and len(x.devices()) == 1:
            return Place.CUDA
        where = ", ".join(sorted(str(device) for device in x.devices()))
        raise InputError(
            f"array on {where}: fpemu works on the CPU and on one CUDA device; give it a shard "
            "(x.addressable_shards) or np.asarray(x)"
        )

    def open_out(self, out: Any) -> None:
        """JAX's arrays cannot be written to."""
        raise InputError("out: arrays of JAX cannot be written to; leave it out")

    def to_numpy(self, x: Any) -> Array:
        """An array's memory, read-only."""
        with one_line(x, "give an array of floats or codes"):
            return np.asarray(x)

    def from_numpy(self, array: Array, like: Any) -> Any:
        """An array on the devices of another."""
        jax = sys.modules["jax"]
        with one_line(like, "its result does not fit its sharding; give np.asarray(x)"):
            made = jax.device_put(array, like.sharding)
        if made.dtype != array.dtype:
            raise InputError(
                f"result of dtype {array.dtype.name}: JAX would cut it to {made.dtype.name}; set "
                "jax_enable_x64"
            )
        return made

    def dtype(self, x: Any) -> np.dtype[Any]:
        """An array's dtype."""
        found: np.dtype[Any] = np.dtype(x.dtype)
        return found

    def dense(self, x: Any, c_order: bool) -> Any:
        """x: JAX's arrays are dense."""
        return x

    def shape(self, x: Any) -> tuple[int, ...]:
        """An array's shape."""
        return tuple(x.shape)

    def strides(self, x: Any) -> tuple[int, ...]:
        """Those of C order."""
        return tuple(math.prod(x.shape[i + 1 :]) for i in range(x.ndim))

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new array, to be written to before anything reads it."""
        return self.new(like, like.shape, dtype)

    def new(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """The same, of another shape."""
        jax = sys.modules["jax"]
        made = jax.device_put(jax.numpy.zeros(shape, dtype), like.sharding)
        if made.dtype != dtype:
            raise InputError(f"result of dtype {dtype.name}: set jax_enable_x64 for it")
        return made

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, the default stream and device, once x has been computed."""
        x.block_until_ready()
        (device,) = x.devices()
        return x.unsafe_buffer_pointer(), 0, device.local_hardware_id

    def copy(self, source: Any, out: Any) -> None:
        """JAX's arrays cannot be written to."""
        self.open_out(out)


JAX = Jax()
