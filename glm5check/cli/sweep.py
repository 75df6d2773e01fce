"""`glm5check sweep PLAN`: which environment and flags serve this model fastest, among those that serve it right?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from glm5check.checkpoint.index import GgufSet
from glm5check.checks.causes import Installation
from glm5check.checks.decode import finite_logprobs, mean_kl
from glm5check.collectives.results import from_json
from glm5check.errors import ServerError
from glm5check.glm5.dimensions import Dimensions, read_hf_config
from glm5check.nvml import gpu_states
from glm5check.oracles import golden
from glm5check.oracles.prompts import random_prompts
from glm5check.records import Outcome, Scores
from glm5check.reports import sweep_report
from glm5check.roofline import Bound
from glm5check.serving import sweep as sweeps
from glm5check.serving.command import plan_launch
from glm5check.serving.launch import Server, launch
from glm5check.serving.machine_floors import measure_roofline, single_stream_bound
from glm5check.serving.sweep import Candidate, Trial
from glm5check.serving.workloads import SINGLE, Workload, workloads
from glm5check.settings import Settings

REFERENCE = "reference.json"
PREFLIGHT = "preflight.json"
TOP = 20
"""Alternatives a position: what every server gives. The rest is one bucket of the divergence."""


@click.command()
@click.argument("plan", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--model", type=click.Path(path_type=Path, exists=True), required=True, help="First file of the GGUF set."
)
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="HF config. Default: beside the model.")
@click.option(
    "--gpus", type=click.IntRange(1, 1024), default=8, show_default=True, help="Ranks, GPUs or CPU processes."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("sweep"), show_default=True, help="Journal, results."
)
def sweep(plan: Path, model: Path, config: Path | None, gpus: int, out: Path) -> None:
    """Serve the model under every candidate of PLAN and rank by single-stream decode.

    Each candidate must first agree with the first one of the plan (mean KL on random token ids); then candidates take
    turns on fresh servers. Run it again after a crash: it goes on where it was.

    \b
    PLAN is a TOML file:
        rounds = 6                # rounds a block
        blocks = 3                # servers a candidate is started on
        resident = false          # true: servers of a block at once, for a small model
        serve_args = ["--max-model-len=8192"]
        [[candidate]]
        name = "defaults"
        [[candidate]]
        name = "LL"
        environment = { NCCL_PROTO = "LL" }
        serve_args = ["--disable-custom-all-reduce"]

    Writes sweep.md, sweep.svg and the journal sweep.jsonl. With a pre-flight's preflight.json in the same directory the
    bound counts what all-reduces cost. Exit code 0: ranked, 2: no candidate is right.
    """
    given = {"model": str(model), "config": str(config) if config else None, "gpus": str(gpus)}
    settings = Settings.resolve(given, embedded=model)
    wanted = sweeps.read_plan(plan)
    out.mkdir(parents=True, exist_ok=True)
    settings = replace(settings, serve_args=wanted.serve_args)
    assert settings.model is not None
    bed = _Bed(settings, GgufSet.open(settings.model), out)
    subject = f"{settings.model.name} on {gpus} ranks"
    identity = sweeps.digest(wanted, f"{bed.model.digest()} {gpus}")
    limit = _bound(bed.model, gpus, out)
    ranks = sweeps.run(wanted, bed.start, out / sweeps.JOURNAL, identity=identity, say=click.echo)
    sweep_report.write(ranks, out, subject, limit)
    click.echo(sweep_report.render(ranks, subject, limit))
    sys.exit(0 if ranks[0].interval else 2)


def _bound(model: GgufSet, ranks: int, out: Path) -> Bound | None:
    """What this machine allows one stream, measured before anything else uses it."""
    dimensions = Dimensions.from_gguf(model.metadata)
    preflight = from_json(out / PREFLIGHT) if (out / PREFLIGHT).is_file() else None
    roofline = measure_roofline(
        model.tensors.values(),
        dimensions,
        ranks=ranks,
        on_cpu=not gpu_states(),
        all_reduce=preflight.all_reduce_s(2 * dimensions.hidden) if preflight else 0.0,
    )
    return single_stream_bound(roofline) if roofline else None


@dataclass(frozen=True, slots=True)
class _Bed:
    """Starts a server for a candidate; its scores are judged against the first candidate's, kept in a golden."""

    settings: Settings
    model: GgufSet
    out: Path

    @contextmanager
    def start(self, candidate: Candidate) -> Iterator[Trial]:
        arguments = (*self.settings.serve_args, *candidate.serve_args)
        settings = replace(self.settings, serve_args=arguments)
        assert settings.config is not None
        config = read_hf_config(settings.config)
        plan = plan_launch(settings, config, self.out / "server" / candidate.name, gpus=len(gpu_states()))
        plan = replace(plan, environment={**plan.environment, **candidate.environment})
        with launch(plan, ranks=settings.ranks, progress=lambda line: None) as server:
            yield _Running(self, server, candidate)


class _Running:
    """One running candidate."""

    def __init__(self, bed: _Bed, server: Server, candidate: Candidate) -> None:
        self._bed, self._server, self._candidate = bed, server, candidate
        self._workload = _single_stream(server)
        self._round = 0

    def objection(self) -> str:
        """Findings of finite logprobs and mean KL that are no pass, as one text."""
        vocabulary = Dimensions.from_gguf(self._bed.model.metadata).vocab
        prompts = random_prompts(vocabulary)
        scores = [self._server.client.score(name, ids, top=TOP) for name, ids in prompts.items()]
        findings = [*finite_logprobs(scores), *mean_kl(scores, self._reference(scores), self._installation())]
        return "; ".join(str(finding).splitlines()[0] for finding in findings if finding.outcome is not Outcome.PASSED)

    def sample(self) -> float:
        self._round += 1
        run = self._workload.run(self._server.base_url, seed=self._round)
        if run.failed:
            raise ServerError(f"a request failed: {run.failed[0].error}", where=self._candidate.name)
        return self._workload.value(run)

    def _reference(self, scores: list[Scores]) -> list[Scores]:
        path, digest = self._bed.out / REFERENCE, self._bed.model.digest()
        if not path.exists():
            golden.write(path, scores, [], model_digest=digest, fingerprint={"candidate": self._candidate.name})
        oracle = golden.GoldenOracle(path, model_digest=digest)
        return [oracle.score(score.prompt, score.prompt_ids) for score in scores]

    def _installation(self) -> Installation:
        arguments = " ".join(self._candidate.serve_args)
        reduced = self._server.device != "cpu" or "float16" in arguments
        return Installation(ranks=self._server.ranks, reduced=reduced)


def _single_stream(server: Server) -> Workload:
    entry = next(model for model in server.client.models() if model.get("id") == server.model)
    return workloads(server.model, int(entry["max_model_len"]), rungs=())[SINGLE]
