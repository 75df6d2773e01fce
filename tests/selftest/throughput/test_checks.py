"""Every check on records: healthy ones pass, faulty ones fail, missing or disturbed evidence is inconclusive."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fixtures import DATA
from glm5check.checks import throughput
from glm5check.floors import Floor, Kind
from glm5check.records import Finding, GpuState, Measurement, Outcome
from glm5check.roofline import Bound
from glm5check.serving.metrics import Counters
from glm5check.serving.ratios import Ratio
from glm5check.serving.timing import LoadRun, RequestTiming

BUSY = "other programs took 40% of this machine's CPUs"


def outcomes(findings: list[Finding]) -> list[Outcome]:
    return [finding.outcome for finding in findings]


def speeds(median: float, *, spread: float = 0.01, count: int = 18, seed: int = 3) -> Measurement:
    samples = median * np.exp(np.random.default_rng(seed).normal(0, spread, count))
    return Measurement(name="decode.single_stream", unit="tok/s", samples=tuple(samples), higher_is_better=True)


def floor(value: float, kind: Kind = Kind.FLOOR, reason: str = "so it was measured") -> Floor:
    return Floor(
        measure="decode.single_stream",
        kind=kind,
        value=value,
        unit="tok/s",
        reason=reason,
        date=datetime.date(2026, 11, 29),
        source="here",
    )


def run(gaps: list[float], *, chunks: int = 0, error: str = "", requests: int = 1, cpu: float = 0.0) -> LoadRun:
    arrivals = tuple(np.cumsum([0.02, *gaps]))
    timing = RequestTiming(
        index=0,
        sent=0.0,
        arrivals=arrivals,
        input_tokens=8,
        output_tokens=len(arrivals),
        chunks=chunks or len(arrivals),
        error=error,
    )
    return LoadRun(requests=(timing,) * requests, concurrency=1, client_cpu=cpu)


class TestFloor:
    @pytest.mark.parametrize(
        ("median", "outcome"), [(51, Outcome.FAILED), (54, Outcome.INCONCLUSIVE), (57, Outcome.PASSED)]
    )
    def test_the_interval_decides(self, median: float, outcome: Outcome) -> None:
        assert outcomes(throughput.floor_reached(speeds(median, count=54), floor(54))) == [outcome]

    def test_a_failure_says_what_why_and_what_it_looks_like(self) -> None:
        history = [floor(20, Kind.HISTORY, "eager launches"), floor(43, Kind.HISTORY, "graphs without LL")]
        [finding] = throughput.floor_reached(speeds(21), floor(54), history=history)
        assert "over 18 rounds" in finding.got
        assert finding.want == "at least 54 tok/s: so it was measured (here, 2026-11-29)"
        assert finding.cause == "nearest to 20 tok/s, measured with eager launches"

    def test_a_busy_machine_excuses_slow_but_does_not_spoil_fast(self) -> None:
        assert outcomes(throughput.floor_reached(speeds(40), floor(54), disturbance=BUSY)) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.floor_reached(speeds(60), floor(54), disturbance=BUSY)) == [Outcome.PASSED]

    def test_no_floor_says_what_was_measured_on_what(self) -> None:
        [finding] = throughput.floor_reached(speeds(60), None, machine={"gpu": "NVIDIA H200", "gpus": 2})
        assert finding.outcome is Outcome.INCONCLUSIVE
        assert "tok/s was measured; no floor for gpu = NVIDIA H200, gpus = 2" in finding.got

    def test_no_samples_are_inconclusive(self) -> None:
        nothing = replace(speeds(60), samples=())
        assert outcomes(throughput.floor_reached(nothing, floor(54))) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.target_reported(nothing, floor(54))) == [Outcome.INCONCLUSIVE]

    def test_a_target_is_reported_and_never_fails(self) -> None:
        [finding] = throughput.target_reported(speeds(57), floor(100, Kind.TARGET))
        assert finding.outcome is Outcome.PASSED
        assert "57% of it" in finding.got


class TestBound:
    BOUND = Bound(parts={"split weights": 0.004, "all-reduces": 0.006}, batch=1)

    def test_faster_than_the_hardware_is_a_wrong_measurement(self) -> None:
        [finding] = throughput.below_bound(speeds(130), self.BOUND)
        assert finding.outcome is Outcome.FAILED
        assert "the bound of 100 tok/s" in finding.want

    def test_below_it_says_the_share_and_what_parts_give_back(self) -> None:
        [finding] = throughput.below_bound(speeds(50, spread=0), self.BOUND)
        assert finding.outcome is Outcome.PASSED
        assert "50.0% of the bound" in finding.got
        assert finding.got.endswith(
            "without one part of a step: split weights 62.5, all-reduces 71.43, beyond the bound 100"
        )

    def test_accepted_drafts_raise_the_bound(self) -> None:
        assert outcomes(throughput.below_bound(speeds(130), self.BOUND, tokens_per_step=2.0)) == [Outcome.PASSED]

    def test_an_unknown_bound_is_inconclusive(self) -> None:
        assert outcomes(throughput.below_bound(speeds(50), None)) == [Outcome.INCONCLUSIVE]


class TestStalls:
    def test_steady_decode_passes_and_every_50th_token_late_fails(self) -> None:
        steady = [run([0.005] * 99) for _ in range(20)]
        late = [run(([0.005] * 49 + [0.040]) * 2) for _ in range(20)]
        assert outcomes(throughput.stalls(steady)) == [Outcome.PASSED]
        [finding] = throughput.stalls(late)
        assert finding.outcome is Outcome.FAILED
        assert "about every 50th token" in finding.got

    def test_few_tokens_cannot_tell_and_a_busy_machine_excuses(self) -> None:
        late = [run(([0.005] * 49 + [0.040]) * 2) for _ in range(20)]
        assert outcomes(throughput.stalls(late[:1])) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.stalls(late, disturbance=BUSY)) == [Outcome.INCONCLUSIVE]

    def test_chunks_of_accepted_drafts_are_no_stalls(self) -> None:
        drafts = [run([0.012, 0.0, 0.0, 0.0] * 25, chunks=26)] * 20
        assert outcomes(throughput.stalls(drafts)) == [Outcome.PASSED]

    def test_tokens_that_wait_for_each_other_are_not_resolved(self) -> None:
        held_up = [run([0.005] * 40 + [0.050] + [0.0] * 9)] * 100
        [finding] = throughput.stalls(held_up)
        assert finding.outcome is Outcome.INCONCLUSIVE
        assert "18% of chunks came together with the one before" in finding.got

    def test_one_token_a_request_says_nothing(self) -> None:
        assert outcomes(throughput.stalls([run([])])) == [Outcome.INCONCLUSIVE]


class TestRequestsAndCounters:
    def test_one_failure_in_many_fails_with_its_reason(self) -> None:
        runs = [run([0.01])] * 49 + [run([0.01], error="the connection broke")]
        assert outcomes(throughput.requests_answered(runs[:49])) == [Outcome.PASSED]
        [finding] = throughput.requests_answered(runs)
        assert finding.outcome is Outcome.FAILED
        assert "1 of 50 failed or short; request 0: the connection broke" in finding.got

    def test_no_requests_and_no_counters_are_inconclusive(self) -> None:
        assert outcomes(throughput.requests_answered([])) == [Outcome.INCONCLUSIVE]
        nothing = Counters({})
        assert set(outcomes(throughput.counters_agree([run([0.01])], nothing, nothing))) == {Outcome.INCONCLUSIVE}
        assert set(outcomes(throughput.counters_agree([], nothing, nothing))) == {Outcome.INCONCLUSIVE}

    @pytest.mark.parametrize(
        ("factor", "spread", "outcome"),
        [
            (1.0, 0.01, Outcome.PASSED),
            (1.05, 0.01, Outcome.FAILED),
            (0.95, 0.01, Outcome.FAILED),
            (1.0, 0.3, Outcome.INCONCLUSIVE),
        ],
    )
    def test_two_clients_must_agree(self, factor: float, spread: float, outcome: Outcome) -> None:
        ours, theirs = speeds(100 * factor, spread=spread, count=24), speeds(100, spread=spread, count=24, seed=8)
        assert outcomes(throughput.clients_agree(ours, theirs)) == [outcome]
        assert outcomes(throughput.clients_agree(ours, replace(theirs, samples=()))) == [Outcome.INCONCLUSIVE]

    def test_a_client_that_uses_a_core_may_be_the_limit(self) -> None:
        assert outcomes(throughput.client_keeps_up([run([1.0], cpu=0.1)])) == [Outcome.PASSED]
        assert outcomes(throughput.client_keeps_up([run([1.0], cpu=0.9)])) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.client_keeps_up([run([0.0, 0.0])])) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.client_keeps_up([])) == [Outcome.INCONCLUSIVE]


class TestMachine:
    @pytest.mark.parametrize(
        ("recording", "outcome"),
        [
            ("idle", Outcome.PASSED),
            ("copying", Outcome.PASSED),
            ("power_cap", Outcome.PASSED),
            ("thermal", Outcome.FAILED),
            ("locked_clocks", Outcome.FAILED),
        ],
    )
    def test_throttled_clocks_fail(self, recording: str, outcome: Outcome) -> None:
        saved = json.loads((DATA / "throughput" / "nvml" / f"{recording}.json").read_text())
        [finding] = throughput.clocks(msgspec.convert(saved["states"], list[GpuState]))
        assert finding.outcome is outcome, finding
        if recording == "thermal":
            assert "1230 of 1980 MHz, 88 C" in finding.got
            assert "throttled by sw_thermal_slowdown, hw_thermal_slowdown, in 5 of 8 looks" in finding.got

    def test_without_nvml_the_clocks_are_unknown(self) -> None:
        assert outcomes(throughput.clocks([])) == [Outcome.INCONCLUSIVE]

    def test_busy_neighbours_make_it_inconclusive(self) -> None:
        assert outcomes(throughput.neighbours_quiet(0.02, 0.001)) == [Outcome.PASSED]
        assert outcomes(throughput.neighbours_quiet(0.4, 0.001)) == [Outcome.INCONCLUSIVE]
        assert outcomes(throughput.neighbours_quiet(0.02, 0.03)) == [Outcome.INCONCLUSIVE]
        assert throughput.disturbed(0.4, 0.0) == BUSY
        assert throughput.disturbed(0.02, 0.001) == ""


class TestRatiosAndRegression:
    @pytest.mark.parametrize(
        ("median", "higher", "outcome"),
        [(0.8, True, Outcome.FAILED), (1.4, True, Outcome.PASSED), (0.8, False, Outcome.PASSED)],
    )
    def test_a_ratio_keeps_its_bound(self, median: float, higher: bool, outcome: Outcome) -> None:
        measured = replace(speeds(median), unit="times", higher_is_better=higher)
        ratio = Ratio(measured=measured, bound=0.9, reason="more must not give less")
        [finding] = throughput.ratio_kept(ratio)
        assert finding.outcome is outcome
        assert "0.9 times: more must not give less" in finding.want

    def test_a_loss_against_the_baseline_fails_and_a_gain_passes(self) -> None:
        before = speeds(60, count=40, seed=1).samples
        source = {"baseline": "nights/"}
        assert outcomes(throughput.no_regression(speeds(57, count=40), before, baseline=source)) == [Outcome.FAILED]
        assert outcomes(throughput.no_regression(speeds(63, count=40), before, baseline=source)) == [Outcome.PASSED]
        [finding] = throughput.no_regression(speeds(57, count=40), before, baseline=source, disturbance=BUSY)
        assert finding.outcome is Outcome.INCONCLUSIVE

    def test_a_measure_that_the_baseline_lacks_is_inconclusive(self) -> None:
        assert outcomes(throughput.no_regression(speeds(60), [], baseline={})) == [Outcome.INCONCLUSIVE]
