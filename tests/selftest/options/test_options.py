"""Each option: what it does, what it refuses, and what it says then."""

from __future__ import annotations

import pytest

from fixtures.options import EMBEDDED, OPTIONS
from glm5check.errors import OptionError
from glm5check.settings import Settings

PLUGINS = ("-p", "fixtures.options", "-p", "fixtures.markers", "-p", "fixtures.verdict", "-p", "no:cacheprovider")


def resolve(**given):
    return Settings.resolve({name.replace("_", "-"): value for name, value in given.items()}, embedded=EMBEDDED)


@pytest.fixture
def run(pytester):
    """Run one passing test with options, in a directory without our files."""
    pytester.makepyfile("def test_settings(settings): print('SETTINGS', settings)")

    def run_with(*options: str, ini: str = ""):
        pytester.makeini("[pytest]\naddopts = --strict-markers\n" + ini)
        return pytester.runpytest_inprocess(*PLUGINS, "-rP", *options)

    return run_with


def test_nothing_given_means_the_embedded_model_on_two_ranks():
    settings = resolve()
    assert settings.embedded
    assert settings.ranks == 2
    assert settings.model == sorted(EMBEDDED.glob("*.gguf"))[0]
    assert settings.config == EMBEDDED


def test_a_model_is_served_on_eight_gpus_by_default(tmp_path):
    (tmp_path / "glm.gguf").touch()
    (tmp_path / "config.json").touch()
    settings = resolve(model=str(tmp_path / "glm.gguf"))
    assert (settings.ranks, settings.embedded, settings.config) == (8, False, tmp_path)


def test_a_model_without_a_config_beside_it_needs_one(tmp_path):
    (tmp_path / "glm.gguf").touch()
    with pytest.raises(OptionError, match="--glm5-model needs --glm5-config"):
        resolve(model=str(tmp_path / "glm.gguf"))


@pytest.mark.parametrize("name", ["gpus", "serve-arg", "fixes", "faults"])
def test_attaching_contradicts_what_decides_the_launch(name):
    value = ["--x"] if name == "serve-arg" else ["f"] if name == "faults" else "4"
    with pytest.raises(OptionError, match=f"--glm5-attach and --glm5-{name} contradict each other"):
        resolve(attach="http://127.0.0.1:1", **{name.replace("-", "_"): value})


@pytest.mark.parametrize("argument", ["--tensor-parallel-size=4", "--model x", "--api-key=k", "--api_key k"])
def test_a_serve_argument_that_has_an_option_of_ours_is_refused(argument):
    with pytest.raises(OptionError, match="say the same thing"):
        resolve(serve_arg=[argument])


@pytest.mark.parametrize("gpus", ["0", "-1", "two", "1025", "1.5"])
def test_a_wrong_number_of_gpus_lists_the_right_ones(gpus):
    with pytest.raises(OptionError, match="from 1 to 1024"):
        resolve(gpus=gpus)


@pytest.mark.parametrize("name", ["attach", "oracle"])
def test_an_address_that_is_no_url_is_refused(name):
    with pytest.raises(OptionError, match=r"http://HOST:PORT"):
        resolve(**{name: "localhost:8000"})


def test_the_path_of_the_api_may_be_part_of_the_address():
    assert resolve(attach="http://127.0.0.1:8000/v1/").attach == "http://127.0.0.1:8000"


@pytest.mark.parametrize("name", ["model", "config", "trace", "floors", "baseline", "known-failures"])
def test_a_path_that_does_not_exist_is_refused_by_name(name, tmp_path):
    with pytest.raises(OptionError, match=f"--glm5-{name}: there is no such"):
        resolve(**{name.replace("-", "_"): str(tmp_path / "nowhere")})


def test_the_key_is_not_shown_in_the_settings():
    assert "hush" not in repr(resolve(attach="http://127.0.0.1:1", api_key="hush"))


def test_a_contradiction_is_a_usage_error(run):
    result = run("--glm5-attach=http://127.0.0.1:1", "--glm5-gpus=4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--glm5-attach and --glm5-gpus contradict each other*"])


def test_an_option_is_also_an_ini_key(run):
    run(ini="glm5_gpus = 4\nglm5_serve_arg = --dtype=half").stdout.fnmatch_lines(["*ranks=4*--dtype=half*"])


def test_the_command_line_wins_over_the_ini_file(run):
    run("--glm5-gpus=3", ini="glm5_gpus = 4").stdout.fnmatch_lines(["*ranks=3*"])


def test_the_header_says_what_is_checked_and_what_is_seeded(run):
    run("--glm5-faults=phantom", "--glm5-fixes=none").stdout.fnmatch_lines(
        ["glm5check: embedded tiny GLM-5*2 ranks; upstream fixes: none; SEEDED FAULTS: phantom"]
    )


def test_every_option_is_in_the_help(run):
    result = run("--help")
    for option in OPTIONS:
        result.stdout.fnmatch_lines([f"*--glm5-{option.name}*"])
