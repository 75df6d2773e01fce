"""Imports point one way, and the library knows no pytest."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAYERS = (
    {"tests"},
    {"fixtures"},
    {"__main__"},
    {"cli"},
    {"selfcheck"},
    {"synth"},
    {"tiny"},
    {"reports", "checks", "oracles"},
    {"serving", "trace", "collectives", "sharding", "checkpoint"},
    {"vllm_plugin"},
    {"roofline", "calibration", "pulse", "floors", "statistics", "fingerprint", "glm5", "evidence", "nvml"},
    {"tolerances", "redaction"},
    {"errors", "records", "settings"},
)
"""Each may import what stands below it; same rank may not import each other, but for the exceptions below."""
ALLOWED_BESIDE = {
    ("settings", "errors"),
    ("roofline", "glm5"),
    ("oracles", "checkpoint"),
    ("sharding", "checkpoint"),
}
MAY_REACH_UP = {("vllm_plugin", "checkpoint")}
"""The plugin's CPU kernels use the one dequantiser."""


def rank(unit: str) -> int:
    return next(number for number, units in enumerate(LAYERS) if unit in units)


def unit_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "glm5check" else parts[0]


def imported_units(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] in {"fixtures", "tests"}:
                found.add(parts[0])
            elif parts[0] == "glm5check" and len(parts) > 1 and parts[1] != "__version__":
                found.add(parts[1])
    return found


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize(
    "path",
    [path for path in modules("glm5check") if path.parent.name != "glm5check" or path.stem != "__init__"],
    ids=str,
)
def test_the_library_imports_downwards_only(path):
    unit = unit_of(path)
    for other in imported_units(path) - {unit}:
        downwards = rank(unit) < rank(other)
        assert downwards or (unit, other) in ALLOWED_BESIDE | MAY_REACH_UP, f"{unit} must not import {other}"


@pytest.mark.parametrize("path", modules("glm5check"), ids=str)
def test_the_library_knows_no_pytest(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        assert not [name for name in names if name.split(".")[0] in {"pytest", "hypothesis", "_pytest"}]


def test_a_planted_upward_import_is_noticed(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text("from glm5check.checks.decode import mean_kl\nimport glm5check.cli.trace\n")
    assert imported_units(planted) == {"checks", "cli"}
    assert rank("trace") > rank("checks")
