"""The CUDA toolchain without a GPU: compile to PTX, assemble, disassemble, and say what is missing.

Everything comes from PyPI wheels: numba-cuda, cuda-toolkit[nvcc,nvrtc,nvvm] and
nvidia-cuda-nvdisasm. `python tests/ptx_toolchain.py` prints the tools, or fails with what lacks.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

__all__ = ["ARCHITECTURES", "Assembled", "assemble", "function_ptx", "kernel_ptx", "missing"]

#: What kernels are compiled for: A100, H100 and H200, B200.
ARCHITECTURES = ((8, 0), (9, 0), (10, 0))

_WHEELS = "numba-cuda==0.30.4 'cuda-toolkit[nvcc,nvrtc,nvvm]==13.0.*' nvidia-cuda-nvdisasm"


def missing() -> str | None:
    """Why nothing can be compiled and assembled here, or None."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        return "NUMBA_ENABLE_CUDASIM is set: the simulator compiles nothing; unset it"
    lacking = [] if importlib.util.find_spec("numba_cuda") else ["numba-cuda"]
    lacking += [name for name in ("ptxas", "nvdisasm") if tool(name) is None]
    return f"{', '.join(lacking)} not found: pip install {_WHEELS}" if lacking else None


def tool(name: str) -> str | None:
    """The path of a program of the toolkit's wheels, else of PATH."""
    wheels = importlib.util.find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        for found in sorted(Path(folder).glob(f"cu1*/bin/{name}"), reverse=True):
            return str(found)
    return shutil.which(name)


# --- compiling ---------------------------------------------------------------------------------


def kernel_ptx(kernel: Any, signature: Any, capability: tuple[int, int]) -> str:
    """The PTX of a kernel made by `cuda_target.jit`."""
    return _compiled(kernel.py_func, signature, capability, device=False)


def function_ptx(function: Callable[..., Any], signature: Any, capability: tuple[int, int]) -> str:
    """The PTX of a scalar function, callable from C."""
    return _compiled(function, signature, capability, device=True, abi="c")


def _compiled(function: Any, signature: Any, capability: tuple[int, int], **options: Any) -> str:
    from fpemu.kernels.cuda_target import cuda

    class Device:  # what numba asks the driver for where a kernel calls a function
        compute_capability = capability

    dispatcher = importlib.import_module("numba.cuda.dispatcher")
    with mock.patch.object(dispatcher, "get_current_device", Device):
        text: str = cuda.compile_ptx(function, signature, cc=capability, **options)[0]
    return text


# --- assembling --------------------------------------------------------------------------------


class Assembled(NamedTuple):
    """What ptxas made of a kernel."""

    registers: int
    stack: int  #: bytes of local memory
    spills: int  #: bytes stored and loaded
    shared: int  #: bytes of static shared memory
    binary: bytes

    def instructions(self) -> tuple[str, ...]:
        """The machine code without addresses, and its labels, which end in a colon.

        nvdisasm takes most of a second for it.
        """
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder, "kernel.cubin")
            cubin.write_bytes(self.binary)
            listing = _run("nvdisasm", "-c", str(cubin))
        lines = re.finditer(
            r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;|^(\.L_\w+:)", listing, re.MULTILINE
        )
        return tuple(found[1] or found[2] for found in lines)


def assemble(ptx: str, capability: tuple[int, int]) -> Assembled:
    """Assemble PTX, warnings as errors; an error of ptxas is raised with its text."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        arch = "sm_{}{}".format(*capability)
        report = _run("ptxas", "-Werror", "-v", f"-arch={arch}", str(source), "-o", str(cubin))
        binary = cubin.read_bytes()
    return Assembled(
        registers=_sum(r"Used (\d+) registers", report),
        stack=_sum(r"(\d+) bytes stack frame", report),
        spills=_sum(r"(\d+) bytes spill", report),
        shared=_sum(r"(\d+) bytes smem", report),
        binary=binary,
    )


def _run(name: str, *arguments: str) -> str:
    program = tool(name)
    assert program is not None, missing()
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _sum(pattern: str, report: str) -> int:
    return sum(map(int, re.findall(pattern, report)))


if __name__ == "__main__":
    lack = missing()
    if lack is not None:
        sys.exit(lack)
    for program in ("ptxas", "nvdisasm"):
        print(tool(program), _run(program, "--version").splitlines()[-2])
