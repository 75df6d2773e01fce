"""`python -m glm5check.tiny DIR --seed 0`: build the embedded model, in some ten minutes on two cores."""

from __future__ import annotations

import json
from pathlib import Path

import click

from glm5check.tiny.build import STEPS, build


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--decode-data", type=click.Path(file_okay=False, path_type=Path), help="Write questions and passages here."
)
@click.option("--seed", default=0, show_default=True, help="Seed of corpus, initial weights and order of batches.")
@click.option("--steps", default=STEPS, show_default=True, type=click.IntRange(min=1), help="Training steps.")
def main(folder: Path, decode_data: Path | None, seed: int, steps: int) -> None:
    manifest = build(folder, decode_data, seed=seed, steps=steps, say=click.echo)
    click.echo(json.dumps({key: manifest[key] for key in ("questions", "wrong", "passage_nll", "build_seconds")}))


main()
