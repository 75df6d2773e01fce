"""What the environment asks for."""

import pytest

from glm5check.errors import OptionError
from glm5check.vllm_plugin.options import Attention, PluginOptions


def test_an_empty_environment_applies_all_fixes_and_no_fault():
    assert PluginOptions.from_environment({}) == PluginOptions("all", (), Attention.AUTO)


def test_an_empty_variable_is_as_good_as_none():
    empty = dict.fromkeys(("GLM5CHECK_FIXES", "GLM5CHECK_FAULTS", "GLM5CHECK_ATTENTION"), "")
    assert PluginOptions.from_environment(empty) == PluginOptions()


def test_every_variable_is_read():
    options = PluginOptions.from_environment(
        {"GLM5CHECK_FIXES": "a", "GLM5CHECK_FAULTS": "b, c,", "GLM5CHECK_ATTENTION": "dense"}
    )
    assert options == PluginOptions("a", ("b", "c"), Attention.DENSE)


def test_a_wrong_value_lists_the_right_ones():
    with pytest.raises(OptionError, match=r"'wrong' is no value of GLM5CHECK_ATTENTION(.|\n)*auto, dense, sparse"):
        PluginOptions.from_environment({"GLM5CHECK_ATTENTION": "wrong"})
