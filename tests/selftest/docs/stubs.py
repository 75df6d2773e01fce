"""Programs that stand for `python` and `glm5check` while a pipeline's own script runs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
PIPELINES = ROOT / "docs" / "pipelines"
STUB = """#!/bin/bash
# Stands for python and glm5check: writes down how it was called. A virtual environment gets the same one.
echo "$(basename "$0") $*" >> "$LOG"
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    echo "PATH=$PWD/.venv/bin:\\$PATH" > .venv/bin/activate
fi
if [ "$(basename "$0")" = glm5check ]; then exit 0; fi
case "$*" in
    *"not perf"*) name=correctness ;;
    *perf*) name=perf ;;
    *) exit 0 ;;
esac
report=$(sed 's/.*--glm5-report=\\([^ ]*\\).*/\\1/' <<< "$*")
mkdir -p "$report"
if [ "$name" = "$HANG" ]; then
    trap 'echo told > "$report/told"; touch "$report/report.html"; exit 2' TERM
    touch "$report/here"
    while true; do sleep 0.1; done
fi
if [ "$name" != "$CRASH" ]; then touch "$report/report.html"; fi
if [ "$name" = "$FAIL" ] || [ "$name" = "$CRASH" ]; then exit 1; fi
"""


def write_stubs(directory: Path, *names: str) -> None:
    """Executables of these names in `directory`."""
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text(STUB)
        (directory / name).chmod(0o755)
