"""How fast `fpemu convert` is on a warm checkpoint, and how much memory it takes at most.

    OMP_NUM_THREADS=1 python benchmarks/convert.py [--gigabytes 2] [--threads 1] [--json]

A safetensors file of bfloat16 tensors of 4096 x 4096 is written, and converted by each recipe in a
process of its own, to values and to codes: bytes read by the clock and by the processor's time
(which others at work on the machine disturb less), and the peak resident memory of the process by
Linux's VmHWM, Python and numba included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RECIPES = ("bf16", "mxfp8", "mxfp4", "nvfp4", "te.current")

_SIDE = 4096

_CHILD = """
import json, sys, tempfile, time
from pathlib import Path
from fpemu.analysis import convert
source, to, codes, threads, folder, small = sys.argv[1:]
asked = {"codes": codes == "True", "threads": int(threads), "force": True}
out = Path(folder, "out.safetensors")
convert(small, to, out, **asked)  # compiles what is needed
start, used = time.perf_counter(), time.process_time()
done = convert(source, to, out, **asked)
wall, busy = time.perf_counter() - start, time.process_time() - used
out.unlink()
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0])
print(json.dumps({"gigabytes_a_second": done.octets / wall / 1e9,
                  "gigabytes_a_processor_second": done.octets / busy / 1e9,
                  "peak_mebibytes": peak / 1024, "to_gigabytes": done.to_octets / 1e9}))
"""


def write(path: Path, tensors: int) -> None:
    """Write a file of so many tensors of random weights."""
    x = np.random.default_rng(0).standard_normal((_SIDE, _SIDE), np.float32) * np.float32(0.02)
    piece = (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    header = {
        f"layers.{k}.weight": {
            "dtype": "BF16", "shape": [_SIDE, _SIDE],
            "data_offsets": [k * len(piece), (k + 1) * len(piece)],
        }
        for k in range(tensors)
    }  # fmt: skip
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(tensors):
            file.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    parser.add_argument("--folder", help="where the files are written")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        source, small = Path(folder, "a.safetensors"), Path(folder, "b.safetensors")
        write(source, max(1, round(asked.gigabytes * 1e9 / (2 * _SIDE**2))))
        write(small, 1)
        for to in asked.recipes:
            for codes in (False, True):
                arguments = [source, to, codes, asked.threads, folder, small]
                done = subprocess.run(
                    [sys.executable, "-c", _CHILD, *map(str, arguments)],
                    stdout=subprocess.PIPE, text=True, check=True,
                )  # fmt: skip
                name = f"{to}{' as codes' if codes else ''}"
                rows[name] = row = json.loads(done.stdout)
                if not asked.json:
                    print(f"{name:20}  {row['gigabytes_a_second']:5.2f} GB/s  "
                          f"{row['gigabytes_a_processor_second']:5.2f} GB/s of processor time  "
                          f"{row['peak_mebibytes']:5.0f} MiB", flush=True)  # fmt: skip
    if asked.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
