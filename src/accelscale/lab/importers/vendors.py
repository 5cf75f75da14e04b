"""What the exporters of NVIDIA (DCGM) and AMD call the metrics, and how they label their series.

Origin of the names: the default counters of NVIDIA's dcgm-exporter, and the metrics list of
ROCm/device-metrics-exporter. The DCGM_FI_PROF fields are ratios from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from accelscale.metrics import METRICS, Kind
from accelscale.model import Device

_NVIDIA = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_percent", "%"),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_activity_percent", "ratio"),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_percent", "ratio"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_activity_percent", "ratio"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("memory_bandwidth_utilization_percent", "ratio"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_bandwidth_utilization_percent", "%"),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", "MiB"),
    "DCGM_FI_DEV_FB_TOTAL": ("memory_total_bytes", "MiB"),
    "DCGM_FI_DEV_FB_USED_PERCENT": ("memory_used_percent", "ratio"),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", "C"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_celsius", "C"),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", "W"),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("power_limit_watts", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_joules_total", "mJ"),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_megahertz", "MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_megahertz", "MHz"),
    "DCGM_FI_DEV_ENC_UTIL": ("encoder_utilization_percent", "%"),
    "DCGM_FI_DEV_DEC_UTIL": ("decoder_utilization_percent", "%"),
}

_AMD = {
    "gpu_gfx_activity": ("utilization_percent", "%"),
    "gpu_umc_activity": ("memory_bandwidth_utilization_percent", "%"),
    "gpu_used_vram": ("memory_used_bytes", "MiB"),
    "gpu_total_vram": ("memory_total_bytes", "MiB"),
    "gpu_junction_temperature": ("temperature_celsius", "C"),
    "gpu_edge_temperature": ("temperature_celsius", "C"),
    "gpu_memory_temperature": ("memory_temperature_celsius", "C"),
    "gpu_power_usage": ("power_watts", "W"),
    "gpu_package_power": ("power_watts", "W"),
    "gpu_average_package_power": ("power_watts", "W"),
    "gpu_energy_consumed": ("energy_joules_total", "uJ"),
}


@frozen
class Exported:
    """What a series of an exporter holds: our metric, and the unit that it is in."""

    metric: str
    unit: str
    vendor: str


def exported(name: str) -> Exported | None:
    """The metric behind an exporter's name, or a name of ours; None where it is neither."""
    if name in _NVIDIA:
        return Exported(*_NVIDIA[name], "nvidia")
    plain = name.lower().removeprefix("amd_")
    if plain in _AMD:
        return Exported(*_AMD[plain], "amd")
    ours = name.removeprefix("accelscale_")
    if ours in METRICS:
        return Exported(ours, _OWN_SPELLINGS.get(METRICS[ours].unit, ""), "")
    return None


_OWN_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "percent": "%",
        "watts": "W",
        "celsius": "C",
        "megahertz": "MHz",
        "joules": "J",
        "bytes": "bytes",
        "errors": "errors",
    }
)


def is_counter(metric: str) -> bool:
    """Whether the metric only grows."""
    return metric in METRICS and METRICS[metric].kind is Kind.COUNTER


def device_of(labels: Mapping[str, str], vendor: str) -> Device | None:
    """The device that labels speak of, or None where they name none.

    A MIG instance carries the UUID of its card and its own number.
    """
    uuid = _first(labels, "UUID", "uuid", "gpu_uuid", "device_id", "serial_number")
    node = _first(labels, "Hostname", "hostname", "node", "exported_instance", "instance")
    if uuid is None:
        index = _first(labels, "gpu", "gpu_id", "minor_number", "device", "card")
        if index is None:
            return None
        uuid = f"{node}/gpu-{index}" if node else f"gpu-{index}"
    elif vendor == "amd" and "gpu_id" in labels:
        uuid = f"{uuid}/{labels['gpu_id']}"
    instance = labels.get("GPU_I_ID")
    device_id = f"{uuid}/mig-{instance}" if instance else uuid
    return Device(
        id=device_id,
        name=_first(labels, "modelName", "card_model", "card_series", "name") or device_id,
        vendor=vendor or labels.get("vendor", "unknown"),
        backend="import",
        parent=uuid if instance else None,
        node=node,
    )


def holder_of(labels: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(namespace, pod, container) that held the device, or None.

    Prometheus keeps an exporter's own label under ``exported_`` where the target has one of that
    name; the plain one is then the exporter's pod and not the user's.
    """
    for prefix in ("exported_", ""):
        pod = labels.get(f"{prefix}pod")
        if pod:
            namespace = labels.get(f"{prefix}namespace", "")
            return namespace, pod, labels.get(f"{prefix}container", "")
        if any(label.startswith("exported_") for label in labels):
            return None  # the rest speaks of the exporter
    return None


def _first(labels: Mapping[str, str], *names: str) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)
