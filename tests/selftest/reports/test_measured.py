"""Evidence becomes measurements: recorded GPU traces give the waterfall, scores the likelihood by position."""

from __future__ import annotations

import pytest

from fixtures import DATA
from glm5check.checks import collectives
from glm5check.records import Scores, TokenChoice
from glm5check.reports.measured import NLL_WINDOW, of_recording, of_scores
from glm5check.reports.pictures import draw
from glm5check.trace.recording import read_recording
from tests.selftest.reports.conftest import PLUGINS


@pytest.fixture(scope="module")
def recording():
    return read_recording([DATA / "graphs" / "full"])


def test_every_all_reduce_of_the_steady_steps_is_a_sample(recording):
    measurements = of_recording(recording)
    assert [one.where["rank"] for one in measurements] == ["0", "1"]
    for trace, one in zip(recording.ranks, measurements, strict=True):
        assert len(one.samples) == sum(len(step.all_reduces) for step in trace.steady)


def test_a_recording_draws_its_waterfall_and_its_ranks(recording):
    """The parts of a step are measured by the collectives tests, in names that the waterfall knows."""
    waterfall, by_rank = draw([*collectives.measurements(recording), *of_recording(recording)])
    assert (waterfall.key, by_rank.key) == ("step", "all-reduce")
    assert sum(float(row[1].replace(",", "")) for row in waterfall.rows) == pytest.approx(
        collectives.step_division(recording).step_us, abs=1
    )


def test_scores_become_windows_in_order():
    tokens = tuple(TokenChoice(token_id=1, logprob=-1.0 - index // NLL_WINDOW) for index in range(3 * NLL_WINDOW + 5))
    (measurement,) = of_scores([Scores(prompt="fox", prompt_ids=(), tokens=tokens)], "oracle")
    assert measurement.samples == (1.0, 2.0, 3.0)
    assert measurement.where == {"prompt": "fox", "source": "oracle", "window": str(NLL_WINDOW)}
    assert of_scores([Scores(prompt="short", prompt_ids=(), tokens=tokens[:3])], "server") == []


def test_what_a_session_reads_is_measured_without_the_fixture_knowing(pytester):
    pytester.makeconftest("""
        import pytest
        from fixtures import DATA
        from glm5check.records import Scores, TokenChoice
        from glm5check.trace.recording import read_recording

        @pytest.fixture(scope="session")
        def evidence():
            return read_recording([DATA / "graphs" / "full"])

        @pytest.fixture(scope="session")
        def passage_scores():
            bad = tuple(TokenChoice(token_id=1, logprob=float("nan")) for _ in range(32))
            return [Scores(prompt="broken", prompt_ids=(), tokens=bad)]
    """)
    pytester.makepyfile("def test_x(evidence, passage_scores, measure): pass")
    result = pytester.runpytest_inprocess(*PLUGINS, "-p", "fixtures.observed", "--glm5-report=report")
    assert result.ret == 0
    page = (pytester.path / "report" / "report.html").read_text(encoding="utf-8")
    assert "All-reduce latency by rank" in page
    assert "broken" not in page
