"""What the documentation says exists: commands, options, tests, files; and what exists is documented."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.known_failures import read_known
from fixtures.markers import MARKERS
from fixtures.options import EMBEDDED, OPTIONS
from glm5check.cli import COMMANDS, cli
from glm5check.floors import read_floors
from tests.selftest.docs.commands import ROOT, commands_in, documents, faults_of

EVERY = [(path, command) for path in documents() for command in commands_in(path.read_text(encoding="utf-8"))]
SUITES = [
    path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "selftest" not in path.relative_to(ROOT).parts
]


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "command"), EVERY, ids=lambda value: value if isinstance(value, str) else value.name)
def test_every_command_can_be_typed(path, command):
    assert faults_of(command) == []


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("pytest --glm5-modle=x", "no option --glm5-modle"),
        ("pytest --glm5-model /models/x.gguf", "--glm5-model needs its value behind an equals sign"),
        ("pytest -m fast", "no marker fast"),
        ("pytest --no-such-thing", "no option --no-such-thing"),
        ("pytest tests/nowhere", "no tests/nowhere"),
        ("pytest tests/decode/test_against_oracle.py::test_nothing", "no test_nothing"),
        ("glm5check frobnicate x", "no command frobnicate"),
        ("glm5check report DIR --histroy x", "no option --histroy"),
        ("tox run -e nowhere", "no environment nowhere"),
        ("tox run -e accept -- --glm5-modle x", "no option --glm5-modle"),
        ("A=1 pytest -m perf && pytest --glm5-modle=x", "no option --glm5-modle"),
    ],
)
def test_a_command_that_does_not_exist_is_found(command, fault):
    assert fault in " ".join(faults_of(command))
    assert commands_in(f"    {command}\n") == [command] == commands_in(f"see `{command}`")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_subcommand_has_help_and_is_documented(name):
    assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0
    assert f"`glm5check {name}" in read("options.md")


def test_every_environment_of_tox_is_documented():
    environments = re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in environments if f"`tox run -e {name}`" not in read("options.md")] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_documented_in_the_words_of_its_help(option):
    assert f"| `--glm5-{option.name}" in read("options.md")
    assert " ".join(option.help.split()) in " ".join(read("options.md").split())


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "pipelines").iterdir()), ids=lambda path: path.name)
def test_pipelines_write_values_behind_an_equals_sign(path):
    for name in re.findall(r"--glm5-([\w-]+) ", path.read_text(encoding="utf-8")):
        assert name in {option.name for option in OPTIONS if not option.metavar}, name


@pytest.mark.parametrize("marker", MARKERS)
def test_every_marker_is_documented_in_its_own_words(marker):
    name, _, meaning = marker.partition(": ")
    assert f"`{name}`" in read("options.md")
    assert meaning in read("options.md")


@pytest.mark.parametrize("path", SUITES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_every_acceptance_module_is_explained(path):
    assert f"`{path.relative_to(ROOT)}`" in read("tests.md")


def test_nothing_is_explained_that_does_not_exist():
    named = re.findall(r"`((?:tests|glm5check|fixtures|docs)/[\w./-]+)`", "".join(map(read_any, documents())))
    missing = sorted({name for name in named if not (ROOT / name).exists()})
    assert missing == []


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            page = path.parent / target if target else path
            assert page.exists(), target
            assert not anchor or anchor in anchors_of(page), f"{target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", read_any(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_page_is_in_the_index(path):
    assert path.name == "README.md" or f"]({path.name})" in read("README.md")


def read_any(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_check_that_is_named_exists():
    sources = "".join(map(read_any, (ROOT / "glm5check" / "checks").rglob("*.py")))
    concerns = "checkpoint|dequant|sharding|decode|context|speculative|graphs|collectives|throughput"
    named = set(re.findall(rf"`((?:{concerns})\.[a-z_]+)`", "".join(map(read_any, documents()))))
    assert sorted(name for name in named if f'"{name}"' not in sources) == []


@pytest.mark.parametrize("recording", ["eager", "simple"])
def test_the_worked_examples_are_what_the_command_prints(recording, monkeypatch):
    """Every line that is shown below the command is a line, or the beginning of one, of what it prints."""
    monkeypatch.chdir(ROOT)
    command = f"glm5check trace fixtures/data/graphs/{recording}"
    shown = read("failures.md").split(f"    {command}\n\n", 1)[1].split("\n\n", 1)[0]
    printed = [line.strip() for line in CliRunner().invoke(cli, command.split()[1:]).output.splitlines()]
    for line in shown.splitlines():
        assert any(one.startswith(line.strip().removesuffix(" ...")) for one in printed), line


def toml_of(page: str, table: str) -> str:
    """The indented TOML of a page that begins with `[[table]]`."""
    text = read(page)
    start = text.index(f"    [[{table}]]")
    lines = itertools.takewhile(lambda line: not line or line.startswith("    "), text[start:].splitlines())
    return textwrap.dedent("\n".join(lines))


def test_the_list_of_known_failures_can_be_used_as_it_stands(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(toml_of("reports.md", "known"), encoding="utf-8")
    first, second = read_known(path)
    assert faults_of(f"pytest {first.test}") == []
    assert second.check == "throughput.floor"


def test_the_floor_can_be_used_as_it_stands(tmp_path):
    path = tmp_path / "floors.toml"
    path.write_text(toml_of("extending.md", "machine"), encoding="utf-8")
    assert read_floors(path)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({command for _, command in EVERY if command.startswith("pytest ")}))
def test_every_pytest_command_collects_what_it_says(command, tmp_path):
    """With the embedded model in place of the one that the text names, and without running anything."""
    (tmp_path / "golden.json").write_text("{}")
    (tmp_path / "known.toml").write_text(toml_of("reports.md", "known"), encoding="utf-8")
    (tmp_path / "nights").mkdir()
    model = next(EMBEDDED.glob("*00001-of*.gguf"))
    replaced = re.sub(r"/models/[\w.-]+\.gguf", str(model), command).replace("/models/GLM-5", str(EMBEDDED))
    replaced = re.sub(r"\b(golden\.json|known\.toml|nights)\b", lambda match: str(tmp_path / match[0]), replaced)
    words = shlex.split(re.sub(r"\bDIR\b", str(tmp_path), replaced), comments=True)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
