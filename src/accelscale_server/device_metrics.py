"""The devices as Prometheus metrics, straight from a snapshot.

Names are those of the metrics table in Prometheus's base units, behind ``accelscale_device_``:
``utilization_percent`` becomes ``…_utilization_ratio`` (0 to 1), megahertz become hertz, running
totals end in ``_total``. Labels are OpenTelemetry's attributes of hardware and, where it is known
who holds a device, of Kubernetes, as Prometheus spells them (``hw.id`` is ``hw_id``). Every device
has one row, however many pods share it, so a sum over rows counts nothing twice. A reading that is
missing is a series that is missing, never 0 or NaN; ``accelscale_device_missing_readings`` counts
those by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from accelscale.metrics import Kind, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale.model import Device, Snapshot

PREFIX = "accelscale_device_"
LABELS = ("hw_id", "hw_name", "hw_type", "hw_vendor", "hw_parent")
HOLDER_LABELS = ("k8s_namespace_name", "k8s_pod_name", "k8s_container_name")
"""Not ``namespace`` and ``pod``, which Prometheus sets to the pod that it scrapes."""

_TYPES: Mapping[str, str] = {"nvidia": "gpu", "amd": "gpu", "intel": "gpu", "host": "cpu"}
"""OpenTelemetry's words for hw.type, by backend. The attribute ``type`` of a device goes before; a
backend without a word stands for itself (``fpga``)."""

_BASE_UNITS: Mapping[str, tuple[str, float]] = {
    "percent": ("ratio", 0.01),
    "megahertz": ("hertz", 1e6),
}


def prometheus_name(metric: Metric) -> tuple[str, float]:
    """The metric's name in Prometheus, and the factor from our unit to that one."""
    unit, factor = _BASE_UNITS.get(metric.unit, (metric.unit, 1.0))
    name = metric.name
    if unit != metric.unit:
        name = f"{name.removesuffix('_' + metric.unit)}_{unit}"
    if metric.kind is Kind.COUNTER and not name.endswith("_total"):
        name = f"{name}_total"
    return PREFIX + name, factor


def device_families(
    snapshot: Snapshot,
    metrics: Mapping[str, Metric],
    holders: Mapping[str, tuple[str, str, str]] | None = None,
) -> Iterator[Family]:
    """Every fresh reading of every device, what is missing, and which device is ill.

    ``holders`` has the values of `HOLDER_LABELS` for the devices that one pod holds; with None
    there are no such labels.
    """
    names: tuple[str, ...] = LABELS
    labels = {device.id: _labels(device) for device in snapshot.devices}
    if holders is not None:
        names = LABELS + HOLDER_LABELS
        nobody = ("",) * len(HOLDER_LABELS)
        labels = {key: values + holders.get(key, nobody) for key, values in labels.items()}
    for metric in metrics.values():
        name, factor = prometheus_name(metric)
        family: CounterMetricFamily | GaugeMetricFamily
        kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = kind(name, metric.help, labels=names)
        for device_id, values in labels.items():
            value = snapshot.value(device_id, metric.name)
            if value is not None:
                family.add_metric(values, value * factor)
        if family.samples:
            yield family
    yield _missing(snapshot, names, labels)
    yield _status(snapshot, names, labels)


def _labels(device: Device) -> tuple[str, ...]:
    kind = device.attributes.get("type") or _TYPES.get(device.backend, device.backend)
    return (device.id, device.name, kind, device.vendor, device.parent or "")


def _missing(
    snapshot: Snapshot, names: tuple[str, ...], labels: Mapping[str, tuple[str, ...]]
) -> Family:
    family = GaugeMetricFamily(
        f"{PREFIX}missing_readings",
        "Metrics of the device without a value at present, by reason.",
        labels=(*names, "reason"),
    )
    counts = Counter((failure.device_id, failure.reason) for failure in snapshot.failures.values())
    for (device_id, reason), count in counts.items():
        if device_id in labels:
            family.add_metric((*labels[device_id], reason.value), count)
    return family


def _status(
    snapshot: Snapshot, names: tuple[str, ...], labels: Mapping[str, tuple[str, ...]]
) -> Family:
    family = GaugeMetricFamily(
        "accelscale_device_status",
        "1 for the state that the device is in: ok, or failed with the reason.",
        labels=(*names, "hw_state", "reason"),
    )
    for device in snapshot.devices:
        state = "ok" if device.problem is None else "failed"
        reason = "" if device.problem is None else device.problem.value
        family.add_metric((*labels[device.id], state, reason), 1)
    return family
