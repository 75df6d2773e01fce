"""What is done is kept and not done again; Ctrl-C costs what was under way; the matrix lists everything."""

from __future__ import annotations

import json

import pytest

from glm5check.errors import OptionError
from glm5check.reports import matrix as matrices
from glm5check.reports.matrix import Detection, Verdict
from glm5check.selfcheck import campaign as campaigns
from glm5check.selfcheck import registry, suite
from glm5check.selfcheck.campaign import Campaign, exit_code
from glm5check.selfcheck.healthy import variants
from tests.selftest.selfcheck.conftest import NAMED, OTHER

CHOSEN = ("config_softmax", "file_cut", "indexer_rotary")


@pytest.fixture
def told(monkeypatch, ended):
    """Every run of pytest is one of these; the list holds what they were asked."""
    asked = []

    class Told:
        def __init__(self, root):
            self.root, self.outcome, self.interrupt_at = root, "failed", 0

        def run(self, arguments, directory, *, limit_s, environment):
            asked.append(arguments)
            if len(asked) == self.interrupt_at:
                raise KeyboardInterrupt
            named = [word for word in arguments if "::" in word] or [NAMED]
            says = "; ".join(fault.says for fault in registry.ALL)
            every = [fault.caught_by for fault in registry.ALL if not fault.by_selftest]
            return ended(dict.fromkeys([*named, *every, OTHER], self.outcome), says=says)

        def stop(self):
            pass

    def make(**changes):
        def of(root):
            runs = Told(root)
            for name, value in changes.items():
                setattr(runs, name, value)
            return runs

        monkeypatch.setattr(campaigns, "Runs", of)
        return asked

    return make


@pytest.fixture
def campaign(tmp_path):
    def make(names=CHOSEN, healthy=0, **changes):
        lines = []
        given = {"out": tmp_path / "out", "jobs": 1, "again": False, "say": lines.append}
        faults = registry.chosen(names)
        return Campaign(faults=faults, variants=variants(healthy), **(given | changes))

    return make


def outcomes(matrix):
    return {cell.name: cell.outcome for cell in matrix.faults}


def test_a_row_for_every_fault(told, campaign, tmp_path):
    told()
    matrix = campaign().run()
    got = outcomes(matrix)
    assert list(got) == [fault.name for fault in registry.ALL]
    assert (got["config_softmax"], got["file_cut"]) == (Detection.CAUGHT, Detection.CAUGHT)
    assert got["indexer_rotary"] is Detection.NEEDS_GPU
    assert got["phantom_tensor"] is Detection.NOT_RUN
    assert matrices.read(tmp_path / "out" / matrices.FILE) == matrix
    assert exit_code(matrix, CHOSEN, []) == 0
    assert exit_code(matrix, ["phantom_tensor"], []) == 2


def test_what_is_done_is_not_done_again(told, campaign, monkeypatch):
    asked = told()
    campaign(healthy=1).run()
    assert len(asked) == 3
    campaign(healthy=1).run()
    assert len(asked) == 3
    campaign(healthy=1, again=True).run()
    assert len(asked) == 6
    monkeypatch.setattr(suite, "digest", lambda root: "another suite")
    campaign(healthy=1).run()
    assert len(asked) == 9


def test_ctrl_c_keeps_what_is_done(told, campaign, tmp_path):
    asked = told(interrupt_at=2)
    with pytest.raises(KeyboardInterrupt):
        campaign().run()
    kept = [path.stem for path in (tmp_path / "out" / "cells").iterdir()]
    assert kept == ["file_cut"]
    assert not (tmp_path / "out" / "work" / "file_cut").exists()
    told()
    campaign().run()
    assert len(asked) == 3


def test_two_in_one_directory_are_refused(told, campaign, tmp_path):
    told()
    campaign().run()
    with campaigns._alone_in(tmp_path / "out"), pytest.raises(OptionError, match="another selfcheck works here"):
        campaign().run()
    campaign().run()


def test_a_fault_that_cannot_be_seeded_is_not_run(told, campaign, tmp_path, monkeypatch, fault):
    told()

    def broken(workspace):
        raise OSError("no space left")

    made = fault(name="file_cut", seed=broken)
    monkeypatch.setattr(registry, "ALL", (made,))
    matrix = Campaign(faults=[made], variants=(), out=tmp_path, jobs=1, again=False, say=print).run()
    assert matrix.faults[0].outcome is Detection.NOT_RUN
    assert "no space left" in matrix.faults[0].why


def test_a_false_alarm_and_a_missed_fault_are_an_error(told, campaign):
    told(outcome="passed")
    missed = campaign().run()
    assert exit_code(missed, CHOSEN, []) == 1
    told(outcome="failed")
    alarmed = campaign((), healthy=2, again=True).run()
    assert {run.verdict for run in alarmed.healthy} == {Verdict.FAILED}
    assert exit_code(alarmed, CHOSEN, [run.variant for run in alarmed.healthy]) == 1


def test_healthy_servers_differ():
    twenty = variants(20)
    assert len({variant.name for variant in twenty}) == 20
    assert {variant.dtype for variant in twenty} == {"float32", "bfloat16"}
    assert {variant.ranks for variant in twenty} == {1, 2}
    assert len({tuple(variant.arguments[-11:]) for variant in twenty}) > 4


def test_a_cell_of_another_program_is_made_again(told, campaign, tmp_path):
    asked = told()
    campaign().run()
    (tmp_path / "out" / "cells" / "file_cut.json").write_text(json.dumps({"suite": 1}))
    campaign().run()
    assert len(asked) == 3
