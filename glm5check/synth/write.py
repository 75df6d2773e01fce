"""Writes a synthetic set: headers first, then the tensors' bytes in file order, made in chunks by several threads.

Memory stays at a few chunks whatever the size of a tensor. Each chunk has a random stream of its own, named by seed,
tensor and place, so the bytes depend neither on the number of threads nor on which other tensors there are.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT
from numpy.typing import NDArray

from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import ARCHITECTURE, Dimensions
from glm5check.glm5.tensors import TensorSpec, expected_tensors
from glm5check.synth.blocks import random_bytes
from glm5check.synth.distribution import distribution
from glm5check.synth.geometry import Geometry
from glm5check.synth.mix import quant_type
from glm5check.synth.vocabulary import write_tokenizer
from glm5check.tiny.export import QuantMix
from glm5check.tiny.metadata import write_metadata

NAME: Final = "glm5-synth"
"""general.name of its files, by which the suite knows that the weights are random."""
_CHUNK_BYTES: Final = 16 << 20
_MAX_THREADS: Final = 16
"""More do not help: the disk or the page cache is the limit by then."""
_RESERVE_BYTES: Final = 1 << 30
"""Free disk that must remain."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    spec: TensorSpec
    qtype: GGMLQuantizationType

    @property
    def blocks(self) -> int:
        return math.prod(self.spec.shape) // int(GGML_QUANT_SIZES[self.qtype][0])

    @property
    def nbytes(self) -> int:
        return self.blocks * int(GGML_QUANT_SIZES[self.qtype][1])


def write_set(
    geometry: Geometry,
    out: Path,
    *,
    mix: QuantMix,
    seed: int,
    split_bytes: int,
    tokenizer: Path | None = None,
    progress: Callable[[int, int], None],
) -> list[Path]:
    """Write GGUF files, HF config, generation config and tokenizer into `out`, and return the GGUF paths in order.

    The first file has metadata only, the others up to `split_bytes` of tensors (one tensor at least). `progress`
    receives bytes written and bytes in all. The same arguments give the same bytes. Raises CheckpointError if `out`
    holds a set already, if the disk is too small, or for a mix or tokenizer that does not fit; OptionError for a mix
    with gaps.
    """
    config = geometry.config
    tensors = _tensors(config, mix)
    out.mkdir(parents=True, exist_ok=True)
    _refuse_unwritable(out, sum(tensor.nbytes for tensor in tensors))
    config |= write_tokenizer(out, geometry.vocab, tokenizer)
    generation = {"do_sample": False, **{key: config[key] for key in ("eos_token_id", "pad_token_id")}}
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    files = _write_headers(out, config, tensors, split_bytes)
    _write_data(files, seed, progress)
    return [path for path, _ in files]


def _tensors(config: dict[str, Any], mix: QuantMix) -> list[_Tensor]:
    dimensions = Dimensions.from_hf(config)
    tensors = []
    for spec in expected_tensors(dimensions, nextn=True):
        # Vectors are F32 in every published set, and no kernel reads them otherwise.
        qtype = quant_type(spec.gguf, mix) if spec.role.is_matrix else GGMLQuantizationType.F32
        block = GGML_QUANT_SIZES[qtype][0]
        if spec.shape[-1] % block:
            raise CheckpointError(
                f"{spec.shape[-1]} columns are no whole number of {qtype.name} blocks of {block}",
                where=spec.gguf,
                do=f"give it another type, as --quant '{spec.gguf}=Q8_0'",
            )
        tensors.append(_Tensor(spec, qtype))
    return tensors


def _refuse_unwritable(out: Path, needed: int) -> None:
    if any(out.glob("*.gguf")):
        raise CheckpointError(
            "there are GGUF files already", where=str(out), do="give another directory, or remove them"
        )
    free = shutil.disk_usage(out).free
    if needed + _RESERVE_BYTES > free:
        raise CheckpointError(
            f"the set has {needed / 1e9:.1f} GB, the disk {free / 1e9:.1f} GB free",
            where=str(out),
            do="lower --layers, --experts or --vocab, or use another disk",
        )


def _write_headers(
    out: Path, config: dict[str, Any], tensors: Sequence[_Tensor], split_bytes: int
) -> list[tuple[Path, list[_Tensor]]]:
    """Write every file up to its tensor data; return each with the tensors that it holds."""
    base = out / f"{NAME}.gguf"
    writer = GGUFWriter(base, ARCHITECTURE, split_max_size=split_bytes, small_first_shard=True)
    write_metadata(writer, config, out, nextn_layers=config["num_nextn_predict_layers"], name=NAME)
    by_name = {tensor.spec.gguf: tensor for tensor in tensors}
    for name, tensor in by_name.items():
        writer.add_tensor_info(name, tensor.spec.shape, np.dtype(np.float32), tensor.nbytes, raw_dtype=tensor.qtype)
    placed = [[by_name[name] for name in shard] for shard in writer.tensors]
    paths = writer.format_shard_names(base)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return list(zip(paths, placed, strict=True))


def _write_data(files: Sequence[tuple[Path, list[_Tensor]]], seed: int, progress: Callable[[int, int], None]) -> None:
    threads = min(os.cpu_count() or 1, _MAX_THREADS)
    total = sum(tensor.nbytes for _, tensors in files for tensor in tensors)
    written = 0
    with ThreadPoolExecutor(threads) as pool:
        for path, tensors in files:
            with path.open("ab", buffering=0) as file:
                _pad(file.tell(), file.write)
                for data, is_last in _made_ahead(pool, _chunks(tensors, seed), ahead=2 * threads):
                    file.write(data.data)
                    written += data.nbytes
                    if is_last:
                        _pad(file.tell(), file.write)
                    progress(written, total)


def _pad(at: int, write: Callable[[bytes], object]) -> None:
    if missing := -at % GGUF_DEFAULT_ALIGNMENT:
        write(bytes(missing))


_Chunk = tuple[Callable[[], NDArray[np.uint8]], bool]


def _chunks(tensors: Sequence[_Tensor], seed: int) -> Iterator[_Chunk]:
    """(what makes the bytes, whether the tensor ends with them), in file order."""
    for tensor in tensors:
        step = _CHUNK_BYTES // GGML_QUANT_SIZES[tensor.qtype][1]
        for first in range(0, tensor.blocks, step):
            yield _maker(tensor, seed, first, min(step, tensor.blocks - first)), first + step >= tensor.blocks


def _maker(tensor: _Tensor, seed: int, first: int, count: int) -> Callable[[], NDArray[np.uint8]]:
    spread = distribution(tensor.spec)

    def make() -> NDArray[np.uint8]:
        stream = np.random.SeedSequence([seed, zlib.crc32(tensor.spec.gguf.encode()), first])
        rng = np.random.Generator(np.random.SFC64(stream))
        return random_bytes(tensor.qtype, count, rng, std=spread.std, mean=spread.mean)

    return make


def _made_ahead(
    pool: ThreadPoolExecutor, chunks: Iterator[_Chunk], *, ahead: int
) -> Iterator[tuple[NDArray[np.uint8], bool]]:
    """The chunks in order, up to `ahead` of them made or being made before they are asked for."""
    pending: deque[tuple[Future[NDArray[np.uint8]], bool]] = deque()
    for make, is_last in chunks:
        pending.append((pool.submit(make), is_last))
        if len(pending) >= ahead:
            future, last = pending.popleft()
            yield future.result(), last
    while pending:
        future, last = pending.popleft()
        yield future.result(), last
