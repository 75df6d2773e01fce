"""`glm5check serve`: start the server that the suite would check, and leave it up until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError
from glm5check.glm5.dimensions import Dimensions, read_hf_config
from glm5check.nvml import gpu_states
from glm5check.serving.command import plan_launch
from glm5check.serving.launch import launch
from glm5check.settings import Settings


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--config", help="Directory of the HF config and tokenizer. Default: the directory of MODEL.")
@click.option("--gpus", help="GPUs to serve on, the tensor-parallel size; CPU ranks with vLLM for CPU. Default: 8.")
@click.option("--serve-arg", multiple=True, help="Argument passed on to vLLM, as --serve-arg=--max-model-len=8192.")
@click.option("--fixes", help="Upstream fixes to apply: all, none, or names. Default: all.")
@click.option("--faults", multiple=True, help="Seed a fault into the server.")
@click.option("--log", "directory", default="glm5-serve", show_default=True, help="Directory for log and profiles.")
def serve(model: Path, directory: str, **options: Any) -> None:
    """Serve MODEL, the first file of a GGUF set, as the suite does; then attach to it with --glm5-attach."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value}
    settings = Settings.resolve({"model": str(model), **given}, embedded=model.parent)
    config = check_set_up(settings)
    plan = plan_launch(settings, config, Path(directory), gpus=len(gpu_states()))
    with launch(plan, ranks=settings.ranks, progress=click.echo) as server:
        click.echo(f"serving; check it with: pytest --glm5-attach={server.base_url} --glm5-model={model}")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def check_set_up(settings: Settings) -> Mapping[str, object]:
    """Refuse a set-up that cannot work before vLLM spends minutes on it; return the HF config.

    Raises CheckpointError when a file of the set is missing, cut or out of order, or when the HF config describes a
    model of another shape than the file.
    """
    assert settings.model is not None
    assert settings.config is not None
    gguf_set = GgufSet.open(settings.model)
    config = read_hf_config(settings.config)
    differing = Dimensions.from_gguf(gguf_set.metadata).shape_differences(Dimensions.from_hf(config))
    if differing:
        raise CheckpointError(
            "the HF config describes another model than the GGUF file: " + "; ".join(differing),
            where=str(settings.config / "config.json"),
            do="give --glm5-config the directory of the config.json that this GGUF was converted from",
        )
    return config
