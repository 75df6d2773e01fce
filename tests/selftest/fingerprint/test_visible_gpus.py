"""Which GPUs are ours: CUDA_VISIBLE_DEVICES as CUDA reads it, so that no neighbour's clocks are judged."""

from __future__ import annotations

import pytest

from glm5check.nvml import visible

UUIDS = ["GPU-1f", "GPU-2e", "GPU-3d"]


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("-1", ()),
        ("1", (1,)),
        ("2,0", (2, 0)),
        ("0, 1", (0, 1)),
        ("GPU-3,GPU-1f", (2, 0)),
        ("0,7,1", (0,)),
        ("0,,1", (0,)),
    ],
)
def test_visible_gpus(variable: str | None, left: tuple[int, ...]) -> None:
    assert visible(variable, UUIDS) == left
