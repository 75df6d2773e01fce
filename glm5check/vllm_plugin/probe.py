"""What a worker tells about itself: methods that vLLM's `/collective_rpc` calls on every rank."""

from __future__ import annotations

from glm5check.vllm_plugin.parameters import Parameters
from glm5check.vllm_plugin.whitebox import WhiteBox


class Probe(WhiteBox, Parameters):
    """Mixed into vLLM's worker class by `--worker-extension-cls`."""
