"""What the environment asks for."""

import pytest

from glm5check.errors import OptionError
from glm5check.vllm_plugin.options import Attention, PluginOptions


def test_an_empty_environment_applies_all_fixes_and_no_fault():
    assert PluginOptions.from_environment({}) == PluginOptions("all", (), Attention.AUTO, mtp=False)


def test_an_empty_variable_is_as_good_as_none():
    empty = dict.fromkeys(("GLM5CHECK_FIXES", "GLM5CHECK_FAULTS", "GLM5CHECK_ATTENTION", "GLM5CHECK_MTP"), "")
    assert PluginOptions.from_environment(empty) == PluginOptions()


def test_every_variable_is_read():
    options = PluginOptions.from_environment(
        {"GLM5CHECK_FIXES": "a", "GLM5CHECK_FAULTS": "b, c,", "GLM5CHECK_ATTENTION": "dense", "GLM5CHECK_MTP": "1"}
    )
    assert options == PluginOptions("a", ("b", "c"), Attention.DENSE, mtp=True)


@pytest.mark.parametrize(
    ("variable", "right"), [("GLM5CHECK_ATTENTION", "auto, dense, sparse"), ("GLM5CHECK_MTP", "0, 1")]
)
def test_a_wrong_value_lists_the_right_ones(variable, right):
    with pytest.raises(OptionError, match=f"'wrong' is no value of {variable}(.|\n)*use one of {right}"):
        PluginOptions.from_environment({variable: "wrong"})
