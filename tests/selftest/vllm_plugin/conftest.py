"""The modules under test import `vllm_gguf_plugin` at their top, which needs preparing where there is no triton."""

from glm5check.vllm_plugin.gguf_plugin import import_gguf_plugin

import_gguf_plugin()
