"""The probe counts what attention wrote, eager and inside a graph that it has captured anew."""

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from glm5check.vllm_plugin.recapture import recapture_single_token
from glm5check.vllm_plugin.whitebox import WhiteBox


@dataclass(frozen=True)
class Shape:
    num_tokens: int


class Attention(torch.nn.Module):
    """Latent attention as vLLM's: `forward` makes a buffer, `forward_impl` writes what `rows` allows."""

    num_heads, v_head_dim = 2, 3

    def __init__(self, unwritten_rows, other_tensor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.unwritten_rows, self.other_tensor = unwritten_rows, other_tensor

    def forward_impl(self, q, k, rope, cache, attn_metadata, output):
        output[: len(output) - self.unwritten_rows] = 1.0
        return output

    def forward(self, q):
        output = torch.empty(len(q), 6)
        self.forward_impl(q, None, None, None, SimpleNamespace(num_actual_tokens=len(q)), output=output)
        return output.clone() if self.other_tensor else output


def probe(attention):
    layer = SimpleNamespace(self_attn=attention, mlp=torch.nn.Identity())
    trunk = SimpleNamespace(layers=[layer], embed_tokens=torch.nn.Identity(), norm=torch.nn.Identity())
    box = WhiteBox()
    box.model_runner = SimpleNamespace(model=SimpleNamespace(model=trunk), dtype=torch.float32)
    return box


@pytest.mark.parametrize(
    ("unwritten_rows", "other_tensor", "counts"),
    [(0, False, (0, 0)), (1, False, (2, 0)), (0, True, (0, 2))],
    ids=["healthy", "unwritten", "other tensor"],
)
def test_rows_and_tensors_are_counted(unwritten_rows, other_tensor, counts):
    attention = Attention(unwritten_rows, other_tensor)
    box = probe(attention)
    assert box.watch() == {"attention": 1, "routers": 0, "places": 4}
    attention(torch.zeros(4, 1))
    attention(torch.zeros(1, 1))
    writes = box.seen()["attention"]["blk.0"]
    assert (writes["calls"], writes["rows"]) == (2, 5)
    assert (writes["unwritten"], writes["other_tensor"]) == counts


def test_compiled_code_is_seen_through_the_operator_that_it_calls():
    """It never calls `forward`."""
    attention = Attention(1, other_tensor=False)
    box = probe(attention)
    box.watch()
    attention.forward_impl(None, None, None, None, SimpleNamespace(num_actual_tokens=2), output=torch.empty(4, 6))
    attention.forward_impl(None, None, None, None, SimpleNamespace(num_actual_tokens=4), output=torch.empty(4, 6))
    writes = box.seen()["attention"]["blk.0"]
    assert (writes["calls"], writes["rows"], writes["unwritten"]) == (2, 6, 1)
    assert "forward_impl" not in vars(attention)


@pytest.fixture
def capturing(monkeypatch):
    """vLLM's capture without a GPU: what was switched on and off."""
    switched = []
    monkeypatch.setattr("vllm.compilation.monitor.set_cudagraph_capturing_enabled", switched.append)
    monkeypatch.setattr("vllm.distributed.parallel_state.graph_capture", lambda device: nullcontext())
    return switched


def runner(capture):
    graphs = {Shape(1): "old one", Shape(2): "old two"}
    return SimpleNamespace(
        model=SimpleNamespace(concrete_cudagraph_entries=graphs), device="cuda", _warmup_and_capture=capture
    )


def test_the_graph_of_one_token_is_captured_anew_without_running_it_and_then_put_back(capturing):
    def capture(shape, *, cudagraph_runtime_mode, num_warmups):
        assert (cudagraph_runtime_mode.name, num_warmups) == ("FULL", 0)
        model_runner.model.concrete_cudagraph_entries[shape] = "new"

    model_runner = runner(capture)
    put_back = recapture_single_token(model_runner)
    assert model_runner.model.concrete_cudagraph_entries == {Shape(1): "new", Shape(2): "old two"}
    put_back()
    assert model_runner.model.concrete_cudagraph_entries == {Shape(1): "old one", Shape(2): "old two"}
    assert capturing == [True, False]


def test_the_old_graph_stays_where_capture_fails(capturing):
    def capture(*args, **kwargs):
        raise RuntimeError("operation not permitted when stream is capturing")

    model_runner = runner(capture)
    with pytest.raises(RuntimeError, match="not permitted"):
        recapture_single_token(model_runner)
    assert model_runner.model.concrete_cudagraph_entries == {Shape(1): "old one", Shape(2): "old two"}
    assert capturing == [True, False]


def test_servers_without_full_graphs_have_nothing_to_capture():
    recapture_single_token(SimpleNamespace(model=SimpleNamespace()))()
