from __future__ import annotations

import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.doubts import DoubtKind, doubts
from accelscale.errors import ConfigurationError
from accelscale.metrics import METRICS, Metric
from accelscale.model import Series
from accelscale.profiles import PROFILES
from accelscale.trigger import KEYS, MetricType, Trigger, parse_trigger

GOOD = {"metric": "utilization_percent", "threshold": "70"}


def faults(metadata: dict[str, str], **options: object) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_trigger(metadata, **options)  # type: ignore[arg-type]
    return {fault.key: str(fault) for fault in caught.value.faults}


def test_the_defaults_are_those_of_the_reference() -> None:
    trigger = parse_trigger(GOOD)
    assert trigger == Trigger(
        metric="utilization_percent",
        threshold=70.0,
        activation_threshold=0.0,
        idle_after=0.0,
        window=15.0,
        window_statistic="mean",
        aggregation="mean",
        replica_aggregation="auto",
        scope="workload",
        missing="hold",
        max_age=None,
        metric_type=MetricType.AVERAGE_VALUE,
        metric_name="accelscale-utilization-percent",
    )
    assert trigger.warnings == ()


def test_every_key_is_read() -> None:
    trigger = parse_trigger(
        {
            "scalerAddress": "accelscale:6000",
            "metric": "memory_used_bytes",
            "threshold": "64Gi",
            "activationThreshold": "512Mi",
            "idleAfter": "10m",
            "window": "1m",
            "windowStatistic": "P95",
            "aggregation": "MAX",
            "replicaAggregation": "p50",
            "scope": "workload",
            "devices": "GPU-a, 0000:1b:00.0",
            "vendor": "NVIDIA",
            "node": "node-a",
            "container": "server",
            "podSelector": "app=vllm",
            "missing": "ignore",
            "maxAge": "30s",
            "metricType": "value",
            "metricName": "gpuMemory",
        }
    )
    assert trigger.threshold == 64 * 2**30
    assert trigger.activation_threshold == 512 * 2**20
    assert trigger.wanted_series == (
        Series("memory_used_bytes", 60.0, "p95"),
        Series("memory_used_bytes", 600.0, "max"),
    )
    assert trigger.devices == ("GPU-a", "0000:1b:00.0")
    assert (trigger.aggregation, trigger.vendor) == ("max", "nvidia")
    assert trigger.metric_type is MetricType.VALUE
    assert trigger.metric_name == "gpumemory"
    assert trigger.max_age == 30.0
    assert trigger.pod_selector is not None
    assert trigger.pod_selector.matches({"app": "vllm", "tier": "gold"})
    assert not trigger.pod_selector.matches({"tier": "gold"})


def test_every_key_of_the_table_fills_a_field_of_its_own() -> None:
    assert len({field.name for field in KEYS.values()}) == len(KEYS)
    assert {field.name for field in KEYS.values()} | {"warnings"} == {
        field.name for field in attrs.fields(Trigger)
    }


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-5",
        "0.0004",
        "nan",
        "inf",
        "80%",
        "1_000",
        "1e3",
        "\u0667\u0660",
        "0x10",
        " 70",
        "70 ",
        "+70",
        "9300000000000000",
        "",
        "7" * 400,
    ],
)
def test_a_threshold_that_is_no_usable_number_is_refused(text: str) -> None:
    found = faults({"metric": "utilization_percent", "threshold": text})
    assert "greater than 0" in found["threshold"] or "required" in found["threshold"]


@pytest.mark.parametrize(("text", "number"), [("0.5", 0.5), ("0.015", 0.015), ("70", 70.0)])
def test_fractions_are_thresholds(text: str, number: float) -> None:
    assert parse_trigger({**GOOD, "threshold": text}).threshold == number


def test_no_metadata_names_what_is_missing() -> None:
    assert set(faults({})) == {"metric", "threshold"}


def test_an_empty_value_counts_as_not_written() -> None:
    trigger = parse_trigger({**GOOD, "window": "", "profile": "", "vendor": ""})
    assert (trigger.window, trigger.profile, trigger.vendor) == (15.0, None, None)


def test_all_faults_are_told_at_once() -> None:
    found = faults(
        {
            "metric": "utilisation_percent",
            "threshold": "80%",
            "tresholdValue": "80",
            "window": "fast",
            "aggregation": "mean ",
            "profile": "vlm",
        }
    )
    assert set(found) == {
        "metric",
        "threshold",
        "tresholdValue",
        "window",
        "aggregation",
        "profile",
    }
    assert "did you mean utilization_percent?" in found["metric"]
    assert "did you mean threshold?" in found["tresholdValue"]
    assert "did you mean vllm?" in found["profile"]


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("activationTargetvalue", "activationThreshold"),
        ("targetValue", "threshold"),
        ("gpuIndex", "devices"),
        ("Threshold", "threshold"),
        ("idleafter", "idleAfter"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    assert f"did you mean {nearest}?" in faults({**GOOD, key: "5"})[key]


@pytest.mark.parametrize(
    "key",
    [
        "scalerAddress",
        "enableTLS",
        "unsafeSsl",
        "tlsCertFile",
        "caCert",
        "tlsClientCert",
        "tlsClientKey",
        "insecureSkipVerify",
        "someKeyFromEnv",
    ],
)
def test_keys_that_belong_to_keda_pass(key: str) -> None:
    assert parse_trigger({**GOOD, key: "anything"}).threshold == 70.0


def test_a_key_may_come_from_the_environment_of_the_target() -> None:
    metadata = {"metric": "utilization_percent", "thresholdFromEnv": "60"}
    assert parse_trigger(metadata).threshold == 60.0
    assert parse_trigger({**metadata, "threshold": "50"}).threshold == 50.0
    assert "thresholds" not in faults({"metric": "utilization_percent", "thresholdFromEnv": "x"})


@pytest.mark.parametrize("index", ["7", "-1", "1.0", "0", "GPU-a,2"])
def test_an_index_is_no_device_id(index: str) -> None:
    assert "not an index" in faults({**GOOD, "devices": index})["devices"]


@pytest.mark.parametrize("names", ["GPU-a,,GPU-b", "GPU-a,", ","])
def test_an_empty_name_among_device_ids_is_refused(names: str) -> None:
    assert "separated by commas" in faults({**GOOD, "devices": names})["devices"]


@pytest.mark.parametrize("name", ["gpu/util%", "..", "a" * 64, "-a", "a-", "ä", "a b", "."])
def test_a_metric_name_that_no_hpa_takes_is_refused(name: str) -> None:
    assert "metricName" in faults({**GOOD, "metricName": name})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15", 15.0), ("15s", 15.0), ("10m", 600.0), ("1h", 3600.0), ("0.5s", 0.5), ("1.5m", 90.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_trigger({**GOOD, "window": text}).window == seconds


@pytest.mark.parametrize("text", ["0", "-5s", "5 s", "5d", "1h30m", "7h", "\u0663s", "s", "1e2"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert "window" in faults({**GOOD, "window": text})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64Gi", 64 * 2.0**30),
        ("1.5T", 1.5e12),
        ("500M", 5e8),
        ("1k", 1e3),
        ("1Ki", 1024.0),
        ("128974848", 128974848.0),
    ],
)
def test_bytes_may_be_kubernetes_quantities(text: str, number: float) -> None:
    trigger = parse_trigger({"metric": "memory_used_bytes", "threshold": text})
    assert trigger.threshold == number


@pytest.mark.parametrize("text", ["64gb", "64GiB", "Gi", "64 Gi", "64m"])
def test_other_quantities_are_refused(text: str) -> None:
    found = faults({"metric": "memory_used_bytes", "threshold": text})
    assert "Kubernetes quantity" in found["threshold"]


def test_a_quantity_is_for_bytes_only() -> None:
    assert "plain decimal" in faults({**GOOD, "threshold": "64Gi"})["threshold"]


@pytest.mark.parametrize("name", [m.name for m in METRICS.values() if m.kind == "counter"])
def test_a_running_total_is_no_level(name: str) -> None:
    assert "running total" in faults({"metric": name, "threshold": "5"})["metric"]


def test_the_rate_of_a_running_total_is_named() -> None:
    found = faults({"metric": "pcie_receive_bytes_total", "threshold": "5"})
    assert "pcie_receive_bytes_per_second" in found["metric"]


@pytest.mark.parametrize("name", [m.name for m in METRICS.values() if m.kind == "gauge"])
def test_every_gauge_makes_a_trigger_with_a_legal_name(name: str) -> None:
    trigger = parse_trigger({"metric": name, "threshold": "5"})
    assert trigger.metric_name == f"accelscale-{name.replace('_', '-')}"
    assert len(trigger.metric_name) <= 63
    assert trigger.aggregation == METRICS[name].aggregation


def test_a_plugin_can_bring_metrics() -> None:
    row = Metric("toy_heat_percent", "percent", "How hot.", 0.0, 100.0)
    trigger = parse_trigger(
        {"metric": "toy_heat_percent", "threshold": "5"}, metrics={**METRICS, row.name: row}
    )
    assert trigger.metric == "toy_heat_percent"


def test_a_threshold_above_the_most_a_metric_can_be_is_refused() -> None:
    assert "most that" in faults({**GOOD, "threshold": "101"})["threshold"]
    assert parse_trigger({**GOOD, "threshold": "400", "aggregation": "sum"}).threshold == 400.0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"threshold": "0.8"}, "was 80 meant?"),
        ({"threshold": "95"}, "can never scale out"),
        ({"replicaAggregation": "mean"}, "divides by the replicas once more"),
        ({"replicaAggregation": "p95"}, "divides by the replicas once more"),
        ({"replicaAggregation": "sum", "metricType": "Value"}, "runs away"),
        ({"activationThreshold": "80"}, "above threshold"),
    ],
)
def test_what_is_legal_but_hardly_meant_is_warned_of(keys: dict[str, str], words: str) -> None:
    (warning,) = parse_trigger({**GOOD, **keys}).warnings
    assert words in warning


def test_a_doubt_is_text_that_programs_can_tell_apart() -> None:
    (doubt,) = parse_trigger({**GOOD, "threshold": "95"}).warnings
    assert (doubt.kind, doubt.key) == (DoubtKind.NEVER_SCALES_OUT, "threshold")
    assert "tolerance of 10 % (at most 90 can)" in doubt
    again = pickle.loads(pickle.dumps(doubt))
    assert (again, again.kind, again.key) == (doubt, doubt.kind, doubt.key)


@pytest.mark.parametrize(("tolerance", "highest"), [(0.05, 95), (0.2, 83), (0.25, 79), (0.0, 99)])
def test_the_highest_useful_threshold_follows_the_tolerance(tolerance: float, highest: int) -> None:
    metric = METRICS["utilization_percent"]
    just = parse_trigger({**GOOD, "threshold": str(highest)})
    assert list(doubts(just, metric, tolerance=tolerance)) == []
    above = attrs.evolve(just, threshold=highest + 1.0)
    (doubt,) = doubts(above, metric, tolerance=tolerance)
    assert f"at most {highest} can" in doubt


def test_auto_follows_the_metric_type() -> None:
    assert parse_trigger(GOOD).resolved_replica_aggregation == "sum"
    value = parse_trigger({**GOOD, "metricType": "Value"})
    assert value.resolved_replica_aggregation == "mean"


@pytest.mark.parametrize("metric_type", ["Utilization", "average", "x"])
def test_other_metric_types_are_refused(metric_type: str) -> None:
    found = faults({**GOOD, "metricType": metric_type})
    assert "AverageValue, Value" in found["metricType"]


def test_scopes_that_a_server_cannot_see_are_refused() -> None:
    assert parse_trigger(GOOD, scopes=("node",)).scope == "node"
    assert "knows no pods" in faults({**GOOD, "scope": "workload"}, scopes=("node",))["scope"]


def test_a_pod_selector_that_is_none_is_refused() -> None:
    found = faults({**GOOD, "podSelector": "app in vllm"})
    assert "'app in vllm' is no label; a label selector is written" in found["podSelector"]
    assert parse_trigger({**GOOD, "podSelector": ""}).pod_selector is None


@pytest.mark.parametrize("key", ["container", "podSelector"])
def test_keys_about_pods_need_pods(key: str) -> None:
    assert "scope workload" in faults({**GOOD, key: "a", "scope": "node"})[key]
    assert "scope workload" in faults({**GOOD, key: "a"}, scopes=("node",))[key]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_whole_trigger_without_a_warning(name: str) -> None:
    trigger = parse_trigger({"profile": name})
    assert trigger.profile == name
    assert trigger.warnings == ()
    assert trigger.metric != "memory_used_percent"


def test_a_key_beside_a_profile_wins() -> None:
    trigger = parse_trigger({"profile": "VLLM", "threshold": "60", "idleAfter": "2m"})
    assert (trigger.threshold, trigger.idle_after, trigger.metric) == (
        60.0,
        120.0,
        "utilization_percent",
    )


@given(st.dictionaries(st.sampled_from([*KEYS, "x", "scalerAddress"]), st.text(max_size=12)))
def test_any_metadata_gives_a_trigger_or_faults(metadata: dict[str, str]) -> None:
    found: tuple[object, ...] = ()
    trigger = None
    try:
        trigger = parse_trigger(metadata)
    except ConfigurationError as error:
        found = error.faults
    assert (trigger is not None and 0 < trigger.threshold < 9.2e15) or found
