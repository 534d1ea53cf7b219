"""What the tests in the simulator share: its threads, kept from what is no fault of a kernel."""

from __future__ import annotations

import os
import threading
from importlib.util import find_spec

import pytest


class Once(dict):
    """The simulator's shared arrays by line: a second thread waits while one is made.

    The simulator itself asks and then makes, and two threads may get two arrays.
    """

    def __init__(self) -> None:
        super().__init__()
        self._making = threading.Lock()

    def get(self, line):
        self._making.acquire()
        found = super().get(line)
        if found is not None:
            self._making.release()
        return found

    def __setitem__(self, line, array) -> None:
        super().__setitem__(line, array)
        self._making.release()


@pytest.fixture(autouse=True)
def _shared_arrays_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1" or find_spec("numba_cuda") is None:
        return
    from numba.cuda.simulator import kernelapi

    made = kernelapi.FakeCUDAShared.__init__

    def make(self, size):
        made(self, size)
        self._allocations = Once()

    monkeypatch.setattr(kernelapi.FakeCUDAShared, "__init__", make)
