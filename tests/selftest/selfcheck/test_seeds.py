"""What is seeded is a copy: it differs from its source, which stays as it was; and the suite that runs is known."""

from __future__ import annotations

from pathlib import Path

import pytest

import glm5check
from glm5check.errors import OptionError
from glm5check.selfcheck import registry, suite
from glm5check.selfcheck.seeded import Place, Workspace

ROOT = Path(__file__).parents[3]
OF_FILES = [fault for fault in registry.ALL if fault.seeded_in in (Place.CHECKPOINT, Place.CONFIG, Place.EVIDENCE)]
AS_RECORDED = {"trace_eager", "trace_eager_host_bound", "nccl_simple"}
"""Recordings of servers that have the fault."""


def content(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("fault", [fault for fault in OF_FILES if not fault.by_selftest], ids=lambda fault: fault.name)
def test_a_copy_is_spoiled_and_its_source_is_not(fault, tmp_path):
    workspace = Workspace(ROOT, tmp_path)
    sources = [workspace.model, *(workspace.recording(name) for name in ("full", "eager", "simple", "customar"))]
    before = {source.name: content(source) for source in sources}
    with fault.seed(workspace) as options:
        pass
    assert {source.name: content(source) for source in sources} == before
    copies = list(tmp_path.iterdir())
    if not copies:  # seeded by options alone
        assert options
        return
    (copy,) = copies
    assert any(str(copy) in option for option in options)
    differing = content(copy).items() ^ before[copy.name].items()
    assert bool(differing) != (fault.name in AS_RECORDED)
    assert len({name for name, _ in differing}) <= 2


def test_the_suite_is_known_by_its_bytes(tmp_path):
    for name in ("glm5check/a.py", "tests/decode/test_a.py", "tests/selftest/test_b.py", "fixtures/data/selfcheck/m"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    for name in ("conftest.py", "pyproject.toml"):
        (tmp_path / name).write_text("1")
    first = suite.digest(tmp_path)
    for name in ("tests/selftest/test_b.py", "fixtures/data/selfcheck/m"):
        (tmp_path / name).write_text("2")
    assert suite.digest(tmp_path) == first
    (tmp_path / "tests/decode/test_a.py").write_text("2")
    second = suite.digest(tmp_path)
    (tmp_path / "tests/decode/test_a.py").rename(tmp_path / "tests/decode/test_c.py")
    assert len({first, second, suite.digest(tmp_path)}) == 3


def test_a_package_without_its_tests_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(glm5check, "__file__", str(tmp_path / "glm5check" / "__init__.py"))
    with pytest.raises(OptionError, match="run it from a clone"):
        suite.checkout()
