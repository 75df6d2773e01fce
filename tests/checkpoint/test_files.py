"""The GGUF set is whole: nothing that is missing or cut is served as if it were there."""

from __future__ import annotations

from glm5check.checks import checkpoint as checks


def test_split_set_is_complete_and_every_tensor_inside_its_file(checkpoint, verdict):
    verdict(checks.set_complete(checkpoint))


def test_keys_describe_a_glm5(checkpoint, verdict):
    verdict(checks.dimensions_known(checkpoint))


def test_every_tensor_of_the_model_is_there_in_its_shape(checkpoint, verdict):
    verdict(checks.expected_tensors_there(checkpoint))


def test_kv_b_and_router_bias_have_one_naming(checkpoint, verdict):
    verdict(checks.one_naming(checkpoint))
