"""Speculation checks on drafts that were accepted rightly and wrongly."""

import math

import pytest

from glm5check.checks import speculative
from glm5check.checks.causes import Installation
from glm5check.records import Acceptance, Generation, Outcome, TokenChoice
from glm5check.serving.speculation import read_acceptance

METRICS = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0"} 60.0
vllm:spec_decode_num_drafts_total{engine="1"} 40.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 10.0
"""


def outcomes(findings):
    return [finding.outcome for finding in findings]


def test_acceptance_is_read_by_position():
    assert read_acceptance(METRICS) == Acceptance(drafts=100.0, accepted=(80.0, 10.0))
    assert read_acceptance("") == Acceptance(drafts=0.0, accepted=())
    later, earlier = Acceptance(drafts=100, accepted=(80, 10)), Acceptance(drafts=40, accepted=(30,))
    assert later.since(earlier) == Acceptance(drafts=60, accepted=(50, 10))


def test_a_collapse_behind_the_first_position_is_seen():
    findings = speculative.acceptance(read_acceptance(METRICS))
    assert outcomes(findings) == [Outcome.PASSED, Outcome.FAILED]
    assert findings[1].where == {"position": "1"}
    assert "not carried on" in findings[1].cause


@pytest.mark.parametrize("drafts", [None, Acceptance(drafts=0, accepted=()), Acceptance(drafts=5, accepted=(5,))])
def test_too_few_drafts_prove_nothing(drafts):
    assert outcomes(speculative.acceptance(drafts)) == [Outcome.INCONCLUSIVE]


def generation(ids, margin=3.0):
    top = {0: math.log(0.9), 1: math.log(0.9) - margin}
    return Generation(prompt="x", prompt_ids=(1, 2), tokens=tuple(TokenChoice(i, top[i], top) for i in ids))


def test_a_wrong_draft_fails_unless_it_was_a_near_tie():
    installation = Installation(reduced=True)
    plain = generation([0, 0, 0, 0])
    assert outcomes(speculative.lossless([plain], [plain], installation)) == [Outcome.PASSED]
    (finding,) = speculative.lossless([generation([0, 0, 1, 0])], [plain], installation)
    assert finding.outcome is Outcome.FAILED
    assert finding.where["position"] == "4 (token 3 of 4)"
    tied = generation([0, 0, 0, 0], margin=0.1)
    assert outcomes(speculative.lossless([generation([0, 0, 1, 0], margin=0.1)], [tied], installation)) == [
        Outcome.PASSED
    ]
