"""Findings word for word, as the report shows them, beside the text that was approved.

What a finding says is the product: whoever reads it decides by its numbers, its place and its cause. A test module
holds cases, sentence by sentence, and beside it lies the approved text of their findings. After a change that is meant:

    python -m tests.selftest.approved

writes the texts anew, and the difference in the repository is what has to be read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from glm5check.records import Finding

HERE = Path(__file__).parent
Cases = Mapping[str, Callable[[], Sequence[Finding]]]
_UNSAID = {"got": "", "want": "", "cause": "", "repeat": "", "value": None, "bound": None, "unit": ""}
"""The fields of a finding besides its place, and what they hold where they say nothing."""


def told(findings: Sequence[Finding]) -> str:
    """Every field that says something, a line each, in ASCII; numbers to five digits, as sums differ behind them."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.outcome.upper()} {finding.check}")
        said = {name: getattr(finding, name) for name, unsaid in _UNSAID.items() if getattr(finding, name) != unsaid}
        said |= {f"where {key}": value for key, value in finding.where.items()}
        for name, value in said.items():
            lines.append(f"    {name}: " + (f"{value:.5g}" if isinstance(value, float) else f"{value}"))
    return "\n".join(lines).encode("ascii", "backslashreplace").decode()


def approved(module: str) -> dict[str, str]:
    """The approved text of each case of a test module (its `__file__`)."""
    path = _texts(Path(module))
    blocks = path.read_text(encoding="utf-8").split("== ")[1:] if path.exists() else []
    pairs = (block.split("\n", 1) for block in blocks)
    return {name: text.strip("\n") for name, text in pairs}


def _texts(module: Path) -> Path:
    return module.with_name(module.stem.removeprefix("test_") + ".txt")


def approve(module: Path) -> None:
    """Writes the texts of a module's cases as they are now."""
    name = ".".join(module.relative_to(HERE.parent.parent).with_suffix("").parts)
    cases: Cases = importlib.import_module(name).CASES
    blocks = [f"== {case}\n{told(make())}\n" for case, make in cases.items()]
    _texts(module).write_text("\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    for found in sorted(HERE.glob("*/test_findings*.py")):
        approve(found)
