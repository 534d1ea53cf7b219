"""How large a report's page is and how long a browser takes to open it, for a long run.

    python benchmarks/report_size.py [--tensors 500] [--steps 1000] [--out FOLDER] [--json]

A trace of so many tensors at so many steps is made of a few hundred arrays and written to a file;
then a report is built of it, rendered, and opened in headless Chromium, if there is one. The
browser itself says when it first painted and when the page could be used (domContentLoaded), in a
copy of the page that may run one more script; the fastest of three. It wants a core to itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fpemu.analysis import report
from fpemu.analysis.records import Record
from fpemu.analysis.trace import Trace
from fpemu.moments import moments
from fpemu.tallies import tally

KINDS = ("activation", "weight", "weight_gradient", "activation_gradient", "optimizer_state")
LIMIT = 5_000_000  # bytes of a page
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def make(path: Path, tensors: int, steps: int) -> Trace:
    """Write a trace whose loss scale halves now and then."""
    rng = np.random.default_rng(0)
    arrays = [
        (rng.normal(0, 1, 4096) * 2.0 ** rng.integers(-30, 2)).astype(np.float32)
        for _ in range(200)
    ]
    counted = [(x.shape, tally(x), moments(x)) for x in arrays]
    names = [(f"model.layers.{k // 20}.part{k // 5 % 4}.weight", KINDS[k % 5])
             for k in range(tensors)]  # fmt: skip
    with Trace.create(path, metadata={"to": "float16"}) as trace:
        for step in range(steps):
            trace.scalar(step, "loss", 1 / (1 + step))
            trace.scalar(step, "loss_scale", 2.0 ** (16 - 4 * step // steps))
            for k, key in enumerate(names):
                trace.add(Record(*key, step, *counted[(7 * k + step) % len(counted)]))
    return Trace.load(path)


def opened(page: Path, folder: Path) -> dict[str, float | None]:
    """Return how many seconds a browser takes for a page; None without one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    times = [] if browser is None else [_navigation(browser, page, folder) for _ in range(3)]
    columns = zip(*filter(None, times), strict=True)
    names = "first_paint_seconds", "interactive_seconds"
    return dict.fromkeys(names) | dict(zip(names, map(min, columns), strict=False))


def _navigation(browser: str, page: Path, folder: Path) -> tuple[float, float] | None:
    """First paint and domContentLoaded, in seconds from the beginning of navigation."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
    copy = folder / "copy.html"
    copy.write_text(text.replace("</body>", f"<script>{_TELL}</script></body>"), "utf-8")
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000",
            "--enable-logging=stderr", "--virtual-time-budget=4000",
            f"--user-data-dir={folder / 'profile'}", f"--screenshot={folder / 'page.png'}",
            copy.as_uri(),
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    told = re.search(r"TIMES ([\d.]+) ([\d.]+)", done.stderr)
    return (float(told[1]) / 1000, float(told[2]) / 1000) if told else None


_TELL = """addEventListener("load", () => setTimeout(() => {
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  const [page] = performance.getEntriesByType("navigation");
  console.log("TIMES " + paint.startTime + " " + page.domContentLoadedEventEnd);
}, 500));"""


def measure(folder: Path, tensors: int, steps: int) -> dict[str, Any]:
    """Return all figures, in seconds and bytes."""
    times = [time.perf_counter()]
    trace = make(folder / "run.fpemu", tensors, steps)
    times.append(time.perf_counter())
    found = report.build(trace)
    times.append(time.perf_counter())
    text = report.html.render(found)
    times.append(time.perf_counter())
    page = folder / "report.html"
    report.write_text(page, text)
    written, built, rendered = (b - a for a, b in itertools.pairwise(times))
    return {
        "tensors": tensors,
        "steps": steps,
        "trace_bytes": (folder / "run.fpemu").stat().st_size,
        "write_seconds": written,
        "build_seconds": built,
        "render_seconds": rendered,
        "page_bytes": len(text.encode()),
        "json_bytes": len(json.dumps(found.to_json())),
        **opened(page, folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tensors", type=int, default=500)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="keep the files in this folder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        found = measure(folder, options.tensors, options.steps)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:20}", f"{value:,.1f}" if isinstance(value, float) else value)
    print("the page is", "below" if found["page_bytes"] < LIMIT else "above", f"{LIMIT:,} bytes")


if __name__ == "__main__":
    main()
