"""Names of the measurements that the report draws. A measurement of any other name appears in its table only.

Beside a measurement `x`, one of the same unit and `where` called `x.floor`, `x.bound` or `x.target` is drawn as a line.
"""

from __future__ import annotations

from typing import Final

STEP_TIME: Final = "step.time"
"""us of one decode step spent on one kind of work. `where`: rank, work; one sample a steady step."""
ALL_REDUCE: Final = "all_reduce.latency"
"""us of one all-reduce kernel. `where`: rank; one sample a kernel."""
NLL: Final = "nll.position"
"""nat per token, mean over a window, by position. `where`: prompt, source (server, oracle, golden), window (tokens)."""
DETECTION: Final = "detection"
"""s that one test took against one seeded fault. `where`: fault, test, result (caught, other, missed, false alarm)."""
SPEED_UNIT: Final = "tok/s"
CONCURRENCY: Final = "concurrency"
"""Key of `where`: measurements that differ in nothing else form a ladder."""
LINES: Final = ("floor", "bound", "target")
GAP: Final = "gap"
"""The `work` of a step in which no kernel runs."""
