"""What once crashed, hung or went wrong without a word."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import fpemu
from fpemu.errors import FormatError, InputError
from fpemu.kernels import pool
from fpemu.testing import assert_cast

ROUND = "import numpy as np, fpemu; print(fpemu.round(np.float32([0.1]), 'fp4')[0])"


def test_a_matrix_as_out_is_written_as_its_memory() -> None:
    x = np.arange(1, 1001, dtype=np.float32).reshape(1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy would rather see no matrix
        out = np.asmatrix(np.zeros((1, 1000), np.float32))
    assert fpemu.round(x, "fp16", out=out) is out
    assert np.array_equal(np.asarray(out), x)


def test_nothing_writes_on_after_a_chunk_failed() -> None:
    running = threading.Event()
    late: list[int] = []

    def chunk(start: int, stop: int) -> None:
        if start == 0:
            running.wait(5)
            raise KeyboardInterrupt
        running.set()
        time.sleep(0.05)
        late.append(start)

    with pytest.raises(KeyboardInterrupt):
        pool.run_chunks(chunk, 16 * pool.SMALL, threads=2)
    done = len(late)
    time.sleep(0.3)
    assert len(late) == done


def test_a_damaged_compile_cache_is_compiled_over(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", ROUND], env=environment, check=True,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    first = run()
    kept = [path for path in tmp_path.rglob("*.nb?") if path.is_file()]
    assert kept, "nothing was cached, so nothing can be damaged"
    for path in kept:
        path.write_bytes(path.read_bytes()[:50])
    assert run() == first == "0.0\n"


@pytest.mark.parametrize("bias", [10**9, -(10**9), 10**400])
def test_a_huge_bias_is_refused_at_once(bias: int) -> None:
    with pytest.raises(FormatError, match="must be -400 to 400"):
        fpemu.Format("t", 4, 3, bias, "top_code", inf=False)


def test_checkers_let_no_wrong_function_pass() -> None:
    with pytest.raises(AssertionError, match="differ from float32"):
        assert_cast(lambda x: x.astype(np.float64) * (1 + 1e-12), "fp32")
    with pytest.raises(InputError, match="masked array"):
        assert_cast(lambda x: np.ma.array(fpemu.round(x, "fp16"), mask=True), "fp16")
    with pytest.raises(InputError, match="dtype str"):
        assert_cast(lambda x: fpemu.round(x, "fp16").astype(str), "fp16")


def test_masks_and_repeated_memory_are_refused() -> None:
    with pytest.raises(InputError, match="masked array"):
        fpemu.decode(np.ma.array(np.uint8([1, 2]), mask=[1, 0]), "fp4")
    one = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3,), (0,))
    with pytest.raises(InputError, match="repeats its own memory"):
        fpemu.round(np.ones(3, np.float32), "fp16", out=one)


def test_errors_of_extremes_are_figures() -> None:
    far = fpemu.error(np.float64([1.7e308]), np.float64([-1.7e308]))
    assert far.sqnr == pytest.approx(-6.02, abs=0.01)
    assert far.cosine == -1
    assert fpemu.error(np.float64([5e-324]), np.float64([1.0])).sqnr < -6000


def test_a_format_may_not_borrow_another_s_name() -> None:
    with pytest.raises(FormatError, match="not the known one of that name"):
        fpemu.Cast(fpemu.Format("binary8p4se", 4, 3, 7, "top_code", inf=False))
