"""What glm5check runs inside vLLM: the entry point `a_glm5check` of group `vllm.general_plugins`.

vLLM calls `register` in every process. It makes GLM-5 GGUF sets loadable through vllm-gguf-plugin, on GPUs and CPUs,
steps around faults of vLLM and the plugin (`fixes`), and seeds faults where a self-test asks for some (`faults`).
"""

from __future__ import annotations

import os

_registered = False


def register() -> None:
    """Prepares this process; calling it again does nothing. Options come from the environment: see `options`.

    Raises SetupError for a wrong option or a missing plugin; vLLM then does not start.
    """
    global _registered
    if _registered:
        return
    from glm5check.vllm_plugin.options import PluginOptions
    from glm5check.vllm_plugin.setup import prepare

    prepare(PluginOptions.from_environment(os.environ))
    _registered = True
