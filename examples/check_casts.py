"""Hold the casts of ml_dtypes, torch and JAX against the exact definition.

    python examples/check_casts.py

Each library that is installed is compared, cast by cast, with plain rounding to nearest of the
same format (saturating where the library saturates); what differs is printed by kind.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import fpemu
from fpemu.testing import differences

Array = np.ndarray[Any, Any]


def ml_dtypes_cast(name: str) -> Callable[[Array], Array]:
    dtype = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return lambda x: x.astype(dtype).astype(np.float32)


def torch_cast(name: str) -> Callable[[Array], Array]:
    torch = importlib.import_module("torch")
    dtype = getattr(torch, name)
    return lambda x: np.asarray(torch.from_numpy(x).to(dtype).to(torch.float32).numpy())


def jax_cast(name: str) -> Callable[[Array], Array]:
    jnp = importlib.import_module("jax.numpy")
    dtype = getattr(jnp, name)
    return lambda x: np.asarray(jnp.asarray(x).astype(dtype)).astype(np.float32)


LIBRARIES = {"ml_dtypes": ml_dtypes_cast, "torch": torch_cast, "jax": jax_cast}


def main() -> None:
    for library, cast_of in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            print(f"{library}: not installed")
            continue
        print(f"{library} {importlib.import_module(library).__version__}")
        for preset, cast in fpemu.casts.items():
            system, _, dtype = preset.partition(".")
            if system == library and "." not in dtype:
                found = differences(cast_of(dtype), cast)
                print(f"  {dtype}: {found if found else 'exact'}".replace("\n", "\n  "))


if __name__ == "__main__":
    main()
