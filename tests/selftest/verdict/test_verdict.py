"""Three outcomes: passed, failed, inconclusive; and what --glm5-strict makes of the third."""

from __future__ import annotations

import pytest

PLUGINS = ("-p", "fixtures.options", "-p", "fixtures.markers", "-p", "fixtures.verdict", "-p", "no:cacheprovider")

SUITE = """
    import pytest
    from glm5check.records import Finding, Outcome

    def finding(outcome):
        return Finding(check="decode.x", outcome=outcome, got="this", want="that", where={"prompt": "fox"}, cause="why")

    def test_passed(verdict):
        verdict([finding(Outcome.PASSED)])

    def test_failed(verdict):
        verdict([finding(Outcome.PASSED), finding(Outcome.FAILED), finding(Outcome.FAILED)])

    def test_inconclusive(verdict):
        verdict([finding(Outcome.PASSED), finding(Outcome.INCONCLUSIVE)])

    def test_silent(verdict):
        verdict([])

    @pytest.mark.gpu(64)
    def test_gpu():
        pass
"""


@pytest.fixture
def run(pytester):
    pytester.makepyfile(SUITE)
    return lambda *options: pytester.runpytest_inprocess(*PLUGINS, "-rs", *options)


def test_nothing_missing_is_a_pass(run):
    run().assert_outcomes(passed=1, failed=2, skipped=2)


def test_strict_turns_inconclusive_into_failed(run):
    run("--glm5-strict").assert_outcomes(passed=1, failed=3, errors=1)


def test_strict_reaches_what_is_skipped_while_collecting(pytester):
    pytester.makepyfile("import pytest\npytest.importorskip('no_such_module_at_all')\ndef test_x(): pass")
    assert pytester.runpytest_inprocess(*PLUGINS).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert pytester.runpytest_inprocess(*PLUGINS, "--glm5-strict").ret == pytest.ExitCode.INTERRUPTED


def test_a_skip_says_that_it_is_inconclusive(run):
    run().stdout.fnmatch_lines(["*inconclusive: decode.x: got this, but should be that*prompt=fox*"])


def test_a_failure_lists_every_failed_finding_its_cause_and_how_to_repeat_it(run):
    result = run("--glm5-fixes", "none", "--glm5-api-key=hush", "--glm5-report=elsewhere")
    result.stdout.fnmatch_lines(
        [
            "*decode.x: got this, but should be that *prompt=fox*",
            "*likely cause: why",
            "*decode.x: got this, but should be that *prompt=fox*",
            "*to repeat: pytest --glm5-fixes=none test_*::test_failed*",
        ]
    )
    assert "hush" not in result.stdout.str()
