"""Speed: first whether its measurement is to be believed, then whether it is enough.

measurement     requests and tokens add up, the client and the machine were free, the hardware could do it
speed           floors, ratios of workloads, stalls, and what was measured before
"""

from glm5check.checks.throughput.measurement import (
    below_bound,
    client_keeps_up,
    clients_agree,
    clocks,
    counters_agree,
    disturbed,
    neighbours_quiet,
    requests_answered,
)
from glm5check.checks.throughput.speed import floor_reached, no_regression, ratio_kept, stalls, target_reported

__all__ = [
    "below_bound",
    "client_keeps_up",
    "clients_agree",
    "clocks",
    "counters_agree",
    "disturbed",
    "floor_reached",
    "neighbours_quiet",
    "no_regression",
    "ratio_kept",
    "requests_answered",
    "stalls",
    "target_reported",
]
