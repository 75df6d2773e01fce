"""Is it the model: distributions, greedy ids and likelihoods against the oracle."""

from glm5check.checks import decode
from glm5check.records import Outcome


def test_mean_kl_on_random_tokens(random_scores, oracle_random_scores, greedy, oracle_greedy, installation, verdict):
    """The test with teeth: on random tokens nothing is memorised, so every weight of every rank counts.

    Greedy answers stay right while a merged layer holds another rank's rows; this mean does not. It cannot say
    which layer is wrong: `tests/sharding` does.
    """
    agreed = decode.greedy_ids(greedy, oracle_greedy, installation)
    right = all(finding.outcome is Outcome.PASSED for finding in agreed)
    verdict(decode.mean_kl(random_scores, oracle_random_scores, installation, greedy_is_right=right))


def test_greedy_ids_follow_the_oracle(greedy, oracle_greedy, installation, verdict):
    """Compared up to the first near-tie, where either token is right."""
    verdict(decode.greedy_ids(greedy, oracle_greedy, installation))


def test_token_logprobs_agree_with_the_oracle(passage_scores, oracle_passage_scores, installation, verdict):
    """One by one, on tokens that are not improbable: a mean hides a single wrong position."""
    verdict(decode.token_logprobs(passage_scores, oracle_passage_scores, installation))


def test_passages_are_as_likely_as_the_oracle_says(passage_scores, oracle_passage_scores, installation, verdict):
    """Teacher-forced likelihood of English, Chinese and code: catches faults that still read well."""
    verdict(decode.passage_nll(passage_scores, oracle_passage_scores, installation))


def test_every_window_of_a_passage_is_as_likely(passage_scores, oracle_passage_scores, installation, verdict):
    """The same by position: rope and cache faults grow with it, or begin at a border."""
    verdict(decode.nll_by_window(passage_scores, oracle_passage_scores, installation))
