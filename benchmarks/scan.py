"""How fast `fpemu scan` reads a warm file on one thread, and how much memory it takes at most.

    OMP_NUM_THREADS=1 python benchmarks/scan.py [--gigabytes 2] [--repeats 5] [--json]

For each dtype a safetensors file with one tensor of that size is written, read once so that the
system holds it in memory, and scanned in a fresh process: the median rates of the repeats, by the
clock and by the processor's time (which others at work on the machine disturb less), and the peak
resident memory of the whole process, Python and numba included. One row is a PyTorch file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fpemu

#: safetensors dtype -> what is cast to it, and how its codes are made.
DTYPES = {
    "F32": None, "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F64": None,
}  # fmt: skip

_TILE = 1 << 22  # numbers that are written again and again

_CHILD = """
import json, resource, sys, time
from fpemu.analysis.checkpoints import scan
path, repeats = sys.argv[1], int(sys.argv[2])
wall, busy = [], []
for _ in range(repeats + 1):
    start, used = time.perf_counter(), time.process_time()
    found = scan(path, threads=1)
    busy.append(found.octets / (time.process_time() - used))
    wall.append(found.octets / (time.perf_counter() - start))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kibibytes; bytes on macOS
peak *= 1 if sys.platform == "darwin" else 1024
print(json.dumps({"wall": wall[1:], "busy": busy[1:], "peak": peak}))
"""


def tile(dtype: str) -> bytes:
    """Numbers like weights of a layer, as the dtype has them."""
    x = np.random.default_rng(0).standard_normal(_TILE, np.float32) * np.float32(0.02)
    if dtype == "F64":
        return x.astype(np.float64).tobytes()
    to = DTYPES[dtype]
    if to is None:
        return x.tobytes()
    packed = fpemu.finfo(to).bits < 8
    return fpemu.encode(x * np.float32(16), to, packed=packed).tobytes()  # type: ignore[no-any-return]


def write(path: Path, dtype: str, size: int) -> None:
    """Write a safetensors file of about `size` bytes."""
    piece = tile(dtype)
    times = max(1, size // len(piece))
    facts = {"dtype": dtype, "shape": [times, _TILE], "data_offsets": [0, times * len(piece)]}
    header = json.dumps({"weight": facts}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(times):
            file.write(piece)


def write_torch(path: Path, size: int) -> None:
    """Write the same as BF16 with PyTorch."""
    import torch

    piece = torch.frombuffer(bytearray(tile("BF16")), dtype=torch.bfloat16)
    torch.save({"weight": piece.repeat(max(1, size // piece.nbytes))}, path)


def measure(path: Path, repeats: int) -> dict[str, Any]:
    """Scan a file in a process of its own."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):  # warm it
            pass
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), str(repeats)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    return {
        "gigabytes": path.stat().st_size / 1e9,
        "gigabytes_a_second": statistics.median(found["wall"]) / 1e9,
        "gigabytes_a_processor_second": statistics.median(found["busy"]) / 1e9,
        "peak_mebibytes": found["peak"] / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtypes", nargs="*", default=[*DTYPES, "torch BF16"])
    parser.add_argument("--folder", help="where the files are written")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    size, rows = int(asked.gigabytes * 1e9), {}
    for dtype in asked.dtypes:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            path = Path(folder, "checkpoint.pt" if dtype.startswith("torch") else "a.safetensors")
            if dtype.startswith("torch"):
                write_torch(path, size)
            else:
                write(path, dtype, size)
            rows[dtype] = measure(path, asked.repeats)
        if not asked.json:
            row = rows[dtype]
            print(f"{dtype:10}  {row['gigabytes']:5.2f} GB  {row['gigabytes_a_second']:5.2f} GB/s  "
                  f"{row['gigabytes_a_processor_second']:5.2f} GB a processor second  "
                  f"peak {row['peak_mebibytes']:4.0f} MiB", flush=True)  # fmt: skip
    if asked.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
