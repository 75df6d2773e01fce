"""`glm5check audit`: exit codes, JSON, what it says of files that are no GGUF."""

from __future__ import annotations

import json

import pytest

from fixtures.gguf_files import write_set
from glm5check.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["audit", *map(str, arguments)])
    return left.value.code, capsys.readouterr()


def test_a_right_set_exits_with_0(tmp_path, capsys):
    code, said = run(capsys, write_set(tmp_path), "--tp", "2")
    assert code == 0
    assert "0 failed, 0 inconclusive" in said.out


def test_a_wrong_set_exits_with_1_and_says_what_to_do(tmp_path, capsys):
    code, said = run(capsys, write_set(tmp_path), "--tp", "4")
    assert code == 1
    assert "0.5 blocks of 256" in said.out
    assert "serve on fewer ranks" in said.out


def test_missing_evidence_exits_with_2(tmp_path, capsys):
    file = write_set(tmp_path)
    (tmp_path / "config.json").unlink()
    assert run(capsys, file, "--tp", "2")[0] == 2


def test_a_missing_file_exits_with_2(tmp_path, capsys):
    code, said = run(capsys, tmp_path / "none.gguf")
    assert code == 2
    assert "does not exist" in said.err


def test_a_file_that_is_no_gguf_exits_with_1(tmp_path, capsys):
    file = tmp_path / "page.gguf"
    file.write_text("<html>404</html>")
    code, said = run(capsys, file)
    assert code == 1
    assert "it is no GGUF" in said.out


def test_json_lists_every_finding(tmp_path, capsys):
    code, said = run(capsys, write_set(tmp_path), "--tp", "2", "--json", "--depth", "table")
    findings = json.loads(said.out)
    assert code == 0
    assert {finding["outcome"] for finding in findings} == {"passed"}
    assert {"checkpoint.set", "checkpoint.slices"} <= {finding["check"] for finding in findings}
