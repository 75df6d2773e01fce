"""The command `glm5check`: thin commands, one file each, over the same functions that the tests call.

Exit codes: 0 right, 1 wrong, 2 could not tell or could not run.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

import click

from glm5check import __version__
from glm5check.errors import CheckFailed, SetupError
from glm5check.redaction import Redactor, secrets_in

COMMANDS: Final = {
    "audit": "Check a GGUF set as a file: complete, well-formed, and what vLLM will make of it.",
    "compare": "What got slower or faster between two runs, beyond noise.",
    "preflight": "Check and time all-reduces before a model is served.",
    "record": "Record goldens from a server that is trusted.",
    "report": "Make the report of a run again from its journal, and keep it in a history.",
    "selfcheck": "Seed faults, and see whether the suite catches them and stays silent on healthy servers.",
    "serve": "Start the server that the suite would check, and leave it up.",
    "sweep": "Rank environments and flags by speed, among those that serve the model right.",
    "synth": "Write a GGUF set of GLM-5's dimensions with random weights.",
    "trace": "Judge recorded profiler traces: do the collectives of a decode step run in CUDA graphs?",
}


class LazyGroup(click.Group):
    """Imports a command's module when it is asked for, so that `glm5check trace` does not wait for torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"glm5check.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Is a GLM-5 GGUF deployment on vLLM right, and as fast as its hardware allows?"""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; a wrong set-up is told in a sentence, without a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        cli.main(args=given, prog_name="glm5check")
    except SetupError as error:
        # What a server said may be in the message, and pipelines keep what is printed.
        click.echo(f"glm5check: {Redactor(os.environ, secrets_in(given)).clean(str(error))}", err=True)
        sys.exit(2)
    except CheckFailed as error:
        click.echo(str(error), err=True)
        sys.exit(1)
