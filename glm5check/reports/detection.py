"""What a detection matrix comes down to: a verdict on the suite, and one sentence that every report has."""

from __future__ import annotations

from collections import Counter
from typing import Final

from glm5check.reports import matrix as matrices
from glm5check.reports.matrix import Detection, Matrix
from glm5check.reports.summary import Verdict

WORDS: Final = {
    Detection.CAUGHT: "caught",
    Detection.CAUGHT_BY_ANOTHER: "caught another way",
    Detection.MISSED: "missed",
    Detection.NEEDS_GPU: "left for a GPU",
    Detection.NOT_RUN: "not run",
}
_COMMIT_DIGITS: Final = 10


def verdict(matrix: Matrix) -> Verdict:
    """Good if every fault that could be seeded was caught by its test, and no healthy server raised an alarm."""
    if matrix.of(Detection.MISSED, Detection.CAUGHT_BY_ANOTHER) or matrix.false_alarms:
        return Verdict.BAD
    says_nothing = any(run.verdict is matrices.Verdict.INCONCLUSIVE for run in matrix.healthy)
    is_open = says_nothing or matrix.of(Detection.NOT_RUN) or not matrix.of(Detection.CAUGHT)
    return Verdict.OPEN if is_open else Verdict.GOOD


def sentence(matrix: Matrix) -> str:
    """How many seeded faults were caught, how many healthy runs were not left alone, and when and on what."""
    counts = Counter(fault.outcome for fault in matrix.faults)
    seeded = len(matrix.faults) - counts[Detection.NEEDS_GPU] - counts[Detection.NOT_RUN]
    others = [f"{counts[one]} {WORDS[one]}" for one in WORDS if one is not Detection.CAUGHT and counts[one]]
    rest = f" ({', '.join(others)})" if others else ""
    known = {fault.commit for fault in matrix.faults} | {run.commit for run in matrix.healthy} | {matrix.commit}
    commits = " and ".join(sorted(commit[:_COMMIT_DIGITS] for commit in known if commit)) or "an unknown commit"
    versions = ", ".join(f"{name} {version}" for name, version in matrix.versions.items())
    return (
        f"{counts[Detection.CAUGHT]} of {seeded} seeded faults were caught by the test that is named for them{rest}, "
        f"and {len(matrix.false_alarms)} of {len(matrix.healthy)} runs on healthy servers raised a false alarm. Seen "
        f"{matrix.started[:10] or 'at an unknown time'} at {commits}{' with ' + versions if versions else ''}."
    )
