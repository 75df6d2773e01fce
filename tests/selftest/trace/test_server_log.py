"""Facts of server logs: those of the recordings, and lines of other vLLM versions, verbatim."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fixtures import DATA
from glm5check.errors import TraceError
from glm5check.evidence import Dispatch, GraphMode
from glm5check.trace.lines import read_lines
from glm5check.trace.server_log import read_server_log, server_facts

GRAPHS = DATA / "graphs"
WORKER = "(Worker_TP0 pid=1096) INFO 11-29 13:23:47 [file.py:1] "


@pytest.mark.parametrize(
    ("name", "requested", "captured", "backends"),
    [
        ("full", "FULL_AND_PIECEWISE", {"PIECEWISE": 5, "FULL": 4}, ("PYNCCL",)),
        ("piecewise", "PIECEWISE", {"PIECEWISE": 5}, ("PYNCCL",)),
        ("customar", "FULL_AND_PIECEWISE", {"PIECEWISE": 5, "FULL": 4}, ("CUSTOM", "PYNCCL")),
        ("eager", "NONE", {}, ("PYNCCL",)),
    ],
)
def test_recordings(name: str, requested: str, captured: dict[str, int], backends: tuple[str, ...]) -> None:
    facts = read_server_log(GRAPHS / name / "server.log.gz")
    assert (facts.version, facts.requested_mode, facts.tensor_parallel) == ("0.24.0", requested, 2)
    assert facts.captured == facts.planned == captured
    assert facts.all_reduce_backends == backends
    assert (facts.attention_backend, facts.nccl_version) == ("TRITON_MLA", "2.28.9")
    assert bool(facts.graphs_off) == bool(facts.enforce_eager) == (name == "eager")
    assert facts.downgrades == ()
    assert facts.kv_cache_tokens == pytest.approx(7_212_000, rel=1e-3)
    decode = [row for row in facts.dispatches if row.tokens == 1]
    mode = {"piecewise": GraphMode.PIECEWISE, "eager": GraphMode.NONE}.get(name, GraphMode.FULL)
    assert decode == [Dispatch(1, 1, mode, 1046)]


@pytest.mark.parametrize(
    "line",
    [
        "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with TritonMLABackend backend (support: "
        "AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled piecewise",
        "CUDAGraphMode.FULL is not supported with spec-decode for attention backend TritonMLABackend (support: "
        "AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE",
        "Cudagraph mode FULL is not compatible with compilation mode 0.Overriding to NONE.",
        "Cudagraph mode FULL is not compatible with compilation mode 0. Overriding to FULL.",
        "Piecewise compilation with empty splitting_ops does not contain piecewise cudagraph. Setting cudagraph_mode "
        "to NONE.",
        "Cudagraph mode PIECEWISE requires piecewise capture, but the loaded model provides neither",
        "KV connector LMCache requires PIECEWISE CUDA graph mode due to layerwise async operations. Overriding "
        "cudagraph_mode from FULL to PIECEWISE.",
        "DeepEP: Disabling CUDA Graphs since DeepEP high-throughput kernels are not compatible",
        "MoonEP: Disabling CUDA Graphs since the MoonEP buffers are not fixed",
        "CUDA graphs are not supported with stock torch.compile in Model Runner V2. Overriding cudagraph_mode "
        "FULL to NONE.",
    ],
)
@pytest.mark.parametrize("colour", ["", "\x1b[33m"])
def test_every_downgrade_line(line: str, colour: str) -> None:
    facts = server_facts([f"{colour}{WORKER}{line}\x1b[0m" if colour else WORKER + line])
    assert len(facts.downgrades) == 1


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("Using V2 Model Runner", "runner", "V2"),
        ("Model Runner V2 does not yet support LoRA; using the V1 model runner", "runner", "V1"),
        (
            "Using FLASHMLA_SPARSE attention backend out of potential backends: []",
            "attention_backend",
            "FLASHMLA_SPARSE",
        ),
        ("Using AttentionBackendEnum.TRITON_MLA backend.", "attention_backend", "TRITON_MLA"),
        ("GPU KV cache size: 12,345 tokens, Maximum concurrency for 8,192 tokens", "kv_cache_tokens", 12345),
        ("Available KV cache memory: 61.9 GiB", "kv_cache_gib", 61.9),
        ("Asynchronous scheduling is disabled.", "async_scheduling", False),
        ("Enabled custom fusions: norm_quant, allreduce_rms", "fused_all_reduce", True),
        ("Graph capturing finished in 4 secs, took 0.08 GiB", "capture_finished", True),
        ("Capturing CUDA graphs (FULL): 100%|#####| 35/35 [00:02<00:00,  2.24it/s]", "captured", {"FULL": 35}),
        ("Profiling CUDA graph memory: PIECEWISE=51 (largest=512)", "planned", {"PIECEWISE": 51}),
    ],
)
def test_facts_of_other_versions(line: str, field: str, value: object) -> None:
    assert getattr(server_facts([WORKER + line]), field) == value


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup", "graphs_off"),
        ("Skipping CUDA graph capture. To turn on CUDA graph capture, ...", "graphs_off"),
        ("Skipping encoder and decoder CUDA graph capture", "graphs_off"),
        (
            "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
            "all_reduce_notes",
        ),
        ("Failed to initialize FlashInfer All Reduce workspace", "all_reduce_notes"),
        ("There is no support for fast MoE kernel for current quantization method. Falling back to slow", "slow_paths"),
        ("Truncating max_cudagraph_capture_size to 8", "capture_notes"),
    ],
)
def test_lines_that_are_kept(line: str, field: str) -> None:
    assert getattr(server_facts([WORKER + line]), field) == (line,)


def test_other_groups_and_silence_say_nothing() -> None:
    """Only the tensor-parallel group counts; an empty log has no facts, and the default is no fact either."""
    expert = "Using ['PYNCCL'] all-reduce backends (in dispatch order) for group 'ep:0' out of potential backends: []."
    assert server_facts([WORKER + expert]) == server_facts([])
    facts = server_facts([])
    assert (facts.requested_mode, facts.enforce_eager, facts.capture_finished, facts.captured) == (
        None,
        None,
        False,
        {},
    )


def test_damaged_logs(tmp_path: Path) -> None:
    whole = gzip.compress(b"INFO a line\n" * 1000)
    (tmp_path / "server.log.gz").write_bytes(whole[:-20])
    with pytest.raises(TraceError, match="cut or damaged"):
        read_server_log(tmp_path / "server.log.gz")
    with pytest.raises(TraceError, match="cannot be read"):
        read_server_log(tmp_path / "missing.log")
    with pytest.raises(TraceError, match="no offsets"):
        list(read_lines(tmp_path / "server.log.gz", offset=5))


def test_endless_line_and_odd_bytes(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"\xff\xfe" + b"x" * (3 << 20) + b"\r50%\r100%\nnext\n")
    lines = list(read_lines(path))
    assert max(map(len, lines)) <= 1 << 20
    assert lines[-3:] == ["50%", "100%", "next"]
