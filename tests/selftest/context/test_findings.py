"""What the context checks say, case by case; the approved words are in findings.txt."""

from dataclasses import replace

import pytest

from glm5check.checks import context
from glm5check.checks.context import Needle
from glm5check.records import Generation, TokenChoice
from tests.selftest.approved import approved, told

MIDDLE = Needle(name="middle", size=4096, depth=0.5, answer="7319")
KNOWN = Needle(name="capital", size=512, depth=None, answer="Paris")
FULL = Generation(
    prompt="full", prompt_ids=(1,) * 12, tokens=(TokenChoice(5, -0.1),) * 4, text="words", finish_reason="length"
)
AFTER = replace(FULL, prompt="after")
REFUSED = Generation(prompt="over", error="HTTP 400: the prompt is too long for this model. " * 3)
DEAD = Generation(prompt="dead", error="HTTP 500: EngineDeadError")
LATE = Generation(prompt="late", error="the server did not answer in time")


def answered(**texts: str):
    return {name: Generation(prompt=name, text=text) for name, text in texts.items()}


CASES = {
    "a needle in the context and one in the memory are found": lambda: context.needles(
        answered(middle=" 7319.", capital="It is Paris."), [MIDDLE, KNOWN]
    ),
    "both are lost in long answers": lambda: context.needles(
        answered(middle="no " * 30, capital="none"), [MIDDLE, KNOWN]
    ),
    "a request fails and the needle after it is still judged": lambda: context.needles(
        {"middle": Generation(prompt="middle", error="HTTP 500"), **answered(capital="Paris")}, [MIDDLE, KNOWN]
    ),
    "no needle was hidden": lambda: context.needles({}, []),
    "a full context ends at its limit": lambda: context.ends_at_limit(FULL, 4, REFUSED, AFTER),
    "it ends one token early": lambda: context.ends_at_limit(FULL, 5, REFUSED, AFTER),
    "it ends by itself at the limit": lambda: context.ends_at_limit(
        replace(FULL, finish_reason="stop"), 4, REFUSED, AFTER
    ),
    "a request past the limit is served": lambda: context.ends_at_limit(FULL, 4, replace(FULL, prompt="over"), AFTER),
    "a request past the limit kills the engine": lambda: context.ends_at_limit(
        FULL, 4, replace(DEAD, prompt="over"), replace(DEAD, prompt="after")
    ),
    "the full request itself fails": lambda: context.ends_at_limit(replace(DEAD, prompt="full"), 4, REFUSED, AFTER),
    "a soak is answered in time": lambda: context.in_time([FULL, AFTER], 1.5),
    "a request of a soak hangs": lambda: context.in_time([FULL, LATE], 60),
    "a soak without requests": lambda: context.in_time([], 60),
    "requests were preempted": lambda: context.was_preempted(3.0),
    "one request was preempted": lambda: context.was_preempted(1.0),
    "no request was preempted": lambda: context.was_preempted(0.0),
    "preemptions are not counted": lambda: context.was_preempted(None),
    "a prefix was taken from the cache": lambda: context.was_cached(128.0),
    "no prefix was cached": lambda: context.was_cached(0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_finding_says(case):
    assert told(CASES[case]()) == approved(__file__)[case]
