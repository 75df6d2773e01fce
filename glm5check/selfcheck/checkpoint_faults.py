"""Faults of a GGUF set, each in a copy of the embedded model's files."""

from __future__ import annotations

import struct
from typing import Any, Final

from gguf.constants import GGMLQuantizationType

from glm5check.selfcheck import gguf_edits as edits
from glm5check.selfcheck.seeded import Place, SeededFault, in_model
from glm5check.vllm_plugin.faults.fault import FaultClass

Q = GGMLQuantizationType
FILES: Final = "tests/checkpoint/test_files.py"
LAYOUT: Final = "tests/checkpoint/test_layout.py"
VALUES: Final = "tests/checkpoint/test_values.py"
BESIDE: Final = (FILES, LAYOUT, "tests/checkpoint/test_config.py")
INFINITE_HALF: Final = struct.pack("<H", 0x7C00)
BEYOND_HALF: Final = struct.pack("<f", 70000.0)


def _fault(name: str, caught_by: str, spoil: edits.Spoil, **words: Any) -> SeededFault:
    file = caught_by.partition("::")[0]
    return SeededFault(
        name=name,
        fault_class=FaultClass.FILES,
        seeded_in=Place.CHECKPOINT,
        caught_by=caught_by,
        seed=in_model(spoil),
        beside=BESIDE if file in BESIDE else (*BESIDE, file),
        **words,
    )


FAULTS: Final = (
    _fault(
        "file_part_missing",
        f"{FILES}::test_split_set_is_complete_and_every_tensor_inside_its_file",
        edits.part_missing,
        stands_for="a split set of which one file was not downloaded: vllm-gguf-plugin skips it without a word",
        seeded="the second of three files is gone",
        says="does not exist",
    ),
    _fault(
        "file_parts_swapped",
        f"{FILES}::test_split_set_is_complete_and_every_tensor_inside_its_file",
        edits.parts_swapped,
        stands_for="files of a split set that were renamed by hand",
        seeded="the second and third file have each other's names",
        says="named part 2 but says it is part 3",
    ),
    _fault(
        "file_cut",
        f"{FILES}::test_split_set_is_complete_and_every_tensor_inside_its_file",
        edits.part_cut,
        stands_for="a download that ended early",
        seeded="the last file ends in its middle",
        says="ends at byte",
    ),
    _fault(
        "file_bias_missing",
        f"{FILES}::test_every_tensor_of_the_model_is_there_in_its_shape",
        edits.renamed("blk.1.exp_probs_b.bias", "blk.1.exp_probs_c.bias"),
        stands_for="a conversion without router biases: the parameter stays uninitialised memory",
        seeded="the router bias of block 1 has a name that no loader knows",
        says="missing: blk.1.exp_probs_b.bias",
    ),
    _fault(
        "file_kv_b_transposed",
        f"{FILES}::test_every_tensor_of_the_model_is_there_in_its_shape",
        edits.reshaped("blk.1.attn_k_b.weight", (4, 192, 512)),
        stands_for="a conversion that splits kv_b without transposing its key half",
        seeded="attn_k_b of block 1 is [heads, nope, kv_lora]",
        says="shape (4, 192, 512), but should be shape (4, 512, 192)",
    ),
    _fault(
        "file_gate_type",
        f"{LAYOUT}::test_merged_parameters_hold_types_that_their_loader_keeps_apart",
        edits.retyped("blk.1.ffn_gate_exps.weight", Q.Q4_0),
        stands_for="gate and up experts in types of equal size: one is decoded as the other, silently",
        seeded="gate experts of block 1 are called Q4_0 beside up experts in Q4_K",
        says="silently, as rows have equal bytes",
    ),
    _fault(
        "file_type_without_kernel",
        f"{LAYOUT}::test_types_have_kernels",
        edits.retyped("blk.1.ffn_down_exps.weight", Q.MXFP4),
        stands_for="a file with a quant type that the plugin accepts and has no kernel for",
        seeded="down experts of block 1 are called MXFP4",
        says="MXFP4",
    ),
    _fault(
        "file_bias_in_16_bits",
        f"{LAYOUT}::test_router_bias_is_float32",
        edits.retyped("blk.1.exp_probs_b.bias", Q.F16),
        stands_for="router biases in 16 bits, which cannot tell GLM-5's biases apart",
        seeded="the router bias of block 1 is called F16",
        says="F16",
    ),
    _fault(
        "file_infinite_scale",
        f"{VALUES}::test_scales_are_finite",
        edits.overwritten("blk.1.ffn_gate_exps.weight", INFINITE_HALF),
        stands_for="one block whose scale overflowed when it was quantised: every answer is NaN",
        seeded="the first scale of block 1's gate experts is infinite",
        says="blk.1.ffn_gate_exps.weight",
    ),
    _fault(
        "file_zeroed_tensor",
        f"{VALUES}::test_no_tensor_is_dead",
        edits.overwritten("blk.0.ffn_up.weight", b"\0"),
        stands_for="a download that was allocated and not filled",
        seeded="ffn_up of block 0 is all zero",
        says="blk.0.ffn_up.weight",
    ),
    _fault(
        "file_beyond_float16",
        f"{VALUES}::test_weights_fit_float16",
        edits.overwritten("blk.0.ffn_norm.weight", BEYOND_HALF, at=20),
        stands_for="weights that are infinite as soon as a kernel dequantises to float16",
        seeded="one weight of block 0's ffn_norm is 70000",
        says="70000",
    ),
)
