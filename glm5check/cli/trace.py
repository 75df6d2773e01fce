"""`glm5check trace`: did the collectives of recorded decode steps run in CUDA graphs? Works on any vLLM's traces."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from glm5check.checks import graphs
from glm5check.checks.contradictions import nothing_contradicts
from glm5check.evidence import RankTrace, Recording
from glm5check.records import Finding, Outcome
from glm5check.tolerances import NCCL_QUIET_STEPS
from glm5check.trace.latency import divisions, reduction_times
from glm5check.trace.recording import read_recording
from glm5check.trace.steps import infer_layers

_WORDS: Final = {0: "IN GRAPHS", 1: "NOT IN GRAPHS", 2: "INCONCLUSIVE"}
_MARKS: Final = {Outcome.PASSED: "pass", Outcome.FAILED: "FAIL", Outcome.INCONCLUSIVE: "  ? "}
# These say whether collectives are in graphs; the others are about which graphs, and about the server.
_DECIDING: Final = frozenset({"graphs.in_graph", "graphs.count", "graphs.nccl_silent"})


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES")
@click.option(
    "--layers", type=click.IntRange(1, 10_000), help="Layers of the model. Default: inferred from KV-cache writes."
)
@click.option(
    "--ranks", type=click.IntRange(1, 100_000), help="Tensor-parallel ranks. Default: as the traces or the log say."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def trace(paths: tuple[Path, ...], layers: int | None, ranks: int | None, as_json: bool) -> None:
    """Say whether decode steps ran their collectives inside CUDA graphs.

    FILES are the torch profiler's traces of every rank (*.pt.trace.json[.gz]), or directories that hold them, with the
    server's log (server*.log), NCCL's log (nccl*.log), server_info.json and metrics.txt if they were saved.

    Exit code: 0 the collectives are in graphs, 1 they are not, 2 inconclusive or unreadable.
    """
    recording = replace(read_recording(paths), expected_ranks=ranks)
    layers = layers or infer_layers(recording.ranks)
    findings = judge(recording, layers)
    code = exit_code(findings)
    result = summary(recording, layers)
    if as_json:
        told = {"verdict": _WORDS[code].lower(), **result, "findings": [_as_json(finding) for finding in findings]}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _print(recording, result, findings, _WORDS[code])
    sys.exit(code)


def judge(recording: Recording, layers: int | None) -> list[Finding]:
    """Every check whose evidence the recording holds; those of the traces always."""
    findings = [
        *graphs.all_reduces_are_in_graphs(recording),
        *graphs.all_reduces_are_complete(recording, None if layers is None else 2 * layers + 1),
        *graphs.every_step_ran_in_the_expected_mode(recording),
    ]
    if recording.facts is not None:
        findings += graphs.graphs_are_on(recording)
        findings += graphs.no_slow_path(recording)
        findings += graphs.the_chosen_family_ran(recording)
    if recording.nccl:
        findings += graphs.nccl_was_silent(recording, steps=NCCL_QUIET_STEPS)
    if recording.facts or recording.info or recording.nccl:
        findings += nothing_contradicts(recording)
    return findings


def exit_code(findings: list[Finding]) -> int:
    """1 if a deciding check failed; 2 if one could not tell, or if the evidence contradicts itself; else 0."""
    deciding = {finding.outcome for finding in findings if finding.check in _DECIDING}
    if Outcome.FAILED in deciding:
        return 1
    torn = any(finding.check == "graphs.consistent" and finding.outcome is Outcome.FAILED for finding in findings)
    return 2 if torn or Outcome.INCONCLUSIVE in deciding else 0


def summary(recording: Recording, layers: int | None) -> dict[str, Any]:
    """What was read and measured: JSON-ready, times in microseconds."""
    times = reduction_times(recording.ranks)
    return {
        "source": recording.source,
        "layers": layers,
        "ranks": [_rank(rank) for rank in recording.ranks],
        "all_reduce_net_us": times.median_net_us if times else None,
        "all_reduce_skew_us": times.median_skew_us if times else None,
        "unprofiled_step_us": recording.inter_token_us,
        "division": [
            {"rank": division.rank, "step_us": division.step_us, "parts_us": dict(division.parts_us)}
            for division in divisions(recording.ranks)
        ],
        "nccl": [
            {"operation": choice.operation, "bytes": choice.size_bytes, "runs": f"{choice.algorithm} {choice.protocol}"}
            for log in recording.nccl
            for choice in log.choices
        ],
    }


def _rank(trace: RankTrace) -> dict[str, Any]:
    return {
        "rank": trace.rank,
        "source": trace.source,
        "device": trace.device,
        "steps": len(trace.steps),
        "steady_steps": len(trace.steady),
        "modes": sorted({step.mode for step in trace.steady}),
        "all_reduces_a_step": sorted({len(step.all_reduces) for step in trace.steady}),
        "families": sorted({kernel.family for step in trace.steady for kernel in step.all_reduces}),
        "orphans": trace.orphans,
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "outcome": finding.outcome,
        "got": finding.got,
        "want": finding.want,
        "where": dict(finding.where),
        "cause": finding.cause,
    }


def _print(recording: Recording, result: dict[str, Any], findings: list[Finding], verdict: str) -> None:
    click.echo(f"{verdict}: {recording.source}")
    for rank in result["ranks"]:
        families = ", ".join(rank["families"]) or "none"
        click.echo(
            f"  rank {rank['rank']} ({rank['device'] or 'no device'}): {rank['steady_steps']} steady decode steps of "
            f"{rank['steps']}, {', '.join(rank['modes']) or 'no mode'}, all-reduces a step "
            f"{rank['all_reduces_a_step']} ({families}), orphan kernels {rank['orphans']}"
        )
    if result["all_reduce_net_us"] is not None:
        net, skew = result["all_reduce_net_us"], result["all_reduce_skew_us"]
        click.echo(f"  all-reduce: median {net:.1f} us net (least of the ranks), {skew:.1f} us skew")
    for division in result["division"][:1]:
        parts = sorted(division["parts_us"].items(), key=lambda part: -part[1])
        shares = ", ".join(f"{part} {time:.0f}" for part, time in parts if time >= 1)
        click.echo(f"  a step of rank {division['rank']}, which waits least: {division['step_us']:.0f} us = {shares}")
    click.echo()
    for finding in findings:
        place = " ".join(f"{key}={value}" for key, value in finding.where.items())
        click.echo(f"  {_MARKS[finding.outcome]}  {finding.check}: {finding.got}" + (f" [{place}]" if place else ""))
        if finding.outcome is not Outcome.PASSED:
            click.echo(f"        should be {finding.want}")
        if finding.cause:
            click.echo(f"        likely cause: {finding.cause}")
