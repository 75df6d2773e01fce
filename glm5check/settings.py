"""What the user asked for, validated once. Everything else reads a `Settings` and asks no further questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from glm5check.errors import OptionError

EMBEDDED_RANKS: Final = 2
"""Tensor-parallel size of the embedded default: the least at which sharding faults can show."""
RESERVED_SERVE_ARGS: Final = {
    "--tensor-parallel-size": "--glm5-gpus",
    "-tp": "--glm5-gpus",
    "--model": "--glm5-model",
    "--hf-config-path": "--glm5-config",
    "--served-model-name": "--glm5-served-model",
    "--api-key": "--glm5-api-key",
}
"""vLLM arguments that have an option of ours; giving both would leave it open which one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The validated options. Paths exist; `model` is None only when attached to a server without a local file."""

    model: Path | None
    config: Path | None
    ranks: int
    embedded: bool
    attach: str | None = None
    served_model: str | None = None
    api_key: str = field(default="", repr=False)
    serve_args: tuple[str, ...] = ()
    oracle: str | Path | None = None
    trace: Path | None = None
    floors: Path | None = None
    baseline: Path | None = None
    report: Path | None = None
    known_failures: Path | None = None
    strict: bool = False
    fixes: str = "all"
    faults: tuple[str, ...] = ()

    @classmethod
    def resolve(cls, given: Mapping[str, str | bool | Sequence[str] | None], *, embedded: Path) -> Settings:
        """Validate option values as typed.

        `given` maps option names without their prefix (`"model"`, `"serve-arg"`) to what was typed, None where
        nothing was; `embedded` is the directory of the tiny model. Raises OptionError.
        """
        text = {key: value for key, value in given.items() if isinstance(value, str) and value}
        serve_args = _words(given.get("serve-arg"))
        _refuse_contradictions(text, serve_args, faults=_words(given.get("faults")))
        model = _existing(text, "model", "--glm5-model names the first file of the GGUF set")
        is_embedded = model is None and "attach" not in text
        if is_embedded:
            model = first_gguf(embedded)
        config = _existing(text, "config", "--glm5-config names the directory of GLM-5's config.json and tokenizer")
        if config is None and model is not None:
            config = embedded if is_embedded else _config_beside(model)
        return cls(
            model=model,
            config=config,
            ranks=_ranks(text.get("gpus"), is_embedded),
            embedded=is_embedded,
            attach=_url(text.get("attach"), "--glm5-attach"),
            served_model=text.get("served-model"),
            api_key=text.get("api-key", ""),
            serve_args=serve_args,
            oracle=_url_or_file(
                text, "oracle", "--glm5-oracle takes http://HOST:PORT, or a golden from `glm5check record`"
            ),
            trace=_existing(text, "trace", "--glm5-trace names a directory or file of profiler traces"),
            floors=_existing(text, "floors", "--glm5-floors names a TOML file as fixtures/data/throughput/floors.toml"),
            baseline=_existing(text, "baseline", "--glm5-baseline names a report.json or a directory of them"),
            report=Path(text["report"]) if "report" in text else None,
            known_failures=_existing(text, "known-failures", "--glm5-known-failures names a TOML file"),
            strict=given.get("strict") is True or str(given.get("strict")).lower() in {"1", "true", "yes", "on"},
            fixes=text.get("fixes", "all"),
            faults=_words(given.get("faults")),
        )


def first_gguf(directory: Path) -> Path:
    """The first file of the GGUF set in `directory`. Raises OptionError if there is none."""
    files = sorted(directory.glob("*.gguf"))
    if not files:
        raise OptionError("there is no GGUF file", where=str(directory), do="give the file itself to --glm5-model")
    return files[0]


def _refuse_contradictions(text: Mapping[str, str], serve_args: tuple[str, ...], faults: tuple[str, ...]) -> None:
    launch_only = {
        "gpus": "gpus" in text,
        "serve-arg": bool(serve_args),
        "fixes": "fixes" in text,
        "faults": bool(faults),
    }
    for name, is_given in launch_only.items():
        if is_given and "attach" in text:
            raise OptionError(
                f"--glm5-attach and --glm5-{name} contradict each other: an attached server runs already",
                do=f"leave out one of --glm5-attach and --glm5-{name}",
            )
    for argument in serve_args:
        # vLLM takes --api_key for --api-key.
        ours = RESERVED_SERVE_ARGS.get(argument.split("=", 1)[0].split(" ", 1)[0].replace("_", "-"))
        if ours:
            raise OptionError(f"--glm5-serve-arg={argument} and {ours} say the same thing", do=f"use {ours}")


def _existing(text: Mapping[str, str], name: str, meaning: str) -> Path | None:
    if name not in text:
        return None
    path = Path(text[name]).expanduser()
    if not path.exists():
        raise OptionError(f"--glm5-{name}: there is no such file or directory", where=str(path), do=meaning)
    if name == "model" and path.is_dir():
        return first_gguf(path)
    return path.resolve()


def _config_beside(model: Path) -> Path:
    if (model.parent / "config.json").is_file():
        return model.parent
    raise OptionError(
        "--glm5-model needs --glm5-config: there is no config.json beside the GGUF file",
        where=str(model.parent),
        do="give --glm5-config the directory of GLM-5's config.json, generation_config.json and tokenizer",
    )


def _ranks(value: str | None, embedded: bool) -> int:
    if value is None:
        return EMBEDDED_RANKS if embedded else 8
    if not value.isdecimal() or not 1 <= int(value) <= 1024:
        raise OptionError(f"--glm5-gpus={value} is no number of GPUs", do="give a whole number from 1 to 1024")
    return int(value)


def _url(value: str | None, option: str) -> str | None:
    if value is None:
        return None
    if not value.startswith(("http://", "https://")):
        raise OptionError(f"{option}={value} is no URL", do="give it as http://HOST:PORT")
    return value.rstrip("/").removesuffix("/v1")


def _url_or_file(text: Mapping[str, str], name: str, meaning: str) -> str | Path | None:
    if text.get(name, "").startswith(("http://", "https://")):
        return _url(text[name], f"--glm5-{name}")
    return _existing(text, name, meaning)


def _words(value: str | bool | Sequence[str] | None) -> tuple[str, ...]:
    if value is None or isinstance(value, bool):
        return ()
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return tuple(value)
