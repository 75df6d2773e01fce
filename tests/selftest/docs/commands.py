"""The command lines that documentation shows, and what is wrong with one."""

from __future__ import annotations

import ast
import configparser
import functools
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click

from fixtures.options import OPTIONS
from glm5check.cli import COMMANDS, cli

ROOT = Path(__file__).parents[3]
PROGRAMS = ("pytest", "glm5check", "tox")
_ENVIRONMENT = r"(?:[A-Z][A-Z0-9_]*=\S* +)*"
_BLOCK = re.compile(rf"^ {{4,}}(?:\$ )?({_ENVIRONMENT}(?:python -m )?(?:{'|'.join(PROGRAMS)}) .*)$", re.MULTILINE)
_INLINE = re.compile(rf"`({_ENVIRONMENT}(?:{'|'.join(PROGRAMS)}) [^`]+)`")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(text: str) -> list[str]:
    """Command lines in indented blocks and in backticks, continuation lines joined, comments cut off."""
    joined = re.sub(r" *\\\n *", " ", text)
    return [*_BLOCK.findall(joined), *_INLINE.findall(joined)]


def faults_of(command: str) -> list[str]:
    """What does not exist of what the command names; several commands joined with && are looked at one by one."""
    faults = []
    words = shlex.split(command, comments=True)
    while words:
        end = words.index("&&") if "&&" in words else len(words)
        faults += _of_one(words[:end])
        words = words[end + 1 :]
    return faults


def _of_one(words: list[str]) -> list[str]:
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    words = [word for word in words if word not in ("...", "|", ">")]
    check = {"pytest": _of_pytest, "glm5check": _of_glm5check, "tox": _of_tox}.get(words[0] if words else "")
    return check(words[1:]) if check else []


def _of_pytest(words: list[str]) -> list[str]:
    faults = []
    with_value = {f"--glm5-{option.name}" for option in OPTIONS if option.metavar}
    names = {f"--glm5-{option.name}" for option in OPTIONS}
    arguments = iter(words)
    for word in arguments:
        name, has_value, _ = word.partition("=")
        if name.startswith("--glm5-"):
            if name not in names:
                faults.append(f"pytest has no option {name}")
            if name in with_value and not has_value:
                faults.append(f"{name} needs its value behind an equals sign: see options.md")
        elif word == "-m":
            faults += [f"no marker {marker}" for marker in _markers_of(next(arguments, "")) - markers()]
        elif word in ("-k", "-n", "-p", "-o", "--junitxml"):
            next(arguments, None)
        elif name.startswith("-"):
            if name not in pytest_options():
                faults.append(f"pytest has no option {name}")
        elif word.startswith("tests"):
            faults += _of_node(word)
    return faults


def _markers_of(expression: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", expression)) - {"not", "and", "or"}


@functools.cache
def markers() -> set[str]:
    from fixtures.markers import MARKERS

    return {re.split(r"[(:]", marker)[0] for marker in MARKERS}


@functools.cache
def pytest_options() -> set[str]:
    text = subprocess.run(
        [sys.executable, "-m", "pytest", "--help", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))


def _of_node(word: str) -> list[str]:
    """The file or directory exists, and so do the class and function that a test id names."""
    path, *names = word.partition("[")[0].split("::")
    if not (ROOT / path).exists():
        return [f"there is no {path}"]
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body if names else []
    for name in names:
        found = [node for node in body if getattr(node, "name", "") == name]
        if not found:
            return [f"there is no {name} in {path}"]
        body = found[0].body
    return []


def _of_glm5check(words: list[str]) -> list[str]:
    if not words or words[0] in ("--help", "--version"):
        return []
    if words[0] not in COMMANDS:
        return [f"glm5check has no command {words[0]}"]
    command = cli.get_command(click.Context(cli), words[0])
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words[1:] if word.startswith("-")]
    return [f"glm5check {words[0]} has no option {name}" for name in given if name not in {*names, "--help"}]


def _of_tox(words: list[str]) -> list[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    environments = {section.removeprefix("testenv:") for section in parser.sections() if section.startswith("testenv:")}
    end = words.index("--") if "--" in words else len(words)
    named = [after for word, after in pairwise(words[:end]) if word == "-e"]
    faults = [
        f"tox has no environment {name}" for names in named for name in names.split(",") if name not in environments
    ]
    return faults + _of_pytest(words[end + 1 :])
