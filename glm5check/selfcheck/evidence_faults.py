"""Faults in what a server left behind: copies of real recordings with trace, server log or NCCL log changed."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from glm5check.collectives.results import (
    Combination,
    CombinationResult,
    Latency,
    Mode,
    Preflight,
    Status,
    Topology,
    to_json,
)
from glm5check.selfcheck.seeded import Place, Seed, SeededFault, Workspace
from glm5check.vllm_plugin.faults.fault import FaultClass

GRAPHS: Final = "tests/graphs/test_decode_steps.py"
COLLECTIVES: Final = "tests/collectives/test_decode_steps.py"
TRACE: Final = "rank1.pt.trace.json.gz"
LOG: Final = "server.log.gz"
NCCL: Final = "nccl.log.gz"
DOWNGRADE: Final = (
    "(Worker_TP0 pid=1096) WARNING 11-29 13:24:00 [gpu_model_runner.py:1] CUDAGraphMode.FULL_AND_PIECEWISE is not "
    "supported with TritonMLABackend backend (support: AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE "
    "because attention is compiled piecewise\n"
)
SLOW_MOE: Final = (
    "(Worker_TP0 pid=1096) WARNING 11-29 13:24:00 [fused_moe.py:1] There is no support for fast MoE kernel for current "
    "quantization method. Falling back to slow implementation.\n"
)
ALONE_US: Final = 2.0
"""Net time of the seeded pre-flight; the recording's own is 7.1 us."""


def _events(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path, Workspace], None]:
    """Change the events of rank 1's trace."""

    def spoil(directory: Path, workspace: Workspace) -> None:
        path = directory / TRACE
        trace = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        change(trace["traceEvents"])
        path.write_bytes(gzip.compress(msgspec.json.encode(trace), compresslevel=1))

    return spoil


def _first_all_reduces(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One all-reduce kernel of every graph launch: in FULL mode one a decode step."""
    kernels = [event for event in events if event.get("cat") == "kernel" and "AllReduce" in event["name"]]
    return list({kernel["args"]["correlation"]: kernel for kernel in kernels}.values())


def _launched_alone(events: list[dict[str, Any]]) -> None:
    launches = {event["args"]["correlation"]: event for event in events if event["name"] == "cudaGraphLaunch"}
    for number, kernel in enumerate(_first_all_reduces(events), start=10**6):
        launch = launches[kernel["args"]["correlation"]]
        kernel["args"]["correlation"] = number
        events.append({**launch, "name": "cudaLaunchKernel", "args": {**launch["args"], "correlation": number}})


def _left_out(events: list[dict[str, Any]]) -> None:
    for kernel in _first_all_reduces(events):
        events.remove(kernel)


def _logged(line: str) -> Callable[[Path, Workspace], None]:
    def spoil(directory: Path, workspace: Workspace) -> None:
        with gzip.open(directory / LOG, "at", encoding="utf-8") as log:
            log.write(line)

    return spoil


def _files_of(other: str, *names: str) -> Callable[[Path, Workspace], None]:
    """Some files are those of another recording."""

    def spoil(directory: Path, workspace: Workspace) -> None:
        for name in names:
            shutil.copy(workspace.recording(other) / name, directory / name)

    return spoil


def _quick_alone(directory: Path, workspace: Workspace) -> None:
    row = Latency(size_bytes=12_288, mode=Mode.REPLAY, median_us=ALONE_US, p99_us=ALONE_US, net_us=ALONE_US)
    result = CombinationResult(combination=Combination("PYNCCL"), status=Status.RIGHT, latencies=(row,))
    preflight = Preflight(ranks=2, nodes=1, device="cuda", versions={}, topology=Topology(), results=(result,))
    (directory / "preflight.json").write_text(to_json(preflight), encoding="utf-8")


def _as_it_is(directory: Path, workspace: Workspace) -> None:
    """The recording is of a server that has the fault."""


def _in(recording: str, spoil: Callable[[Path, Workspace], None]) -> Seed:
    @contextmanager
    def seed(workspace: Workspace) -> Iterator[Sequence[str]]:
        copy = workspace.copy(workspace.recording(recording))
        spoil(copy, workspace)
        yield (f"--glm5-trace={copy}",)

    return seed


def _fault(name: str, fault_class: FaultClass, caught_by: str, seed: Seed, **words: Any) -> SeededFault:
    return SeededFault(
        name=name,
        fault_class=fault_class,
        seeded_in=Place.EVIDENCE,
        caught_by=caught_by,
        seed=seed,
        beside=(GRAPHS, COLLECTIVES),
        **words,
    )


FAULTS: Final = (
    _fault(
        "trace_eager",
        FaultClass.GRAPHS,
        f"{GRAPHS}::test_all_reduces_are_in_graphs",
        _in("eager", _as_it_is),
        stands_for="20 tok/s: every decode step ran its all-reduces eagerly",
        seeded="the recording of a server with --enforce-eager",
        says="the server runs eagerly",
    ),
    _fault(
        "trace_eager_host_bound",
        FaultClass.SPEED,
        f"{COLLECTIVES}::test_work_bounds_the_step",
        _in("eager", _as_it_is),
        stands_for="130 us a launched all-reduce, most of it waiting for the slowest rank's host",
        seeded="the recording of a server with --enforce-eager",
        says="the GPU waits for the CPU",
    ),
    _fault(
        "trace_all_reduce_eager",
        FaultClass.GRAPHS,
        f"{GRAPHS}::test_all_reduces_are_in_graphs",
        _in("full", _events(_launched_alone)),
        stands_for="doubt whether NCCL is in the graphs at all: a part of the model is not captured",
        seeded="one all-reduce of each step on rank 1 is launched by a call of its own",
        says="9 of 153 all-reduces outside of graphs",
    ),
    _fault(
        "trace_all_reduce_missing",
        FaultClass.ALL_REDUCE,
        f"{GRAPHS}::test_each_step_has_every_all_reduce",
        _in("full", _events(_left_out)),
        stands_for="a layer whose parts are never summed over the ranks",
        seeded="one all-reduce of each step on rank 1 is not there",
        says="16 in 9 steps of 9",
    ),
    _fault(
        "trace_of_another_run",
        FaultClass.GRAPHS,
        f"{GRAPHS}::test_log_metrics_trace_and_configuration_agree",
        _in("full", _files_of("eager", "rank0.pt.trace.json.gz", TRACE)),
        stands_for="a profile taken with --enforce-eager that explained a benchmark which ran in graphs",
        seeded="an eager server's traces beside the logs of one with graphs",
        says="says FULL for 1 tokens, but rank0.pt.trace.json.gz shows NONE",
    ),
    _fault(
        "log_downgrade",
        FaultClass.GRAPHS,
        f"{GRAPHS}::test_graphs_are_on",
        _in("full", _logged(DOWNGRADE)),
        stands_for="full graphs were asked for, and the attention backend quietly allows piecewise ones only",
        seeded="the server's log has vLLM's line about the downgrade",
        says="vLLM downgraded the graph mode at start",
    ),
    _fault(
        "log_slow_moe",
        FaultClass.SPEED,
        f"{GRAPHS}::test_the_log_names_no_slow_path",
        _in("full", _logged(SLOW_MOE)),
        stands_for="a quant type without a fast MoE kernel: a tenth of the speed, and one line in the log",
        seeded="the server's log has vLLM's line about the slow implementation",
        says="no support for fast MoE kernel",
    ),
    _fault(
        "log_backend_mismatch",
        FaultClass.ALL_REDUCE,
        f"{GRAPHS}::test_the_chosen_all_reduce_ran",
        _in("full", _files_of("customar", LOG)),
        stands_for="vLLM chose the custom all-reduce, and NCCL ran: it does not work over PCIe",
        seeded="the log of a server that chose the custom all-reduce beside traces of NCCL's",
        says="CUSTOM did not take the message",
    ),
    _fault(
        "nccl_log_talks",
        FaultClass.GRAPHS,
        f"{GRAPHS}::test_nccl_is_silent_while_graphs_replay",
        _in("full", _files_of("eager", NCCL)),
        stands_for="all-reduces that the host enqueues one by one while graphs are said to replay",
        seeded="NCCL's log names 17 all-reduces a decode step",
        says="the host enqueues 17 all-reduces a step",
    ),
    _fault(
        "nccl_simple",
        FaultClass.SPEED,
        f"{COLLECTIVES}::test_the_protocol_suits_the_message",
        _in("simple", _as_it_is),
        stands_for="43 instead of 57 tok/s: NCCL's Simple protocol for messages of one token",
        seeded="the recording of a server with NCCL_PROTO=Simple",
        says="try NCCL_PROTO=LL",
    ),
    _fault(
        "all_reduce_slower_than_alone",
        FaultClass.SPEED,
        f"{COLLECTIVES}::test_all_reduces_are_as_fast_as_alone",
        _in("full", _quick_alone),
        stands_for="all-reduces that take another route in the server than alone",
        seeded=f"a pre-flight beside the traces that measured {ALONE_US:g} us",
        says="another protocol or route than in the pre-flight",
    ),
)
