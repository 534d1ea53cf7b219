"""Hypothesis without deadlines, as the first call of a loop compiles it; skips that count."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With FPEMU_NO_SKIPS, where everything is installed: a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("FPEMU_NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("\nskipped tests, but FPEMU_NO_SKIPS is set", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


settings.register_profile("fpemu", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fpemu")
