"""The order in which a vLLM process is prepared."""

from __future__ import annotations

from vllm.platforms import current_platform

from glm5check.vllm_plugin import attention_mode, fixes
from glm5check.vllm_plugin.gguf_plugin import import_gguf_plugin, make_config_portable
from glm5check.vllm_plugin.options import PluginOptions


def prepare(options: PluginOptions) -> None:
    """Registers the plugin and the adapter, installs CPU support where needed, then fixes, then seeded faults."""
    import_gguf_plugin().register()
    make_config_portable()
    attention_mode.install(options.attention, sparse_possible=current_platform.is_cuda_alike())
    if current_platform.is_cpu():
        from glm5check.vllm_plugin import cpu_kernels, cpu_platform

        cpu_platform.install()
        cpu_kernels.install()
    announcements = [f"fixes applied: {fixes.apply(options.fixes)}"]
    _install_adapter()
    if options.faults:
        from glm5check.vllm_plugin import faults

        faults.apply(options.faults)
        announcements.append(f"SEEDED FAULTS ARE ON: {', '.join(options.faults)}")
    _install_loading(announcements)


def _install_adapter() -> None:
    # Only now: the module subclasses a class of the plugin, which could not be imported before.
    from vllm_gguf_plugin.weights_adapter import _ADAPTER_REGISTRY

    from glm5check.vllm_plugin.adapter import GlmDsaAdapter

    _ADAPTER_REGISTRY.insert(0, GlmDsaAdapter)


def _install_loading(announcements: list[str]) -> None:
    from glm5check.vllm_plugin import drafter, loading

    loading.install(tuple(announcements))
    drafter.install()
