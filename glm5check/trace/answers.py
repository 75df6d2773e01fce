"""A server's saved answers (`/server_info?config_format=json`, `/metrics`) and the fingerprint saved beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from glm5check.errors import TraceError
from glm5check.evidence import ServerInfo
from glm5check.trace.lines import read_lines

_MAX_JSON: Final = 16 << 20
# vllm.config.CUDAGraphMode: its members' values as /server_info writes them.
_MODES: Final = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "(2, 0)": "FULL_DECODE_ONLY",
    "(2, 1)": "FULL_AND_PIECEWISE",
}


class _Compilation(msgspec.Struct):
    cudagraph_mode: int | str | list[int] | None = None


class _Model(msgspec.Struct):
    enforce_eager: bool | None = None


class _Parallel(msgspec.Struct):
    tensor_parallel_size: int | None = None
    disable_custom_all_reduce: bool | None = None


class _Config(msgspec.Struct):
    compilation_config: _Compilation = msgspec.field(default_factory=_Compilation)
    model_config: _Model = msgspec.field(default_factory=_Model)
    parallel_config: _Parallel = msgspec.field(default_factory=_Parallel)


class _System(msgspec.Struct):
    vllm_version: str = ""


class _Info(msgspec.Struct):
    vllm_config: _Config
    system_env: _System = msgspec.field(default_factory=_System)


def read_server_info(path: Path) -> ServerInfo:
    """Read a saved answer of `/server_info?config_format=json`, plain or gzipped; raises TraceError."""
    return server_info(_text(path), path.name)


def server_info(text: str, source: str = "/server_info") -> ServerInfo:
    """Read the answer of `/server_info?config_format=json`; raises TraceError if it is not one."""
    try:
        info = msgspec.json.decode(text, type=_Info)
    except msgspec.DecodeError as error:
        raise TraceError(f"not an answer of /server_info ({error})", where=source) from error
    config, mode = info.vllm_config, info.vllm_config.compilation_config.cudagraph_mode
    word = str(tuple(mode)) if isinstance(mode, list) else str(mode)
    return ServerInfo(
        source=source,
        version=info.system_env.vllm_version,
        requested_mode=None if mode is None else _MODES.get(word, word),
        enforce_eager=config.model_config.enforce_eager,
        tensor_parallel=config.parallel_config.tensor_parallel_size,
        custom_all_reduce_off=config.parallel_config.disable_custom_all_reduce,
    )


def read_inter_token_us(path: Path) -> float | None:
    """Mean time between tokens in microseconds from a saved `/metrics`, or None if no token followed another."""
    totals = {"sum": 0.0, "count": 0.0}
    for line in read_lines(path):
        for word in totals:
            if line.startswith(f"vllm:inter_token_latency_seconds_{word}"):
                totals[word] += _number(line.rpartition(" ")[2], path)
    return 1e6 * totals["sum"] / totals["count"] if totals["count"] else None


def _number(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise TraceError(f"{text[:40]!r} is not a metric's value", where=str(path)) from error


def read_fingerprint(path: Path) -> dict[str, str]:
    """Read a saved fingerprint, a JSON object of strings; raises TraceError."""
    try:
        return msgspec.json.decode(_text(path), type=dict[str, str])
    except msgspec.DecodeError as error:
        raise TraceError(f"not a fingerprint ({error})", where=str(path), do="save it as name: value") from error


def _text(path: Path) -> str:
    text = ""
    for line in read_lines(path):
        text += line + "\n"
        if len(text) > _MAX_JSON:
            raise TraceError(f"larger than {_MAX_JSON >> 20} MiB", where=str(path))
    return text
