"""`glm5check record` from a server without prompt_logprobs, and what the golden then judges."""

import pytest
from click.testing import CliRunner

from fixtures import DATA
from glm5check.checkpoint.index import GgufSet
from glm5check.checks import decode
from glm5check.checks.causes import Installation
from glm5check.cli.record import record
from glm5check.errors import ServerError
from glm5check.oracles.golden import GoldenOracle
from glm5check.oracles.hf import TransformersOracle
from glm5check.oracles.llamacpp import start_server
from glm5check.oracles.prompts import random_prompts
from glm5check.records import Outcome

TINY = DATA / "tiny-glm5"
MODEL = sorted(TINY.glob("*.gguf"))[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "golden.json"
    server = start_server(MODEL, context=512)
    arguments = [str(server.listening_address), f"--model={MODEL}", f"--output={path}", "--tokens=4", "--top=64"]
    result = CliRunner().invoke(record, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return path


def test_a_recorded_golden_judges_another_implementation(recorded):
    golden = GoldenOracle(recorded, model_digest=GgufSet.open(MODEL).digest())
    judged = TransformersOracle(MODEL, TINY)
    prompts = dict(list(random_prompts(1024).items())[:2])
    got = [judged.score(name, ids) for name, ids in prompts.items()]
    want = [golden.score(name, ids) for name, ids in prompts.items()]
    (finding,) = decode.mean_kl(got, want, Installation(reduced=True))
    assert finding.outcome is Outcome.PASSED, finding
    assert golden.fingerprint["model.name"]


def test_nothing_is_recorded_from_a_server_that_is_not_there(tmp_path):
    arguments = ["http://127.0.0.1:9", f"--model={MODEL}", f"--output={tmp_path / 'g.json'}"]
    with pytest.raises(ServerError, match="cannot be reached"):
        CliRunner().invoke(record, arguments, catch_exceptions=False)
    assert not (tmp_path / "g.json").exists()
