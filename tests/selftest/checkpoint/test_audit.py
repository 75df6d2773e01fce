"""Every check of a checkpoint fails on the fault that it is for, and all are silent on a healthy set."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from fixtures.gguf_files import random_weights, write_hf_files, write_set
from glm5check.checkpoint.audit import survey
from glm5check.checkpoint.contents import Depth
from glm5check.checkpoint.index import GgufSet
from glm5check.checks import checkpoint as checks
from glm5check.records import Outcome

Q4_0, Q4_K, Q6_K = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
F16, F32, MXFP4 = GGMLQuantizationType.F16, GGMLQuantizationType.F32, GGMLQuantizationType.MXFP4
GATE, UP, DOWN = (f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up", "down"))


def read(file, depth=Depth.TABLE):
    return survey(GgufSet.read(file), file.parent, depth=depth)


def refused(findings):
    """The failed findings, as text; every check must have said something."""
    assert findings
    return "\n".join(str(finding) for finding in findings if finding.outcome is Outcome.FAILED)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_healthy_set_passes_everything(tmp_path, parts, ranks):
    findings = checks.audit(read(write_set(tmp_path, parts=parts), Depth.WEIGHTS), ranks)
    assert {finding.outcome for finding in findings} == {Outcome.PASSED}


class TestSet:
    def test_a_missing_part_is_seen(self, tmp_path):
        """FI-4: vllm-gguf-plugin skips the file without a word."""
        file = write_set(tmp_path, parts=3)
        (tmp_path / "micro-00002-of-00003.gguf").unlink()
        assert "micro-00002-of-00003.gguf does not exist" in refused(checks.set_complete(read(file)))

    def test_swapped_parts_are_seen(self, tmp_path):
        file = write_set(tmp_path, parts=3)
        swap(tmp_path / "micro-00002-of-00003.gguf", tmp_path / "micro-00003-of-00003.gguf")
        text = refused(checks.set_complete(read(file)))
        assert "named part 2 but says it is part 3" in text
        assert "named part 3 but says it is part 2" in text

    def test_a_part_of_another_set_is_seen(self, tmp_path):
        file = write_set(tmp_path, parts=3)
        (tmp_path / "other").mkdir()
        write_set(tmp_path / "other", parts=2)
        (tmp_path / "other" / "micro-00002-of-00002.gguf").replace(tmp_path / "micro-00002-of-00003.gguf")
        assert "one of 2 parts, but its name says 3" in refused(checks.set_complete(read(file)))

    def test_a_cut_file_is_seen(self, tmp_path):
        file = write_set(tmp_path)
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size // 2)
        assert "ends at byte" in refused(checks.set_complete(read(file)))

    def test_a_single_part_alone_is_seen(self, tmp_path):
        file = write_set(tmp_path, parts=2)
        alone = file.rename(tmp_path / "model.gguf")
        assert "does not say which part it is" in refused(checks.set_complete(read(alone)))


class TestTensors:
    def test_a_dropped_router_bias_is_seen(self, tmp_path):
        """FI-4: the parameter would stay uninitialised memory."""
        found = read(write_set(tmp_path, drop=["exp_probs_b.bias"]))
        assert "blk.1.exp_probs_b.bias" in refused(checks.expected_tensors_there(found))

    def test_an_unknown_tensor_is_seen(self, tmp_path):
        found = read(write_set(tmp_path, rename={"output_norm.weight": "norm.weight"}))
        text = refused(checks.expected_tensors_there(found))
        assert "missing: output_norm.weight" in text
        assert "unknown: norm.weight" in text

    def test_kv_b_without_its_transpose_is_seen(self, tmp_path):
        """FI-7 in a file: k_b is [heads, kv_lora, nope], not [heads, nope, kv_lora]."""

        def upright(spec, qtype):
            raw = random_weights(spec, qtype)
            if not spec.gguf.endswith("attn_k_b.weight"):
                return raw
            heads, rows, _ = spec.shape
            return raw.reshape(heads, rows // 2, -1)

        found = read(write_set(tmp_path, weights=upright))
        assert "shape (16, 32, 64), but should be shape (16, 64, 32)" in refused(checks.expected_tensors_there(found))

    def test_the_router_bias_may_lack_its_suffix(self, tmp_path):
        found = read(write_set(tmp_path, rename={"blk.1.exp_probs_b.bias": "blk.1.exp_probs_b"}))
        assert not refused(checks.expected_tensors_there(found))
        assert not refused(checks.one_naming(found))

    def test_two_forms_of_kv_b_are_seen(self, tmp_path):
        found = read(write_set(tmp_path, rename={"blk.1.attn_k_b.weight": "blk.1.attn_kv_b.weight"}))
        assert "both forms of kv_b in layers 1" in refused(checks.one_naming(found))

    def test_a_missing_key_is_seen(self, tmp_path):
        found = read(write_set(tmp_path, metadata={"glm-dsa.attention.kv_lora_rank": None}))
        assert "glm-dsa.attention.kv_lora_rank" in refused(checks.dimensions_known(found))

    def test_a_key_of_another_kind_is_seen(self, tmp_path):
        found = read(write_set(tmp_path, metadata={"glm-dsa.block_count": "two"}))
        assert "wrong kind" in refused(checks.dimensions_known(found))

    def test_a_nonsense_number_of_layers_is_refused_at_once(self, tmp_path):
        found = read(write_set(tmp_path, metadata={"glm-dsa.block_count": 4_000_000_000}))
        assert "4000000000 layers" in refused(checks.expected_tensors_there(found))


class TestLayout:
    def test_gate_and_up_of_equal_size_but_other_types_are_seen(self, tmp_path):
        """FI-6: the loader keeps one type for both, and nothing else gives it away."""
        found = read(write_set(tmp_path, types={UP: Q4_0}))
        assert "silently" in refused(checks.merged_types(found))

    def test_gate_and_up_of_other_sizes_are_seen(self, tmp_path):
        found = read(write_set(tmp_path, types={UP: Q6_K}))
        assert "shape error" in refused(checks.merged_types(found))

    def test_a_half_quantised_merged_layer_is_seen(self, tmp_path):
        found = read(write_set(tmp_path, types={"blk.0.ffn_up.weight": F16}))
        assert "some parts are quantised" in refused(checks.merged_types(found))

    def test_mixed_quantised_types_in_a_linear_layer_are_said(self, tmp_path):
        (finding,) = checks.merged_types(read(write_set(tmp_path, types={"blk.0.ffn_up.weight": Q4_K})))
        assert finding.outcome is Outcome.PASSED
        assert "1 of 9 groups mix" in finding.got

    def test_half_a_super_block_a_rank_is_seen(self, tmp_path):
        """512 columns in Q5_K: whole blocks on two ranks, half of one on four."""
        found = read(write_set(tmp_path))
        assert not refused(checks.slices_at_blocks(found, 2))
        assert "0.5 blocks of 256" in refused(checks.slices_at_blocks(found, 4))

    def test_ranks_that_do_not_divide_are_seen(self, tmp_path):
        found = read(write_set(tmp_path))
        assert not refused(checks.even_split(found, 16))
        assert "heads = 16, not a multiple of 3" in refused(checks.even_split(found, 3))

    def test_a_type_without_a_kernel_is_seen(self, tmp_path):
        assert "MXFP4" in refused(checks.types_served(read(write_set(tmp_path, types={DOWN: MXFP4}))))

    def test_a_router_bias_in_16_bits_is_seen(self, tmp_path):
        """FI-15 in a file."""
        found = read(write_set(tmp_path, types={"blk.1.exp_probs_b.bias": F16}))
        assert "F16" in refused(checks.router_bias(found))


class TestValues:
    def read_with(self, tmp_path, name, change):
        def weights(spec, qtype):
            raw = random_weights(spec, qtype)
            if spec.gguf == name:
                change(raw.reshape(-1, raw.shape[-1]))
            return raw

        return read(write_set(tmp_path, weights=weights), Depth.WEIGHTS)

    @pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7E00])
    def test_one_scale_that_is_not_finite_is_seen(self, tmp_path, half):
        def last_scale(rows):
            rows[-1, -176:-174] = np.array([half], np.uint16).view(np.uint8)

        found = self.read_with(tmp_path, DOWN, last_scale)
        assert f"1 of {4 * 256 * 2} blocks" in refused(checks.finite_scales(found))

    def test_a_nan_norm_is_seen(self, tmp_path):
        def poison(rows):
            rows.view(np.float32)[0, 5] = np.nan

        found = self.read_with(tmp_path, "output_norm.weight", poison)
        assert "output_norm.weight" in refused(checks.finite_scales(found))

    def test_a_tensor_of_zeros_is_seen(self, tmp_path):
        def erase(rows):
            rows[...] = 0

        found = self.read_with(tmp_path, GATE, erase)
        assert GATE in refused(checks.no_dead_tensors(found))

    def test_a_weight_beyond_float16_is_seen(self, tmp_path):
        def enlarge(rows):
            rows.view(np.float32)[0, 5] = 70000

        found = self.read_with(tmp_path, "blk.0.ffn_norm.weight", enlarge)
        assert "70000" in refused(checks.float16_range(found))

    def test_without_weights_the_range_is_unknown(self, tmp_path):
        (finding,) = checks.float16_range(read(write_set(tmp_path), Depth.SCALES))
        assert finding.outcome is Outcome.INCONCLUSIVE


class TestConfig:
    def read_with(self, tmp_path, **changes):
        file = write_set(tmp_path)
        write_hf_files(tmp_path, **changes)
        return read(file)

    @pytest.mark.parametrize(
        ("change", "key"),
        [
            ({"scoring_func": "softmax"}, "gating"),  # FI-16
            ({"routed_scaling_factor": 1.0}, "routed_scale"),  # FI-16
            ({"norm_topk_prob": False}, "norm_topk"),
            ({"rope_parameters": {"rope_theta": 8e6}}, "rope_theta"),  # FI-18
            ({"first_k_dense_replace": 0}, "dense_layers"),
            ({"num_experts_per_tok": 4}, "experts_used"),
            ({"index_topk": 32}, "index_topk"),  # FI-17
            ({"vocab_size": 300}, "vocab"),
        ],
    )
    def test_a_config_of_another_model_is_seen(self, tmp_path, change, key):
        assert f"key={key}" in refused(checks.config_agrees(self.read_with(tmp_path, **change)))

    def test_rope_scaling_on_one_side_is_seen(self, tmp_path):
        """FI-18."""
        scaled = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}
        assert "yarn" in refused(checks.config_agrees(self.read_with(tmp_path, rope_parameters=scaled)))

    @pytest.mark.parametrize("key", sorted(checks.config.SILENT_DEFAULTS))
    def test_a_key_that_vllm_would_assume_is_seen(self, tmp_path, key):
        assert f"key={key}" in refused(checks.config_complete(self.read_with(tmp_path, **{key: None})))

    def test_an_indexer_that_does_not_interleave_is_seen(self, tmp_path):
        """FI-17."""
        found = self.read_with(tmp_path, indexer_rope_interleave=False)
        assert "key=indexer_rope_interleave" in refused(checks.config_complete(found))

    def test_a_tied_output_matrix_is_seen(self, tmp_path):
        """FI-3."""
        assert "ties every split model" in refused(checks.tied_head(self.read_with(tmp_path, tie_word_embeddings=True)))

    def test_a_token_without_a_row_is_seen(self, tmp_path):
        file = write_set(tmp_path, metadata={"tokenizer.ggml.tokens": [f"token{i}" for i in range(321)]})
        assert "321 tokens in the GGUF, 320 rows" in refused(checks.vocabulary(read(file)))

    def test_a_shortened_list_of_end_tokens_is_seen(self, tmp_path):
        """FI-20."""
        file = write_set(tmp_path)
        (tmp_path / "generation_config.json").write_text('{"eos_token_id": 1}')
        assert "2 'token2' missing from [1]" in refused(checks.end_tokens(read(file)))

    def test_without_a_config_nothing_is_known(self, tmp_path):
        found = survey(GgufSet.read(write_set(tmp_path)), None)
        for check in (checks.config_agrees, checks.config_complete, checks.tied_head, checks.end_tokens):
            assert {finding.outcome for finding in check(found)} == {Outcome.INCONCLUSIVE}


def swap(first, second):
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
