"""Which machine this is: versions, the card, and whether there is one."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from fpemu.errors import MissingExtraError

__all__ = ["card", "free_bytes", "versions", "why_not"]

_PACKAGES = (
    "fpemu", "numpy", "numba", "numba-cuda", "llvmlite", "ml_dtypes", "cuda-bindings", "cuda-core",
    "nvidia-nvvm", "nvidia-cuda-nvcc", "torch", "jax", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def why_not() -> str:
    """Say in a line why nothing can run on a CUDA device; empty if something can."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return "NUMBA_ENABLE_CUDASIM is set: that is the simulator, not a GPU; unset it"
    try:
        target: Any = importlib.import_module("fpemu.kernels.cuda_target")
    except MissingExtraError as error:
        return str(error)
    cuda = target.cuda
    if not cuda.is_available():
        return f"no CUDA device: {_one_line(cuda.cuda_error() or 'the driver lists none')}"
    try:
        _try(cuda)
    except Exception as error:  # of the compiler, the linker or the driver: all mean no
        return (f"the CUDA device runs no compiled kernel: {_one_line(error)}; is the driver older "
                "than the CUDA toolkit that is installed?")  # fmt: skip
    return ""


def _try(cuda: Any) -> None:
    """Compile and run the smallest kernel."""
    import numpy as np

    from on_gpu.inputs import fill_kernel

    out = cuda.to_device(np.zeros(1000, np.uint32))
    one = np.uint64(1)
    fill_kernel()[128, 32](out, np.uint64(out.size), np.uint64(0), one)
    assert (out.copy_to_host() == np.arange(1000)).all(), "a kernel wrote what it should not"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


def card(device: int) -> dict[str, Any]:
    """Return the facts of a card."""
    from fpemu.kernels.cuda_target import cuda

    with cuda.gpus[device]:
        gpu = cuda.get_current_device()
        free, total = cuda.current_context().get_memory_info()
        name = gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name)
        return {
            "card": name,
            "capability": list(gpu.compute_capability),
            "processors": int(gpu.MULTIPROCESSOR_COUNT),
            "memory_bytes": int(total),
            "free_bytes": int(free),
            "devices": len(cuda.gpus),
        }


def free_bytes(device: int) -> int:
    """Return how much of a card's memory is free."""
    return int(card(device)["free_bytes"])


def versions() -> dict[str, str]:
    """Return the versions of all that takes part; what is not installed is left out."""
    found = {"python": platform.python_version(), "driver": _driver(), "cuda": _cuda()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if "fpemu" not in found:  # a checkout that is not installed
        found["fpemu"] = importlib.import_module("fpemu").__version__
    return {name: version for name, version in found.items() if version}


def _driver() -> str:
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "?"
    return said.split()[0] if said.split() else "?"


def _cuda() -> str:
    """The CUDA version that the driver knows."""
    try:
        driver = importlib.import_module("numba.cuda.cudadrv.driver")
        return ".".join(str(part) for part in driver.get_version())
    except Exception:  # a fact for the reader, not worth a failure
        return "?"
