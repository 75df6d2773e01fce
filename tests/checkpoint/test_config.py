"""The HF config, which vLLM believes, says of the model what its GGUF file says."""

from __future__ import annotations

from glm5check.checks import checkpoint as checks


def test_hf_config_agrees_with_gguf_keys(checkpoint, verdict):
    verdict(checks.config_agrees(checkpoint))


def test_nothing_is_left_to_a_silent_default(checkpoint, verdict):
    verdict(checks.config_complete(checkpoint))


def test_output_matrix_is_not_tied_to_the_embedding(checkpoint, verdict):
    verdict(checks.tied_head(checkpoint))


def test_every_token_has_an_embedding_row(checkpoint, verdict):
    verdict(checks.vocabulary(checkpoint))


def test_generation_ends_where_the_gguf_says(checkpoint, verdict):
    verdict(checks.end_tokens(checkpoint))
