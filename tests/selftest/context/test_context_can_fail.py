"""Context checks on requests that ended rightly and wrongly."""

from dataclasses import replace

import pytest

from glm5check.checks import context
from glm5check.checks.context import Needle
from glm5check.records import Generation, Outcome, TokenChoice


def outcomes(findings):
    return {finding.outcome for finding in findings}


def test_a_lost_needle_is_named_with_size_and_depth():
    needle = Needle(name="needle-4096-50%", size=4096, depth=0.5, answer="7319")
    found = {needle.name: Generation(prompt=needle.name, text=" 7319.")}
    assert outcomes(context.needles(found, [needle])) == {Outcome.PASSED}
    lost = {needle.name: Generation(prompt=needle.name, text=" 12.")}
    (finding,) = context.needles(lost, [needle])
    assert finding.outcome is Outcome.FAILED
    assert finding.where == {"prompt": needle.name, "size": "4096", "depth": "50%"}
    assert outcomes(context.needles({}, [])) == {Outcome.INCONCLUSIVE}


@pytest.fixture
def full():
    tokens = tuple(TokenChoice(5, -0.1) for _ in range(4))
    return Generation(prompt="full", prompt_ids=(1,) * 12, tokens=tokens, finish_reason="length")


@pytest.fixture
def refused():
    return Generation(prompt="over", error="HTTP 400: the prompt is too long")


def test_a_full_context_can_fail(full, refused):
    after = Generation(prompt="after", tokens=full.tokens[:1], finish_reason="length")
    assert outcomes(context.ends_at_limit(full, 4, refused, after)) == {Outcome.PASSED}
    short = replace(full, tokens=full.tokens[:3])
    served = Generation(prompt="over", tokens=full.tokens)
    died = Generation(prompt="after", error="HTTP 500: EngineDeadError")
    for wrong in ((short, refused, after), (full, served, after), (full, refused, died)):
        assert Outcome.FAILED in outcomes(context.ends_at_limit(wrong[0], 4, *wrong[1:]))


def test_a_hanging_request_fails_a_soak(full):
    assert outcomes(context.in_time([full] * 3, 60)) == {Outcome.PASSED}
    hanging = Generation(prompt="soak-7", error="the server did not answer in time")
    (finding,) = context.in_time([full, hanging], 60)
    assert finding.outcome is Outcome.FAILED
    assert "hangs" in finding.cause
    assert outcomes(context.in_time([], 60)) == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("check", [context.was_cached, context.was_preempted])
def test_what_did_not_happen_proves_nothing(check):
    assert outcomes(check(3.0)) == {Outcome.PASSED}
    assert outcomes(check(0.0)) == outcomes(check(None)) == {Outcome.INCONCLUSIVE}
