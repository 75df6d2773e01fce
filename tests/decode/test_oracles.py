"""Who judges: two implementations that were written independently of each other and of vLLM."""

from glm5check.checks import decode


def test_three_implementations_agree(
    random_scores, oracle_random_scores, second_oracle_random_scores, oracle, second_oracle, installation, verdict
):
    """The server, transformers on the dequantised file, and llama.cpp on the file itself.

    A prompt on which the two oracles differ judges nobody: ties among the indexer's best tokens have no right answer.
    """
    oracles = {oracle.name: oracle_random_scores, second_oracle.name: second_oracle_random_scores}
    verdict(decode.oracles_agree(random_scores, oracles, installation))
