"""Runs `vllm bench serve` in one process that stays: arguments in as lines of JSON, results out as lines of JSON.

vLLM needs seconds to import; runs that are to be interleaved with others cannot wait for that each time. The `vllm`
command itself does not start in the CPU build, whose distribution has another name, but this is the code behind it.
"""

from __future__ import annotations

import json
import os
import sys

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser


def serve() -> None:
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    # Log handlers of some versions keep the first stdout, so not only Python's name for it must go elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        result = main(parser.parse_args(json.loads(line)))
        numbers = {key: value for key, value in result.items() if isinstance(value, int | float)}
        print(json.dumps(numbers), file=answers, flush=True)


if __name__ == "__main__":
    serve()
