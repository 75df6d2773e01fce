"""Names of the measurements that the report draws. A measurement of any other name appears in its table only."""

from __future__ import annotations

import re
from typing import Final

STEP: Final = "step: "
"""us of a decode step that one part of it takes, named after it (`glm5check.trace.latency.Part`). `where`: rank."""
ALL_REDUCE: Final = "all_reduce.latency"
"""us of one all-reduce kernel. `where`: rank; one sample a kernel."""
NLL: Final = "nll.position"
"""nat per token, mean over a window, by position. `where`: prompt, source (server, oracle, golden), window (tokens)."""
SPEED_UNIT: Final = "tok/s"
LADDER: Final = re.compile(r"(?P<what>.+)\.streams_(?P<count>\d+)")
"""Names of the throughput workloads with several requests at once; together they are one ladder."""
LINES: Final = {"throughput.floor": "floor", "throughput.bound": "bound", "throughput.target": "target"}
"""Checks whose findings give a line: at their `bound`, for the measurement that `where` calls `measure`."""
MEASURE: Final = "measure"
