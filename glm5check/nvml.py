"""Clocks, throttling reasons and links of the NVIDIA GPUs, as NVML reports them at this moment.

NVML needs a driver but no CUDA context, so asking does not disturb a server on the same GPUs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from glm5check.records import GpuState

_REASONS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""Bits of `nvmlDeviceGetCurrentClocksEventReasons`, by the names of nvml.h in lower case."""


def gpu_states() -> tuple[GpuState, ...]:
    """State of every GPU, by index; empty where there is no driver or no NVML binding."""
    with _session() as nvml:
        if nvml is None:
            return ()
        return tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def reason_names(bits: int) -> tuple[str, ...]:
    """Names of the set bits; a bit that nvml.h did not have when this was written is named by its value."""
    known = tuple(name for name, bit in _REASONS.items() if bits & bit)
    rest = bits & ~sum(_REASONS.values())
    return (*known, hex(rest)) if rest else known


@contextlib.contextmanager
def _session() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _state(nvml: Any, index: int) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        # Some boards do not answer some questions; a fact that is missing stays 0.
        try:
            return function(handle, *arguments)
        except nvml.NVMLError:
            return 0

    utilisation = ask(nvml.nvmlDeviceGetUtilizationRates)
    return GpuState(
        index=index,
        name=str(ask(nvml.nvmlDeviceGetName)),
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        sm_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        sm_clock_max=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        memory_clock_max=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        throttle_reasons=reason_names(ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)),
        temperature=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        power=ask(nvml.nvmlDeviceGetPowerUsage) / 1000,
        power_limit=ask(nvml.nvmlDeviceGetEnforcedPowerLimit) / 1000,
        pcie_generation=ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration),
        pcie_width=ask(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        nvlinks=sum(ask(nvml.nvmlDeviceGetNvLinkState, link) for link in range(nvml.NVML_NVLINK_MAX_LINKS)),
        utilisation=utilisation.gpu if utilisation else 0,
    )
