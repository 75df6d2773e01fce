"""No secret gets out: one is planted wherever it could come from, and every file is searched for it."""

from __future__ import annotations

import pytest

from glm5check.redaction import REDACTED, Redactor
from tests.selftest.reports.conftest import PLUGINS
from tests.selftest.reports.examples import SUITE

KEY = "sk-Zq9xw-0123456789"
TOKEN = 'hf_Zq"9xw\\token/with?signs'

LEAKY = (
    SUITE
    + """
    import os

    KEY, TOKEN = os.environ["GLM5_API_KEY"], os.environ["PLANTED_TOKEN"]

    def test_leak_in_a_finding(verdict):
        verdict([Finding(check="decode.x", outcome=Outcome.FAILED, got=f"{KEY} {TOKEN!r}", want=TOKEN,
                         where={"prompt": KEY}, cause=f"Authorization: Bearer {KEY}", repeat=f"curl {KEY}")])

    def test_leak_in_a_skip(verdict):
        verdict([Finding(check="decode.x", outcome=Outcome.INCONCLUSIVE, got=KEY, want=TOKEN)])

    def test_leak_in_a_traceback_and_output(measure):
        print(KEY)
        measure(Measurement(name="x", unit="s", samples=(1.0,), higher_is_better=True, where={"key": TOKEN}))
        raise OSError(f"http://user:{KEY}@host says {TOKEN}")
"""
)


def test_a_planted_secret_is_in_no_file_and_not_on_the_terminal(pytester, monkeypatch):
    monkeypatch.setenv("GLM5_API_KEY", KEY)
    monkeypatch.setenv("PLANTED_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "report" / "summary.md"))
    pytester.makepyfile(LEAKY)
    result = pytester.runpytest_inprocess(
        *PLUGINS, "--glm5-report=report", "--junitxml=report/junit.xml", "-ra", f"--glm5-api-key={KEY}"
    )
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (pytester.path / "report").iterdir()}
    texts["terminal"] = result.stdout.str() + result.stderr.str()
    assert len(texts) == 7
    for name, text in texts.items():
        assert KEY not in text, name
        assert "9xw" not in text, name
        assert REDACTED in text or "&lt;redacted&gt;" in text, name


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("OPENAI_API_KEY", "sk-12345", True),
        ("MYKEY", "sk-12345", True),
        ("github_token", "gh-12345", True),
        ("DB_PASSWORD", "hunter2", True),
        ("CLIENT_SECRET", "swordfish", True),
        ("TOKENIZERS_PARALLELISM", "disabled", False),
        ("MAX_TOKENS", "1000000", False),
        ("SOME_KEY", "0", False),
        ("PATH", "/usr/local/bin", False),
    ],
)
def test_which_variables_hold_secrets(name, value, is_secret):
    assert (Redactor({name: value}).clean(f"x {value} y") == f"x {REDACTED} y") is is_secret


def test_other_forms_of_a_secret_are_hidden_too():
    redactor = Redactor({"A_SECRET": TOKEN}, ["EMPTY"])
    for form in (
        TOKEN,
        repr(TOKEN),
        TOKEN.replace("\\", "\\\\").replace('"', '\\"'),
        "hf_Zq%229xw%5Ctoken/with%3Fsigns",
    ):
        assert "9xw" not in redactor.clean(form)
    assert redactor.clean("key EMPTY") == f"key {REDACTED}"
    assert redactor.clean("http://me:pass@host/v1") == f"http://{REDACTED}@host/v1"
    assert redactor.clean("Authorization: Bearer abcdef") == f"Authorization: Bearer {REDACTED}"


def test_text_without_secrets_stays_as_it_is():
    text = "mean KL 1.5e-07 nat <|endoftext|> 你好\n\ttab"
    assert Redactor({"X_KEY": "not in there"}).clean(text) == text
