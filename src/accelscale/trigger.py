"""A ScaledObject's trigger metadata, parsed and validated once, all faults reported together.

Each key is declared once, as a field of `Trigger`: its reader, its default, its help. Parsing, the
errors and the table in the documentation follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

import attrs
from attrs import frozen

from accelscale import values
from accelscale.doubts import Doubt, doubts
from accelscale.errors import ConfigurationError, Fault
from accelscale.metrics import METRICS, Kind, Metric
from accelscale.model import Series
from accelscale.profiles import PROFILES
from accelscale.selectors import Selector, parse_selector

SCOPES = ("workload", "node", "cluster")

# KEDA forwards the whole metadata of a trigger, its own keys for an external scaler included.
KEDA_KEYS = frozenset(
    {
        "scalerAddress",
        "enableTLS",
        "unsafeSsl",
        "insecureSkipVerify",
        "tlsCertFile",
        "caCert",
        "tlsClientCert",
        "tlsClientKey",
    }
)


class MetricType(StrEnum):
    """How the HPA compares a value with its target; see KEDA's trigger field of that name."""

    AVERAGE_VALUE = "AverageValue"
    VALUE = "Value"


def _key(
    key: str,
    read: Callable[[str], Any] | None,
    help: str,
    *,
    default: Any = attrs.NOTHING,
    shown: str | None = None,
) -> Any:
    """A field that is filled from the metadata key; ``shown`` is its default in words."""
    metadata = {"key": key, "read": read, "help": help, "shown": shown or str(default)}
    return attrs.field(default=default, kw_only=True, metadata=metadata)


def _positive(read: Callable[[str], float]) -> Callable[[str], float]:
    def positive(text: str) -> float:
        number = read(text)
        if not number > 0:
            raise ValueError("must be greater than 0")
        return number

    return positive


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("must be names separated by commas")
    return names


def _device_ids(text: str) -> tuple[str, ...]:
    ids = _names(text)
    for device_id in ids:
        if device_id.lstrip("+-").replace(".", "", 1).isdigit():
            raise ValueError(
                "must be device ids (a UUID or a PCI address, see `accelscale devices`),"
                " not an index: an index changes with a reboot or a lost card"
            )
    return ids


@frozen
class Trigger:
    """One parsed trigger. Durations are in seconds, numbers in the unit of the metric.

    ``warnings`` holds sentences about what is legal but hardly meant; see
    `accelscale.doubts`.
    """

    profile: str | None = _key(
        "profile",
        values.one_of(PROFILES),
        "Named defaults for the other keys.",
        default=None,
        shown="none",
    )
    metric: str = _key("metric", None, "Name of a metric.", shown="required without profile")
    threshold: float = _key(
        "threshold",
        None,
        "What one replica should carry, in the unit of the metric; greater than 0.",
        shown="required without profile",
    )
    activation_threshold: float = _key(
        "activationThreshold",
        None,
        "The workload is active when the activation value is strictly above this.",
        default=0.0,
        shown="0",
    )
    idle_after: float = _key(
        "idleAfter",
        values.duration,
        "Stay active until no sample was above activationThreshold for this long.",
        default=0.0,
        shown="0s",
    )
    window: float = _key(
        "window",
        _positive(values.duration),
        "Smoothing in time, for each device.",
        default=15.0,
        shown="15s",
    )
    window_statistic: str = _key(
        "windowStatistic",
        values.one_of(("mean", "max", "min", "last"), percentiles=True),
        "What the window yields.",
        default="mean",
    )
    aggregation: str = _key(
        "aggregation",
        values.one_of(("mean", "max", "min", "sum"), percentiles=True),
        "Over the devices of one replica.",
        shown="mean; sum for bytes, watts, joules and rates",
    )
    replica_aggregation: str = _key(
        "replicaAggregation",
        values.one_of(("auto", "sum", "mean", "max", "min"), percentiles=True),
        "Over the replicas. auto is sum under AverageValue and mean under Value.",
        default="auto",
    )
    scope: str = _key(
        "scope",
        values.one_of(SCOPES),
        "Whose devices count. With node or cluster every device is a replica.",
        shown="workload in a cluster, node in `accelscale serve`",
    )
    devices: tuple[str, ...] = _key(
        "devices",
        _device_ids,
        "Only these device ids, separated by commas.",
        default=(),
        shown="all of the scope",
    )
    vendor: str | None = _key(
        "vendor", str.lower, "Only devices of this vendor.", default=None, shown="any"
    )
    node: str | None = _key("node", str, "Only devices of this node.", default=None, shown="any")
    container: str | None = _key(
        "container", str, "Only devices that this container holds.", default=None, shown="any"
    )
    pod_selector: Selector | None = _key(
        "podSelector",
        parse_selector,
        "Only pods with these labels, as a label selector of Kubernetes.",
        default=None,
        shown="all",
    )
    missing: str = _key(
        "missing",
        values.one_of(("hold", "error", "ignore")),
        "What a silent replica means: hold fills it in as the HPA does for missing pods, error"
        " gives no answer, ignore leaves it out.",
        default="hold",
    )
    max_age: float | None = _key(
        "maxAge",
        _positive(values.duration),
        "Oldest sample that counts.",
        default=None,
        shown="3 x the interval of the metric, at least 5s",
    )
    metric_type: MetricType = _key(
        "metricType",
        lambda text: MetricType(values.one_of(MetricType)(text)),
        "Repeats KEDA's trigger field where the server cannot read the ScaledObject.",
        default=MetricType.AVERAGE_VALUE,
    )
    metric_name: str = _key(
        "metricName",
        values.hpa_metric_name,
        "Name of the metric in the HPA.",
        shown="`accelscale-` and the metric in kebab case",
    )
    warnings: tuple[Doubt, ...] = attrs.field(default=(), kw_only=True, eq=False)

    @property
    def series(self) -> Series:
        """The series that the value is made of."""
        return Series(self.metric, self.window, self.window_statistic)

    @property
    def idle_series(self) -> Series | None:
        """The series that keeps the workload active, or None without ``idleAfter``."""
        return Series(self.metric, self.idle_after, "max") if self.idle_after else None

    @property
    def wanted_series(self) -> tuple[Series, ...]:
        """Every series that an evaluation of this trigger looks at."""
        idle = self.idle_series
        return (self.series,) if idle is None else (self.series, idle)

    @property
    def resolved_replica_aggregation(self) -> str:
        """``replicaAggregation`` with ``auto`` resolved by the metric type."""
        if self.replica_aggregation != "auto":
            return self.replica_aggregation
        return "sum" if self.metric_type is MetricType.AVERAGE_VALUE else "mean"


KEYS: Mapping[str, attrs.Attribute[Any]] = {
    field.metadata["key"]: field for field in attrs.fields(Trigger) if "key" in field.metadata
}
"""Each metadata key with the field it fills."""


def parse_trigger(
    metadata: Mapping[str, str],
    *,
    metrics: Mapping[str, Metric] = METRICS,
    scopes: Collection[str] = SCOPES,
) -> Trigger:
    """Parse the metadata of a trigger as KEDA sends it.

    ``metrics`` is the table to choose from, plugins' rows included. ``scopes`` are those that the
    caller can serve, the first being the default.

    Raises:
        ConfigurationError: with every fault of the metadata.
    """
    faults: list[Fault] = []
    written = _written(metadata, faults)
    texts = _with_profile(written, faults)
    found: dict[str, Any] = {}
    metric = _read_metric(texts, metrics, faults, found)
    number = values.byte_quantity if metric is not None and metric.is_bytes else values.decimal
    readers: dict[str, Callable[[str], Any]] = {
        "threshold": partial(_threshold, number),
        "activationThreshold": number,
        "scope": partial(_scope, scopes),
    }
    for key, field in KEYS.items():
        read = readers.get(key) or field.metadata["read"]
        if key not in texts or read is None:
            continue
        try:
            found[field.name] = read(texts[key])
        except ValueError as error:
            faults.append(Fault(key, texts[key], str(error)))
    if "threshold" not in texts:
        faults.append(Fault("threshold", None, "is required: what one replica should carry, > 0"))
    scope = found.setdefault("scope", next(iter(scopes)))
    faults.extend(_misplaced(texts, scope, scopes))
    if metric is not None:
        found.setdefault("aggregation", metric.aggregation)
        found.setdefault("metric_name", f"accelscale-{metric.name.replace('_', '-')}")
        if "threshold" in found:
            faults.extend(_unreachable(metric, found, texts))
    if faults:
        raise ConfigurationError(faults)
    assert metric is not None
    trigger = Trigger(**found)
    return attrs.evolve(trigger, warnings=tuple(doubts(trigger, metric)))


def _written(metadata: Mapping[str, str], faults: list[Fault]) -> dict[str, str]:
    """Our keys that have a value; KEDA puts what ``xFromEnv`` names under that same key."""
    written = {}
    for key, text in metadata.items():
        plain = key.removesuffix("FromEnv")
        if plain in KEYS and plain != key:
            if text and not metadata.get(plain):
                written[plain] = text
        elif key in KEYS:
            if text:
                written[key] = text
        elif key not in KEDA_KEYS and not key.endswith("FromEnv"):
            faults.append(Fault(key, text, f"is no known key{values.did_you_mean(key, KEYS)}"))
    return written


def _with_profile(written: Mapping[str, str], faults: list[Fault]) -> dict[str, str]:
    name = written.get("profile")
    if name is None or name.lower() not in PROFILES:
        return dict(written)  # an unknown one is reported by the reader of the key
    return {**PROFILES[name.lower()].keys, **written}


def _read_metric(
    texts: Mapping[str, str],
    metrics: Mapping[str, Metric],
    faults: list[Fault],
    found: dict[str, Any],
) -> Metric | None:
    name = texts.get("metric")
    if name is None:
        faults.append(Fault("metric", None, "is required; the names are in the metrics reference"))
        return None
    metric = metrics.get(name)
    if metric is None:
        hint = values.did_you_mean(name, metrics) or f"; known are {', '.join(metrics)}"
        faults.append(Fault("metric", name, f"is no known metric{hint}"))
        return None
    if metric.kind is Kind.COUNTER:
        rate = next((row.name for row in metrics.values() if row.sources[:1] == (name,)), None)
        instead = f"; use {rate}" if rate else ""
        faults.append(
            Fault("metric", name, f"is a running total, which never falls back to idle{instead}")
        )
    found["metric"] = name
    return metric


def _threshold(number: Callable[[str], float], text: str) -> float:
    try:
        threshold = number(text)
    except ValueError as error:
        raise ValueError(f"{error}, greater than 0") from None
    if not values.LEAST_THRESHOLD <= threshold < values.LARGEST:
        raise ValueError(
            f"must be greater than 0, at least {values.LEAST_THRESHOLD:g} (KEDA keeps three"
            f" decimals) and below {values.LARGEST:g}"
        )
    return threshold


def _scope(scopes: Collection[str], text: str) -> str:
    scope = values.one_of(SCOPES)(text)
    if scope not in scopes:
        raise ValueError(
            f"must be {' or '.join(scopes)} here: this server sees one machine and knows no pods"
        )
    return scope


def _misplaced(texts: Mapping[str, str], scope: str, scopes: Collection[str]) -> list[Fault]:
    """Keys about pods where no pods count."""
    if scope == "workload":
        return []
    problem = f"has a meaning only with scope workload, and the scope is {scope}"
    return [Fault(key, texts[key], problem) for key in ("container", "podSelector") if key in texts]


def _unreachable(metric: Metric, found: Mapping[str, Any], texts: Mapping[str, str]) -> list[Fault]:
    """A threshold that no value of the metric can ever exceed."""
    if found["aggregation"] == "sum" or found["threshold"] <= metric.maximum:
        return []
    problem = f"is above {metric.maximum:g} {metric.unit}, the most that {metric.name} can be"
    return [Fault("threshold", texts["threshold"], problem)]
