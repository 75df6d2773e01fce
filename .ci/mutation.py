"""What a mutation run found, package by package: read after `mutmut run`, from mutmut's own records in `mutants/`.

python .ci/mutation.py              a table; fails where a package is below its floor, or nothing was run
python .ci/mutation.py --survivors  also every mutant that survived, as the line that was changed
"""

from __future__ import annotations

import ast
import difflib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MUTANTS: Final = Path("mutants")
FLOORS: Final = {"checks": 90.0, "sharding": 90.0, "trace": 90.0, "statistics": 90.0}
"""Percent of mutants that the self-tests must kill."""
OUTCOMES: Final = {None: "not run", 0: "survived", 1: "killed", 3: "killed", 5: "no tests", 33: "no tests"}
"""mutmut's exit codes; every other one is a time limit or a crash."""


def outcomes() -> Iterator[tuple[Path, str, str]]:
    """(source file, name of the mutant, outcome) of every mutant."""
    for record in sorted(MUTANTS.rglob("*.meta")):
        source = record.relative_to(MUTANTS).with_suffix("")
        for name, code in json.loads(record.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            yield source, name.rpartition(".")[2], OUTCOMES.get(code, "timeout")


def functions(source: str) -> dict[str, list[str]]:
    """Lines of every function and method of a mutated file, without the line that names it."""
    lines = source.splitlines()
    return {
        node.name: lines[node.lineno : node.end_lineno]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    }


def changed(bodies: dict[str, list[str]], mutant: str) -> str:
    """The mutant as the lines that it takes out and puts in."""
    original = bodies[f"{mutant.rpartition('__mutmut_')[0]}__mutmut_orig"]
    lines = difflib.unified_diff(original, bodies[mutant], lineterm="", n=0)
    return "\n".join(f"    {line[0]} {line[1:].strip()}" for line in lines if line[:2] not in ("--", "++", "@@"))


def main() -> int:
    counts: dict[str, Counter[str]] = {}
    bodies: dict[Path, dict[str, list[str]]] = {}
    for source, mutant, outcome in outcomes():
        counts.setdefault(source.parts[1].removesuffix(".py"), Counter())[outcome] += 1
        if "--survivors" in sys.argv and outcome not in ("killed", "not run"):
            if source not in bodies:
                bodies[source] = functions((MUTANTS / source).read_text(encoding="utf-8"))
            print(f"{source} {mutant} {outcome}\n{changed(bodies[source], mutant)}")
    print(f"{'package':12} {'mutants':>8} {'killed':>8} {'survived':>9} {'timeout':>8} {'no tests':>9} {'score':>8}")
    below, run = [], 0
    for package, found in sorted(counts.items()):
        known = found.total() - found["not run"]
        score = 100 * (found["killed"] + found["timeout"]) / max(1, known)
        print(
            f"{package:12} {found.total():8} {found['killed']:8} {found['survived']:9} {found['timeout']:8}"
            f" {found['no tests']:9} {score:7.1f}%" + (f" of {known} that were run" if found["not run"] else "")
        )
        run += known
        below += [package] if known and score < FLOORS[package] else []
    return int(not run or bool(below))


if __name__ == "__main__":
    sys.exit(main())
