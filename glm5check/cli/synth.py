"""`glm5check synth`: a GGUF set of GLM-5's own dimensions with random weights, for machines without the real one."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final

import click

from glm5check.errors import OptionError
from glm5check.synth.geometry import GLM5, Geometry
from glm5check.synth.mix import MIXES, mix
from glm5check.synth.write import write_set

_SIZE: Final = re.compile(r"(\d+)([MG])")
_UNITS: Final = {"M": 10**6, "G": 10**9}


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--layers", type=click.IntRange(1, 1024), default=GLM5["num_hidden_layers"], show_default=True)
@click.option(
    "--dense-layers",
    type=click.IntRange(0, 1024),
    default=GLM5["first_k_dense_replace"],
    show_default=True,
    help="Layers before the first with experts.",
)
@click.option("--experts", type=click.IntRange(1, 4096), default=GLM5["n_routed_experts"], show_default=True)
@click.option("--vocab", type=click.IntRange(1, 1 << 20), default=GLM5["vocab_size"], show_default=True)
@click.option("--mtp", is_flag=True, help="Add a multi-token-prediction block behind the last layer.")
@click.option("--mix", "mix_name", type=click.Choice(MIXES), default="Q4_K_XL", show_default=True)
@click.option("--quant", multiple=True, metavar="GLOB=TYPE", help="Another type for tensors of these GGUF names.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--split-size", default="45G", show_default=True, help="Bytes of tensors a file, as 500M or 45G.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of a GLM tokenizer. Default: the tiny model's, padded to the vocabulary.",
)
def synth(
    directory: Path,
    layers: int,
    dense_layers: int,
    experts: int,
    vocab: int,
    mtp: bool,
    mix_name: str,
    quant: tuple[str, ...],
    seed: int,
    split_size: str,
    tokenizer: Path | None,
) -> None:
    """Write a GGUF set with GLM-5's dimensions into DIRECTORY, with HF config and tokenizer beside it.

    Weights are random, but spread so that logits are finite and not flat: fit for comparing a server with an oracle,
    and for speed; what such a model says means nothing. Equal options give equal bytes.
    """
    geometry = Geometry(layers=layers, dense_layers=dense_layers, experts=experts, vocab=vocab, nextn_layers=int(mtp))
    chosen = mix(mix_name, layers=layers, overrides=quant)
    started = time.monotonic()
    with click.progressbar(length=1000, label="writing", file=sys.stderr) as bar:
        written = 0

        def progress(done: int, total: int) -> None:
            nonlocal written
            written = done
            bar.update(1000 * done // total - bar.pos)

        files = write_set(
            geometry,
            directory,
            mix=chosen,
            seed=seed,
            split_bytes=_bytes(split_size),
            tokenizer=tokenizer,
            progress=progress,
        )
    seconds = time.monotonic() - started
    click.echo(f"{files[0]} and {len(files) - 1} more: {written / 1e9:.2f} GB at {written / 1e6 / seconds:.0f} MB/s")


def _bytes(size: str) -> int:
    match = _SIZE.fullmatch(size)
    if match is None:
        raise OptionError(f"--split-size={size} is no size", do="give it as 500M or 45G (powers of ten)")
    return int(match[1]) * _UNITS[match[2]]
