"""Raw GGUF bytes to torch tensors of weights: the numpy kernels of `glm5check.checkpoint`, in torch's types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from glm5check.checkpoint.dequant import OutputType

_OUTPUT: Final[dict[torch.dtype, OutputType]] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


def to_weights(raw: torch.Tensor, quant_type: int, dtype: torch.dtype) -> torch.Tensor:
    """Weights of `raw`, uint8 [..., bytes of a row] in CPU memory, as [..., columns] of float32, float16 or bfloat16.

    Raises CheckpointError if the bytes of a row are no whole number of blocks.
    """
    # Not at import: vLLM's CPU workers look through the attributes of every loaded module at start, and stumble over
    # llvmlite's (`'_lib_fn_wrapper' object has no attribute 'get'`), which numba brings.
    from glm5check.checkpoint.dequant import dequantise

    weights = torch.from_numpy(dequantise(raw.detach().numpy(), quant_type, out=_OUTPUT[dtype]))
    return weights.view(dtype)  # bfloat16 comes as its bits
