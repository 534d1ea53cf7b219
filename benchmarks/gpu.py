"""Everything that needs a GPU, in one command: are the bits the same, and how fast is it?

    pip install -e '.[cuda13]'        # or cuda12
    python benchmarks/gpu.py          # under four minutes; --quick: under one

1. Which machine this is.
2. The float64 arithmetic of tests/on_gpu/second.py on the device against the exact definition.
3. round and encode of all 2**32 float32 inputs in five formats against that arithmetic, with the
   general loops and with each cast's own.
4. PyTorch's own casts on the device, where it is installed.
5. The chip's own conversions (PTX cvt), as many as it has.
6. GB/s of every kernel beside a device-to-device copy of as many bytes.

Exit code: 0 if no bit differs, 1 if any does or a part failed, 2 where there is no CUDA device.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

QUICK_STEP = 251  # a prime: 17 million patterns with all kinds of low bits
CHUNK = 1 << 27


def main(arguments: list[str] | None = None) -> int:
    """Run everything, print it, and return the exit code."""
    options = _options(arguments)
    from on_gpu.machine import why_not

    reason = why_not()
    if reason:
        print(f"benchmarks/gpu.py: {reason}", file=sys.stderr)
        return 2
    from fpemu.kernels.cuda_target import cuda

    if options.device >= len(cuda.gpus):
        print(f"benchmarks/gpu.py: --device {options.device}: this machine has "
              f"{len(cuda.gpus)}, numbered from 0", file=sys.stderr)  # fmt: skip
        return 2
    cuda.select_device(options.device)
    return run(options)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="every 251st input, smaller arrays, fewer repeats"
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="ordinal of the GPU")
    parser.add_argument("--json", action="store_true", help="print JSON, progress on stderr")
    parser.add_argument("--no-speed", action="store_true", help="only compare bits")
    parser.add_argument("--no-bits", action="store_true", help="only measure speed")
    options = parser.parse_args(arguments)
    if options.device < 0:
        parser.error(f"--device {options.device}: must be 0 or more")
    if options.no_speed and options.no_bits:
        parser.error("--no-speed and --no-bits leave nothing to do")
    return options


class Found:
    """What the parts have found so far, printed as it comes."""

    def __init__(self, to: TextIO) -> None:
        self.to = to
        self.checks: list[Any] = []
        self.rows: list[Any] = []
        self.notes: list[str] = []  #: what could not be compared here
        self.failed: list[str] = []

    def part(self, what: str, results: Callable[[], Iterable[Any]]) -> None:
        """Keep and print a part's checks or rows; if it raises, go on with the next."""
        try:
            for result in results():
                speed = hasattr(result, "gigabytes_a_second")
                (self.rows if speed else self.checks).append(result)
                print((_row if speed else _check)(result), file=self.to, flush=True)
        except Exception as error:  # the other parts are worth their time on a borrowed machine
            traceback.print_exc()
            self.failed.append(f"{what}: {type(error).__name__}: {' '.join(str(error).split())}")
            print(f"  failed: {self.failed[-1]}", file=self.to, flush=True)

    def note(self, text: str) -> None:
        """Keep and print why something is not compared."""
        self.notes.append(text)
        print(f"  not compared: {text}", file=self.to, flush=True)

    @property
    def wrong(self) -> int:
        """How many comparisons found a difference."""
        return sum(check.differences > 0 for check in self.checks)


def run(options: argparse.Namespace) -> int:
    """Do the parts in turn on the current device."""
    from on_gpu.machine import card, versions

    started = time.monotonic()
    found = Found(sys.stderr if options.json else sys.stdout)
    facts = {"versions": versions(), **card(options.device)}
    print(_machine(facts), file=found.to)
    if not options.no_bits:
        print("\ncomparisons: inputs, differences", file=found.to)
        _bits(found, options, facts)
    if not options.no_speed:
        _speed(found, options)
    seconds = time.monotonic() - started
    print(f"\n{len(found.checks)} comparisons, {found.wrong} with differences, "
          f"{len(found.failed)} parts failed; {seconds:.0f} s", file=found.to)  # fmt: skip
    if options.json:
        print(json.dumps({
            "schema": 1, "machine": facts, "checks": [check.to_json() for check in found.checks],
            "not_compared": found.notes, "failed": found.failed,
            "speed": [row.to_json() for row in found.rows], "seconds": seconds,
        }, indent=1))  # fmt: skip
    return 1 if found.wrong or found.failed else 0


# --- bits --------------------------------------------------------------------------------------


def _bits(found: Found, options: argparse.Namespace, facts: dict[str, Any]) -> None:
    from on_gpu import FORMATS
    from on_gpu.inputs import every
    from on_gpu.second import against_exact
    from on_gpu.sweep import sweep

    step = QUICK_STEP if options.quick else 1
    chunk = _chunk(int(facts["free_bytes"]))
    for name in FORMATS:
        count = 10_000 if options.quick else 100_000
        found.part(f"{name}: exact", partial(against_exact, name, count))
    for name in FORMATS:
        for special in (False, True):
            compare = partial(sweep, name, every(step, chunk), special=special)
            found.part(f"{name}: sweep", compare)
    _instructions(found, step, chunk, tuple(facts["capability"]))
    _torch(found, step, chunk, options.device)


def _instructions(found: Found, step: int, chunk: int, capability: tuple[int, ...]) -> None:
    from on_gpu.convert import against_instruction
    from on_gpu.inputs import every
    from on_gpu.instructions import INSTRUCTIONS

    for instruction in INSTRUCTIONS:
        if capability < instruction.capability:
            first = ".".join(str(part) for part in instruction.capability)
            found.note(f"{instruction.name}: compute capability {first} and later have it")
            continue
        compare = partial(against_instruction, instruction, every(step, chunk))
        found.part(instruction.name, compare)


def _torch(found: Found, step: int, chunk: int, device: int) -> None:
    from on_gpu.frameworks import DTYPES, against_torch, why_no_torch

    reason = why_no_torch()
    if reason:
        found.note(f"PyTorch's casts: {reason}")
        return
    for dtype in DTYPES:
        compare = partial(against_torch, dtype, step=step, chunk=chunk, device=device)
        found.part(f"torch.{dtype}", compare)


def _chunk(free: int) -> int:
    """Inputs at a time: about 32 bytes of memory are in use for each."""
    return min(CHUNK, 1 << max((free // 64).bit_length() - 1, 16))


# --- speed -------------------------------------------------------------------------------------


def _speed(found: Found, options: argparse.Namespace) -> None:
    from on_gpu.machine import free_bytes
    from on_gpu.speed import allocate, cases, elements, measure

    n = elements(free_bytes(options.device), 1 << (24 if options.quick else 29))
    print(f"\nspeed: {n:,} float32 elements (float64: half as many); GB/s count bytes read and "
          "written;\nshare: the time of a copy of as many bytes, as a part of the kernel's\n\n"
          f"  {'':52}{'ms':>9}{'GB/s':>9}{'copy':>9}{'share':>8}", file=found.to)  # fmt: skip
    arrays = allocate(n)
    for case in cases():
        found.part(case.what, partial(measure, case, arrays, 5 if options.quick else 15))


# --- printing ----------------------------------------------------------------------------------


def _machine(facts: dict[str, Any]) -> str:
    capability = ".".join(str(part) for part in facts["capability"])
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (f"{facts['card']}, compute capability {capability}, {facts['processors']} processors, "
            f"{facts['memory_bytes'] / 2**30:.0f} GiB\n{versions}")  # fmt: skip


def _check(check: Any) -> str:
    line = f"  {check.what:52}{check.inputs:16,}{check.differences:16,}"
    return f"{line}  first: {check.first}" if check.first else line


def _row(row: Any) -> str:
    copied = row.bytes / row.copy_seconds / 1e9
    return (f"  {row.what:52}{row.seconds * 1e3:9.3f}{row.gigabytes_a_second:9.0f}"
            f"{copied:9.0f}{row.share:8.1%}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
