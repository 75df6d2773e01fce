"""The shell scripts in pipelines: whole files, and those inside YAML."""

from __future__ import annotations

import yaml

from tests.selftest.docs.stubs import PIPELINES, ROOT

WORKFLOWS = [PIPELINES / "github-actions.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
BUILDKITE = PIPELINES / "buildkite.yml"
KUBERNETES = PIPELINES / "kubernetes.yaml"
SLURM = PIPELINES / "slurm.sbatch"
FILES = [*sorted(PIPELINES.glob("*.sh")), SLURM, ROOT / ".ci" / "run", ROOT / ".ci" / "gpu-run"]


def inside() -> dict[str, str]:
    """Scripts inside YAML by the name of their file; the steps of a GitHub job are one script."""
    scripts = {}
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            scripts[f"{path.name}-{name}"] = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    (step,) = yaml.safe_load(BUILDKITE.read_text(encoding="utf-8"))["steps"]
    # Buildkite itself makes one dollar of two when it reads the file.
    scripts[BUILDKITE.name] = step["command"].replace("$$", "$")
    job = yaml.safe_load(KUBERNETES.read_text(encoding="utf-8"))["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["bash", "-c"]
    (scripts[KUBERNETES.name],) = container["args"]
    return scripts
