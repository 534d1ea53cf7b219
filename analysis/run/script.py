"""Script: a Python file run as `python FILE ARGS` would run it, and how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import NoReturn

from fpemu.analysis.first_cause import FirstCauseError
from fpemu.errors import InputError

__all__ = ["Ended", "check_script", "run_script"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended: its exit code, and what is to be said of it."""

    code: int
    message: str = ""


def check_script(script: str) -> None:
    """Refuse a path that is no file, before anything is made for it."""
    if not os.path.isfile(script):
        what = "is a folder" if os.path.isdir(script) else "is not there"
        raise InputError(f"script {script!r} {what}: give a Python file")


def run_script(script: str, args: Sequence[str]) -> Ended:
    """Run a script as the main program and return how it ended; no exception leaves it.

    >>> import os, tempfile
    >>> from fpemu.analysis.run.script import run_script
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.py")
    ...     with open(path, "w") as file:
    ...         _ = file.write("import sys; sys.exit(int(sys.argv[1]))")
    ...     run_script(path, ["3"]).code
    3

    An exception that it does not catch is code 1 with the traceback as the message, Ctrl-C 130,
    SIGTERM 143; FirstCauseError, by which a watch stops it, is 1 with the cause in one line.
    """
    file = os.path.abspath(script)  # as Python's own __file__; the script may leave the folder
    with _as_main(script, args), _terminable():
        try:
            _execute(file)
        except SystemExit as leaving:
            return _left(leaving)
        except FirstCauseError as stopped:  # --stop-on: the report that follows has the rest
            return Ended(1, f"fpemu: --stop-on: {stopped.cause.headline}\n")
        except KeyboardInterrupt as error:
            return Ended(130, _traceback(error, file))
        except BaseException as error:
            return Ended(1, _traceback(error, file))
    return Ended(0)


def _execute(file: str) -> None:
    """Execute a file as the module `__main__` (runpy would make sys.argv[0] absolute as well)."""
    main, before = types.ModuleType("__main__"), sys.modules["__main__"]
    main.__file__ = file
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)
    finally:
        sys.modules["__main__"] = before


def _left(leaving: SystemExit) -> Ended:
    """What Python makes of sys.exit's argument."""
    if leaving.code is None or isinstance(leaving.code, int):
        return Ended((leaving.code or 0) & 0xFF)
    return Ended(1, f"{leaving.code}\n")


@contextlib.contextmanager
def _as_main(script: str, args: Sequence[str]) -> Iterator[None]:
    """Give the script the arguments and the import path of a main program."""
    argv, path = list(sys.argv), list(sys.path)
    sys.argv[:] = [script, *args]
    sys.path[0:1] = [os.path.dirname(os.path.abspath(script))]
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, path


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the script as an exit does, so that the report is written."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    try:
        before = signal.getsignal(signal.SIGTERM)
        if before == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        if before == signal.SIG_DFL and signal.getsignal(signal.SIGTERM) is leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _traceback(error: BaseException, file: str) -> str:
    """The traceback from the script on, as Python would have printed it.

    A script that is no Python has run nothing: the error alone says where.
    """
    first: TracebackType | None = error.__traceback__
    while first and first.tb_frame.f_code.co_filename != file:
        first = first.tb_next
    return "".join(traceback.format_exception(type(error), error, first))
