"""The bytes hold usable weights. One pass over all of them: minutes for a 744B model, at the disk's speed."""

from __future__ import annotations

import pytest

from glm5check.checks import checkpoint as checks

pytestmark = pytest.mark.timeout(7200)


def test_scales_are_finite(checkpoint_contents, verdict):
    verdict(checks.finite_scales(checkpoint_contents))


def test_no_tensor_is_dead(checkpoint_contents, verdict):
    verdict(checks.no_dead_tensors(checkpoint_contents))


def test_weights_fit_float16(checkpoint_contents, verdict):
    verdict(checks.float16_range(checkpoint_contents))
