"""Small suites run in their own directory by pytester, with our plugins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fixtures
import glm5check.reports.writing  # noqa: F401 - else each inner run imports matplotlib anew

ROOT = Path(fixtures.__file__).parents[1]
PLUGINS = [
    word
    for name in ("options", "markers", "verdict", "measure", "report", "known_failures")
    for word in ("-p", f"fixtures.{name}")
] + ["-p", "no:cacheprovider"]


@pytest.fixture
def run(pytester, monkeypatch):
    """Run a suite of its own, in this process, with the report in `report/`."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run_suite(suite: str, *options: str):
        pytester.makepyfile(suite)
        # An interrupt of the inner run must not interrupt this one.
        return pytester.runpytest_inprocess(*PLUGINS, "--glm5-report=report", *options, no_reraise_ctrlc=True)

    return run_suite


@pytest.fixture
def environment():
    """Of a subprocess that finds the plugins."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}
