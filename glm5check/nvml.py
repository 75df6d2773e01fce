"""Clocks, throttling reasons and links of the NVIDIA GPUs, as NVML reports them at this moment.

NVML needs a driver but no CUDA context, so asking does not disturb a server on the same GPUs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
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
    """State of every GPU that CUDA_VISIBLE_DEVICES leaves, in its order; empty without a driver or an NVML binding."""
    with _session() as nvml:
        if nvml is None:
            return ()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        return tuple(_state(nvml, index) for index in visible(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids))


def visible(variable: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Indices of the GPUs that a value of CUDA_VISIBLE_DEVICES leaves; None is an unset variable.

    As CUDA reads it: indices or beginnings of UUIDs, of which the first one that names no GPU ends the list. NVML's
    order is that of the PCI bus, which is CUDA's where the GPUs are alike.
    """
    if variable is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for word in variable.split(","):
        name = word.strip()
        named = [index for index, uuid in enumerate(uuids) if name in (str(index), uuid[: len(name)])]
        if not name or not named:
            break
        found.append(named[0])
    return tuple(found)


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
