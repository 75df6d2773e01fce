"""What the speculation checks say, case by case; the approved words are in findings.txt."""

from dataclasses import replace

import pytest

from glm5check.checks import speculative
from glm5check.checks.causes import Installation
from glm5check.records import Acceptance, Generation, TokenChoice
from tests.selftest.approved import approved, told

INSTALLATION = Installation(ranks=2, reduced=True)
TOP = {0: -0.25, 1: -2.25}


def answer(*ids, name="fox", margin=2.0):
    top = {0: -0.25, 1: -0.25 - margin}
    return Generation(prompt=name, prompt_ids=(1, 2), tokens=tuple(TokenChoice(i, top[i], top) for i in ids))


PLAIN = answer(0, 0, 0, 0)
BROKEN = Generation(prompt="broken", error="HTTP 500: EngineDeadError")

CASES = {
    "speculation changes nothing": lambda: speculative.lossless([PLAIN], [PLAIN], INSTALLATION),
    "a wrong draft is accepted": lambda: speculative.lossless([answer(0, 0, 1, 0)], [PLAIN], INSTALLATION),
    "a draft differs at a near-tie": lambda: speculative.lossless(
        [answer(0, 0, 1, 0, margin=0.25)], [answer(0, 0, 0, 0, margin=0.25)], INSTALLATION
    ),
    "a request fails and the one after it is still judged": lambda: speculative.lossless(
        [BROKEN, answer(1, 0, 0, 0)], [replace(BROKEN, error=""), PLAIN], INSTALLATION
    ),
    "nothing was answered twice": lambda: speculative.lossless([], [], INSTALLATION),
    "every position is accepted": lambda: speculative.acceptance(Acceptance(drafts=200, accepted=(180.0, 90.0))),
    "no draft is accepted": lambda: speculative.acceptance(Acceptance(drafts=200, accepted=(0.0, 0.0))),
    "the second position collapses": lambda: speculative.acceptance(Acceptance(drafts=200, accepted=(180.0, 10.0))),
    "acceptance is exactly the least, in exactly the fewest drafts": lambda: speculative.acceptance(
        Acceptance(drafts=20, accepted=(6.0,))
    ),
    "the server counts drafts without their positions": lambda: speculative.acceptance(
        Acceptance(drafts=200, accepted=())
    ),
    "the server counts no drafts": lambda: speculative.acceptance(None),
    "there were few drafts": lambda: speculative.acceptance(Acceptance(drafts=5, accepted=(5.0,))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]
