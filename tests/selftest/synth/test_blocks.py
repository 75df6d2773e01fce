"""Random blocks have the spread that was asked for, in every type, as gguf-py reads them."""

import gguf.quants
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from glm5check.errors import CheckpointError
from glm5check.synth.blocks import FLOATS, QUANTISED, random_bytes

PUBLISHED = [GGMLQuantizationType[name] for name in ("Q8_0", "Q4_K", "Q5_K", "Q6_K")]
"""In published sets, so these are looked at closely."""
STD = 0.0128
"""1 / sqrt(6144), GLM-5's most frequent."""


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


@pytest.mark.parametrize("qtype", [*FLOATS, *QUANTISED], ids=lambda qtype: qtype.name)
def test_mean_and_deviation_are_as_asked(qtype):
    """Random codes of a type without a minimum are off zero by half a step, a ninth of a deviation in 4 bits."""
    weights = gguf.quants.dequantize(random_bytes(qtype, 2000, generator(), std=STD), qtype)
    assert np.isfinite(weights).all()
    assert weights.std() == pytest.approx(STD, rel=0.06)
    assert abs(weights.mean()) < 0.12 * STD


@pytest.mark.parametrize("qtype", PUBLISHED, ids=lambda qtype: qtype.name)
def test_no_two_blocks_are_alike(qtype):
    blocks = random_bytes(qtype, 5000, generator(), std=STD)
    assert len(np.unique(blocks, axis=0)) == len(blocks)


def test_every_code_of_q4_k_is_used():
    blocks = random_bytes(GGMLQuantizationType.Q4_K, 200, generator(), std=STD)
    assert len(np.unique(blocks[:, 16:] & 15)) == 16


def test_q8_0_never_has_the_code_that_no_quantiser_writes():
    blocks = random_bytes(GGMLQuantizationType.Q8_0, 5000, generator(), std=STD)
    assert blocks[:, 2:].view(np.int8).min() == -127


def test_one_seed_gives_the_same_bytes():
    first, second, other = (
        random_bytes(GGMLQuantizationType.Q5_K, 50, generator(seed), std=STD).tobytes() for seed in (1, 1, 2)
    )
    assert first == second != other


@pytest.mark.parametrize("qtype", [GGMLQuantizationType.IQ1_M, GGMLQuantizationType.MXFP4], ids=lambda q: q.name)
def test_a_type_whose_scales_are_no_halves_is_refused(qtype):
    with pytest.raises(CheckpointError, match="cannot be made"):
        random_bytes(qtype, 1, generator(), std=STD)
