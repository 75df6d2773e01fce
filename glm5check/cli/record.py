"""`glm5check record`: write a golden from a server that is trusted, to judge others by."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from glm5check.checkpoint.index import GgufSet
from glm5check.glm5.dimensions import Dimensions
from glm5check.oracles import golden
from glm5check.oracles.prompts import random_prompts, read_passages
from glm5check.oracles.server import ServerOracle
from glm5check.serving.identity import attached_fingerprint


@click.command()
@click.argument("url")
@click.option("--model", type=click.Path(path_type=Path), required=True, help="First file of the GGUF set it serves.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The golden to write.")
@click.option("--passages", type=click.Path(path_type=Path), help="JSON list of passages to score too.")
@click.option("--served-model", help="Name under which the server has the model, if it has several.")
@click.option("--api-key", envvar="GLM5_API_KEY", default="", help="Better in the environment as GLM5_API_KEY.")
@click.option("--top", default=20, show_default=True, help="Alternatives to keep at each token.")
@click.option("--tokens", default=24, show_default=True, help="Tokens to generate after each random prompt.")
def record(
    url: str,
    model: Path,
    output: Path,
    passages: Path | None,
    served_model: str | None,
    api_key: str,
    top: int,
    tokens: int,
) -> None:
    """Record what the trusted server at URL says of random token ids and of passages.

    The golden carries the server's fingerprint and the model's digest; it judges only servers of the same model.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    gguf_set = GgufSet.open(model)
    vocabulary = Dimensions.from_gguf(gguf_set.metadata).vocab
    prompts = random_prompts(vocabulary)
    url = url.rstrip("/").removesuffix("/v1")
    with ServerOracle(url, served_model=served_model, api_key=api_key, top=min(top, vocabulary)) as oracle:
        client = oracle.client
        texts = {item.name: client.tokenize(item.text) for item in (read_passages(passages) if passages else [])}
        scores = [oracle.score(name, ids) for name, ids in {**prompts, **texts}.items()]
        generations = [oracle.generate(name, ids, max_tokens=tokens) for name, ids in prompts.items()]
        identity = attached_fingerprint(client, model={"name": client.model}).identity
    golden.write(output, scores, generations, model_digest=gguf_set.digest(), fingerprint=identity)
    click.echo(f"{len(scores)} scores and {len(generations)} generations recorded in {output}", file=sys.stderr)
