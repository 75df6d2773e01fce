"""Faults inside the server: those of `--glm5-faults`, each on a server of its own."""

from __future__ import annotations

from typing import Final

from glm5check.selfcheck.seeded import Place, SeededFault, with_options
from glm5check.vllm_plugin import faults
from glm5check.vllm_plugin.faults.fault import Fault, FaultClass

BESIDE: Final = (
    "tests/decode/test_answers.py::test_closed_questions_are_answered",
    "tests/decode/test_consistency.py::test_random_text_has_finite_logprobs",
    "tests/decode/test_tokenizer.py::test_conversations_begin_once",
)
"""What is quick once a server runs: does it talk, is anything NaN, is the prompt right."""


def _beside(fault: Fault) -> tuple[str, ...]:
    """Speed is measured alone: beside other tests it has no more time than a free machine needs to decide."""
    if fault.fault_class is FaultClass.SPEED:
        return ()
    return tuple(test for test in BESIDE if test != fault.caught_by)


FAULTS: Final = tuple(
    SeededFault(
        name=fault.name,
        fault_class=fault.fault_class,
        stands_for=fault.stands_for,
        seeded=fault.seeded,
        seeded_in=Place.SERVER,
        caught_by=fault.caught_by,
        says=fault.says,
        seed=with_options(f"--glm5-faults={fault.name}"),
        beside=_beside(fault),
        needs_gpu=fault.needs_gpu,
    )
    for fault in faults.ALL
)
