"""Little recordings whose every number is given, for the cases of this directory and of `collectives`."""

from dataclasses import replace

from glm5check.evidence import (
    Collective,
    DecodeStep,
    Family,
    GraphMode,
    LaunchKind,
    NcclCounts,
    Operation,
    RankTrace,
    Recording,
    ServerFacts,
    ServerInfo,
    Work,
)

GRAPH, EAGER, TORN = LaunchKind.GRAPH, LaunchKind.EAGER, LaunchKind.CONTRADICTION
FULL, PIECEWISE, NONE, UNKNOWN = GraphMode.FULL, GraphMode.PIECEWISE, GraphMode.NONE, GraphMode.UNKNOWN


def kernel(launch=GRAPH, family=Family.NCCL, us=10.0, operation=Operation.ALL_REDUCE, name="ncclAllReduce"):
    return Collective(name=name, family=family, operation=operation, launch=launch, start_us=0.0, duration_us=us)


GATHER = kernel(EAGER, operation=Operation.ALL_GATHER, name="ncclAllGather")


def step(*kernels, mode=FULL, tokens=1, requests=1, index=7, launches=1, period=1000.0, **busy):
    """A decode step with three captured all-reduces and an eager all-gather unless others are given."""
    return DecodeStep(
        index=index,
        start_us=0.0,
        prefill_requests=0,
        decode_requests=requests,
        decode_tokens=tokens,
        mode=mode,
        kernels=20,
        graph_launches=launches,
        collectives=kernels or (kernel(), kernel(), kernel(), GATHER),
        cache_writes=1,
        period_us=period,
        busy_us={Work(name.replace("_", " ").replace("all reduce", "all-reduce")): us for name, us in busy.items()},
    )


def rank(number, *steps, ranks=2, **more):
    steady = steps or (step(),) * 8
    made = RankTrace(
        source=f"rank{number}.json",
        rank=number,
        world_size=ranks,
        device="NVIDIA H200",
        steps=steady,
        steady=steady,
        kernels=160,
        orphans=0,
        steady_orphans=0,
        early_kernels=0,
        vllm_version="0.24.0",
        nccl_version="2.28.3",
    )
    return replace(made, **more)


FACTS = ServerFacts(
    source="server.log",
    version="0.24.0",
    requested_mode="FULL_AND_PIECEWISE",
    enforce_eager=False,
    tensor_parallel=2,
    captured={"FULL": 5, "PIECEWISE": 0},
    capture_finished=True,
    capture_sizes=(1, 2, 4),
    all_reduce_backends=("PYNCCL",),
    nccl_version="2.28.3",
)
INFO = ServerInfo(
    version="0.24.0",
    requested_mode="FULL_AND_PIECEWISE",
    enforce_eager=False,
    tensor_parallel=2,
    custom_all_reduce_off=False,
)
QUIET = NcclCounts(
    source="nccl.0.log",
    rank=0,
    window="decode",
    all_reduces=0,
    all_gathers=64,
    total_all_reduces=30,
    total_all_gathers=70,
)


def recording(*ranks, facts=FACTS, **more):
    """Two healthy ranks and a server log that agrees with them unless other ranks are given."""
    return Recording(source="here", ranks=ranks or (rank(0), rank(1)), facts=facts, **more)
