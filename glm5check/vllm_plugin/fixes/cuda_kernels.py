"""The GGUF plugin's CUDA kernels do not load beside a torch that is older than the one they were built with."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from glm5check.errors import SetupError
from glm5check.vllm_plugin.fixes.fix import Fix

_SYMBOLS: Final = (
    "torch_exception_get_what",
    "torch_exception_get_what_without_backtrace",
    "torch_new_stable_ivalue",
    "torch_delete_stable_ivalue",
)
# What torch 2.13 declares in torch/csrc/stable/c/shim.h. A stable value is 64 bits on the heap, which older versions
# allocate and free with `new` and `delete` on their side of the interface: malloc and free.
_SOURCE: Final = """
#include <stdint.h>
#include <stdlib.h>
const char *torch_exception_get_what(void) { return "no message: torch is older than 2.13"; }
const char *torch_exception_get_what_without_backtrace(void) { return torch_exception_get_what(); }
int32_t torch_new_stable_ivalue(uint64_t **value) { *value = malloc(sizeof **value); return *value == NULL; }
int32_t torch_delete_stable_ivalue(uint64_t *value) { free(value); return value == NULL; }
"""


def is_needed() -> bool:
    """Whether the plugin's library is there, and what keeps it from loading is one of torch 2.13's functions."""
    from vllm.platforms import current_platform
    from vllm_gguf_plugin import ops

    return current_platform.is_cuda() and not ops._CUDA_AVAILABLE and names_missing_function(load_error())


def load_error() -> str:
    """Why the plugin's CUDA kernels cannot be imported; empty if they can."""
    try:
        importlib.import_module("vllm_gguf_plugin._C_gguf")
    except ImportError as error:
        return str(error)
    return ""


def names_missing_function(error: str) -> bool:
    """Whether an import error is about one of the functions that `apply` provides."""
    return "undefined symbol" in error and any(error.rstrip().endswith(symbol) for symbol in _SYMBOLS)


def apply() -> None:
    """Provides the four functions to this process, and imports the plugin's operators again, now with their kernels.

    Raises SetupError where they cannot be compiled.
    """
    provide_functions()
    from vllm_gguf_plugin import ops

    importlib.reload(ops)


def provide_functions() -> None:
    """Compile the functions and put them where libraries that are loaded later look for symbols."""
    with tempfile.TemporaryDirectory() as directory:
        source, library = Path(directory) / "functions.c", Path(directory) / "functions.so"
        source.write_text(_SOURCE)
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc") or "cc"
        try:
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(
                f"what the GGUF plugin's CUDA kernels need from torch 2.13 cannot be compiled: {error}",
                where="fix cuda_kernels",
                do="install a C compiler (Triton needs one too) or torch 2.13, or leave the fix out: --glm5-fixes",
            ) from error
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


FIX = Fix(
    name="cuda_kernels",
    what="the wheel's CUDA kernels were built against torch 2.13 and do not load beside an older one; the plugin says "
    "nothing and computes everything with its Triton kernels, which treat one token as a padded matrix product",
    versions="vllm-gguf-plugin 0.0.5 with torch 2.11, which vLLM 0.24.0 requires",
    is_needed=is_needed,
    apply=apply,
)
