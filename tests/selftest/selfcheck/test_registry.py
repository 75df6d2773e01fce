"""The registry names tests that exist, and has every fault of the server in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glm5check.errors import OptionError
from glm5check.selfcheck import registry
from glm5check.selfcheck.seeded import Place
from glm5check.vllm_plugin import faults

ROOT = Path(__file__).parents[3]


def test_names_are_told_apart():
    names = [fault.name for fault in registry.ALL]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


@pytest.mark.parametrize("fault", registry.ALL, ids=lambda fault: fault.name)
def test_a_fault_names_tests_that_exist(fault):
    for test in (fault.caught_by, *fault.beside):
        path, *names = test.split("[")[0].split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(f"def {name}(" in text or f"class {name}:" in text for name in names)
    assert fault.stands_for
    assert fault.seeded


@pytest.mark.parametrize("fault", registry.ALL, ids=lambda fault: fault.name)
def test_an_acceptance_test_must_say_what_it_caught(fault):
    """A self-test asserts the words on its own."""
    assert fault.by_selftest or len(fault.says) >= 3


def test_every_fault_of_the_server_is_a_row():
    assert {fault.name for fault in faults.ALL} <= {fault.name for fault in registry.ALL}


def test_the_quick_ones_are_one_a_place_and_start_one_server():
    quick = registry.chosen(registry.QUICK)
    assert sorted(fault.seeded_in for fault in quick) == sorted(Place)
    assert not any(fault.needs_gpu for fault in quick)


def test_each_test_is_asked_for_once(fault):
    one = fault(beside=("tests/decode/test_tokenizer.py",))
    assert one.tests == ("tests/decode/test_tokenizer.py",)


def test_an_unknown_name_lists_the_right_ones():
    with pytest.raises(OptionError, match="file_cut"):
        registry.chosen(["file_cut", "phantom"])
    with pytest.raises(OptionError, match="phantom_tensor"):
        faults.apply(["phantom"])
    assert registry.chosen([]) == registry.ALL
