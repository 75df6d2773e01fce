"""Every rank loads the rows of rank 0 into its merged layers."""

from __future__ import annotations

from functools import wraps
from typing import Any

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass


def apply() -> None:
    from vllm_gguf_plugin.quantization.params import _GGUFParamLoadMixin

    load = _GGUFParamLoadMixin.load_merged_column_weight

    @wraps(load)
    def load_rank_0(self: Any, loaded_weight: Any, **kwargs: Any) -> None:
        load(self, loaded_weight, **(kwargs | {"tp_rank": 0}))

    _GGUFParamLoadMixin.load_merged_column_weight = load_rank_0


FAULT = Fault(
    name="rank_ignored",
    fault_class=FaultClass.LOADING,
    stands_for="silent corruption with more than one rank: vllm-gguf-plugin 0.0.5 on a vLLM that passes no rank",
    seeded="gate_up_proj of every rank holds the rows of rank 0; nothing changes on one rank",
    caught_by="tests/sharding/test_live_digests.py::test_every_rank_holds_the_bytes_of_the_files",
    says="the bytes of rank 0",
    apply=apply,
)
