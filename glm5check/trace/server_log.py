"""What a vLLM server's log says about graphs and collectives, vLLM 0.20 to 0.33.

Messages are matched by their text: the file and line numbers in the prefix move with every release. A message that is
logged "once" appears for one worker only. What a log does not say proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from glm5check.evidence import Dispatch, GraphMode, ServerFacts
from glm5check.trace.lines import read_lines

# (Worker_TP0 pid=1096) INFO 11-29 13:23:47 [pynccl.py:113]
_PREFIX: Final = re.compile(
    r"^(?:\([^)]*\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]*\] )?"
    r"|^\([^)]* pid=\d+\) "
)
_CONFIG: Final = re.compile(r"Initializing a V\d LLM engine \(v([^)\s]+)\) with config: ")
_MODE: Final = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)")
_SIZES: Final = re.compile(r"'cudagraph_capture_sizes': \[([\d, ]*)\]")
_PLANNED: Final = re.compile(r"Profiling CUDA graph memory: (.*)")
_PLAN: Final = re.compile(r"(FULL|PIECEWISE)=(\d+)")
_CAPTURED: Final = re.compile(r"Capturing CUDA graphs \((?:[^)]*, )?(FULL|PIECEWISE)\):\s+100%.*?(\d+)/(\d+) \[")
_BACKENDS: Final = re.compile(r"Using \[([^\]]*)\] all-reduce backends .* for group '(?:tp|TP)")
_ATTENTION: Final = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]*)(?: attention)? backend\b")
_KV_TOKENS: Final = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_KV_GIB: Final = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_SCHEDULING: Final = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
_FUSED: Final = re.compile(r"Enabled custom fusions:.*allreduce_rms")
_ROW: Final = re.compile(r"^\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*\d+\s*\|\s*(FULL|PIECEWISE|NONE)\s*\|\s*(\d+)\s*\|")

# Lines that say why decode steps do not run in the graphs that were asked for.
_DOWNGRADES: Final = re.compile(
    r"CUDAGraphMode\.\w+ is not supported with"
    r"|Cudagraph mode \S+ is not compatible with compilation mode"
    r"|does not contain piecewise cudagraph"
    r"|Cudagraph mode \S+ requires piecewise capture"
    r"|[Oo]verriding cudagraph_mode"
    r"|requires PIECEWISE CUDA graph mode"
    r"|(?:DeepEP|MoonEP): Disabling CUDA Graphs"
    r"|CUDA graphs are not supported with stock torch\.compile"
)
# Lines that say why a batch size has no graph; they matter only to batches above the largest size that is left.
_CAPTURE_NOTES: Final = re.compile(
    r"Truncating max_cudagraph_capture_size to"
    r"|cudagraph_capture_sizes specified in compilation_config .* is overridden"
    r"|No valid cudagraph sizes after rounding"
)
_GRAPHS_OFF: Final = re.compile(
    r"Enforce eager set, disabling"
    r"|Cudagraph is disabled under eager mode"
    r"|Skipping (?:encoder and decoder )?CUDA graph capture"
)
_ALL_REDUCE_NOTES: Final = re.compile(
    r"Custom (?:allreduce|collectives) (?:is|are) disabled"
    r"|Failed to initialize FlashInfer All(?:r| R)educe"
    r"|Initialized FlashInfer Allreduce norm fusion workspace"
    r"|SymmMemCommunicator: .*not (?:supported|available)"
    r"|falling back to NCCL"
)
_SLOW_PATHS: Final = re.compile(
    r"There is no support for fast MoE kernel for current quantization method"
    r"|Falling back to slow implementation"
)


class _Collector:
    """Facts gathered so far, as the keyword arguments of ServerFacts."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.planned: dict[str, int] = {}
        self.captured: dict[str, int] = {}
        self.rows: dict[tuple[int, int, str], int] = {}
        self.said: dict[str, dict[str, None]] = {}

    def line(self, text: str) -> None:
        message = _PREFIX.sub("", text)
        self._configuration(message)
        self._graphs(message)
        self._collectives(message)
        self._memory(message)
        for kind, pattern in (
            ("downgrades", _DOWNGRADES),
            ("capture_notes", _CAPTURE_NOTES),
            ("graphs_off", _GRAPHS_OFF),
            ("all_reduce_notes", _ALL_REDUCE_NOTES),
            ("slow_paths", _SLOW_PATHS),
        ):
            # The configuration line quotes option names, so it may match by accident.
            if pattern.search(message) and not _CONFIG.search(message):
                self.said.setdefault(kind, {})[message] = None

    def _configuration(self, message: str) -> None:
        found = _CONFIG.search(message)
        if found:
            self.facts["version"] = found[1]
            mode, sizes = _MODE.search(message), _SIZES.search(message)
            if mode:
                self.facts["requested_mode"] = mode[1]
            if sizes:
                self.facts["capture_sizes"] = tuple(map(int, re.findall(r"\d+", sizes[1])))
            eager = re.search(r"\benforce_eager=(True|False)", message)
            if eager:
                self.facts["enforce_eager"] = eager[1] == "True"
            parallel = re.search(r"\btensor_parallel_size=(\d{1,5})", message)
            if parallel:
                self.facts["tensor_parallel"] = int(parallel[1])
        elif "Using V2 Model Runner" in message:
            self.facts["runner"] = "V2"
        elif "using the V1 model runner" in message:
            self.facts["runner"] = "V1"

    def _graphs(self, message: str) -> None:
        planned, captured, row = _PLANNED.search(message), _CAPTURED.search(message), _ROW.match(message)
        if planned:
            self.planned.update({mode: int(count) for mode, count in _PLAN.findall(planned[1])})
        elif captured:
            self.captured[captured[1]] = max(self.captured.get(captured[1], 0), int(captured[2]))
        elif row:
            key = (int(row[1]), int(row[2]), row[3])
            self.rows[key] = self.rows.get(key, 0) + int(row[4])
        elif message.startswith("Graph capturing finished in"):
            self.facts["capture_finished"] = True

    def _collectives(self, message: str) -> None:
        backends, attention = _BACKENDS.search(message), _ATTENTION.search(message)
        if backends:
            self.facts["all_reduce_backends"] = tuple(re.findall(r"'(\w+)'", backends[1]))
        elif attention:
            self.facts["attention_backend"] = attention[1]
        elif message.startswith("vLLM is using nccl=="):
            self.facts["nccl_version"] = message.partition("==")[2].strip()
        elif _FUSED.search(message):
            self.facts["fused_all_reduce"] = True

    def _memory(self, message: str) -> None:
        tokens, gib, scheduling = _KV_TOKENS.search(message), _KV_GIB.search(message), _SCHEDULING.search(message)
        if tokens:
            self.facts["kv_cache_tokens"] = int(tokens[1].replace(",", ""))
        if gib:
            self.facts["kv_cache_gib"] = float(gib[1])
        if scheduling:
            self.facts["async_scheduling"] = scheduling[1] == "enabled"

    def result(self, source: str) -> ServerFacts:
        said = {kind: tuple(lines) for kind, lines in self.said.items()}
        return ServerFacts(
            source=source,
            planned=self.planned,
            captured=self.captured,
            dispatches=tuple(
                Dispatch(tokens, padded, GraphMode(mode), count)
                for (tokens, padded, mode), count in sorted(self.rows.items())
            ),
            **(self.facts | said),
        )


def server_facts(lines: Iterable[str], source: str = "server log") -> ServerFacts:
    """Gather the facts of a vLLM server log, given its lines in order."""
    collector = _Collector()
    for line in lines:
        collector.line(line)
    return collector.result(source)


def read_server_log(path: Path) -> ServerFacts:
    """Read a vLLM server's log, plain or gzipped; raises TraceError if it cannot be read."""
    return server_facts(read_lines(path), source=path.name)
