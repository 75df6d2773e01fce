"""How the weights of each tensor are spread, so that random layers compute ordinary numbers.

A matrix whose weights have standard deviation 1/sqrt(inputs) gives outputs of the size of its inputs. Every block reads
a normalised stream and adds up to one unit of variance, so the stream grows as the square root of depth (under 10 after
78 layers), attention scores and router logits are of size 1, and the logits of size LOGIT_STD: finite, and not flat.

The two gains below decide whether such a model can tell right from wrong. Its routers choose among near-ties, which
bfloat16 flips: on 8 layers of 32 experts, transformers in bfloat16 was measured 1.6e-3 nat (mean KL) off float32, where
gains of 1 and 2 give 4.1e-2. One layer's experts in wrong order give 1.7e-2, other faults of one layer up to 2e-1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from glm5check.glm5.tensors import TensorSpec

LOGIT_STD: Final = 1.5
"""Nat. The likeliest of 2,048 tokens then has a probability of 4 % on average."""
ROUTED_GAIN: Final = 0.35
"""Of the routed experts' output, against the shared expert's."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and standard deviation of a tensor's weights."""

    std: float
    mean: float = 0.0


def distribution(spec: TensorSpec) -> Distribution:
    """The distribution of one tensor."""
    part = spec.gguf.removeprefix(f"blk.{spec.layer}.")
    if part.endswith("norm.weight"):
        return Distribution(0.1, mean=1.0)
    if part in _STD:
        return Distribution(_STD[part])
    # attn_k_b is stored transposed: its inputs are not its columns.
    inputs = spec.shape[1] if part == "attn_k_b.weight" else spec.shape[-1]
    return Distribution(_GAIN.get(part, 1.0) / math.sqrt(inputs))


_STD: Final = {"token_embd.weight": 1.0, "exp_probs_b.bias": 0.05, "indexer.k_norm.bias": 0.1}
_GAIN: Final = {"output.weight": LOGIT_STD, "ffn_down_exps.weight": ROUTED_GAIN}
