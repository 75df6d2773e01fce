"""The command line of `glm5check synth`."""

import pytest
from click.testing import CliRunner

from glm5check.checkpoint.index import GgufSet
from glm5check.cli import synth as command
from glm5check.errors import OptionError
from glm5check.synth import geometry


@pytest.fixture
def narrow(monkeypatch):
    """Every width at a few hundred, so that the command's own set is small."""
    widths = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256, "q_lora_rank": 256}
    monkeypatch.setattr(geometry, "GLM5", geometry.GLM5 | widths | {"num_attention_heads": 2})


def test_the_command_writes_a_set_and_says_where(narrow, tmp_path):
    options = ["--layers", "2", "--dense-layers", "1", "--experts", "8", "--vocab", "1100", "--split-size", "500M"]
    result = CliRunner().invoke(command.synth, [str(tmp_path / "set"), *options, "--quant", "*attn_output*=Q6_K"])
    assert result.exit_code == 0, result.output
    first = tmp_path / "set" / "glm5-synth-00001-of-00002.gguf"
    assert f"{first} and 1 more" in result.stdout
    assert GgufSet.open(first).info("blk.1.attn_output.weight").qtype.name == "Q6_K"


@pytest.mark.parametrize("size", ["45", "4.5G", "G", "-1M", "1T"])
def test_a_split_size_that_is_none_is_refused(size, tmp_path):
    result = CliRunner().invoke(command.synth, [str(tmp_path), "--layers", "4", f"--split-size={size}"])
    assert isinstance(result.exception, OptionError)


def test_a_mix_that_is_none_lists_the_right_ones(tmp_path):
    result = CliRunner().invoke(command.synth, [str(tmp_path), "--mix", "Q9"])
    assert result.exit_code == 2
    assert "Q4_K_XL" in result.output
