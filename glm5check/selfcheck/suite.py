"""Which suite is tested: the checkout that this package lies in, and a digest of what decides its verdicts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import glm5check
from glm5check.errors import OptionError
from glm5check.fingerprint import versions

PARTS: Final = ("glm5check", "fixtures", "tests", "conftest.py", "pyproject.toml")
LEFT_OUT: Final = ("tests/selftest/", "fixtures/data/selfcheck/")
"""Decide nothing about an acceptance test; the second holds our own result."""


def checkout() -> Path:
    """The directory of `glm5check/`, `fixtures/` and `tests/`. Raises OptionError where only the package is there."""
    root = Path(glm5check.__file__).resolve().parent.parent
    if not (root / "tests").is_dir():
        raise OptionError(
            "the suite's tests are not here, only its package", where=str(root), do="run it from a clone, or with tox"
        )
    return root


def digest(root: Path) -> str:
    """SHA-256 over names and bytes of everything that a verdict depends on, and over the versions."""
    total = hashlib.sha256(repr(sorted(versions().items())).encode())
    for path in sorted(_files(root)):
        total.update(path.relative_to(root).as_posix().encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _files(root: Path) -> list[Path]:
    found = []
    for part in PARTS:
        base = root / part
        found += [path for path in ([base] if base.is_file() else base.rglob("*")) if _counts(path, root)]
    return found


def _counts(path: Path, root: Path) -> bool:
    name = path.relative_to(root).as_posix()
    return path.is_file() and "__pycache__" not in path.parts and not name.startswith(LEFT_OUT)
