"""Numbers of other scalers: which queries are understood, and what they read."""

from __future__ import annotations

import pytest

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.policy import read_policy
from accelscale.lab.simulate.fleet import Gauges
from accelscale.lab.simulate.signals import (
    SIGNALS,
    metrics_with,
    signal_of_query,
    with_signals,
)
from accelscale.trigger import MetricType
from lab.simulate.cases import policy_with_signals, queue_trigger
from lab.toys import manifest

GAUGES = Gauges(at_router=3, waiting=(4, 0), running=(8, 2), cache_used=(0.5, 0.1))


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("sum(vllm:num_requests_waiting)", 4.0),
        ('sum(vllm:num_requests_waiting{model_name="a", namespace="b+c"})', 4.0),
        (" max ( vllm:num_requests_running ) ", 8.0),
        ("AVG(vllm:kv_cache_usage_perc)", 0.3),
        ("min(vllm:gpu_cache_usage_perc)", 0.1),
        ("sum(vllm:num_requests_waiting + vllm:num_requests_running)", 14.0),
        ("avg(sglang:num_queue_reqs)", 2.0),
        ("sum(tgi_queue_size)", 4.0),
    ],
)
def test_plain_queries_are_understood(query: str, value: float) -> None:
    signal = signal_of_query(query)
    assert signal is not None
    assert signal.value(GAUGES) == pytest.approx(value)
    assert signal.value(Gauges(at_router=3)) == 0.0  # KEDA takes an empty answer for 0


@pytest.mark.parametrize(
    "query",
    [
        "",
        "vllm:num_requests_waiting",
        "sum(rate(vllm:request_success_total[1m]))",
        "sum(vllm:num_requests_waiting) / 2",
        "sum(vllm:num_requests_waiting) by (pod)",
        "sum(vllm:num_requests_waiting + some:other_metric)",
        "quantile(0.9, vllm:num_requests_waiting)",
        "sum(DCGM_FI_DEV_GPU_UTIL)",
    ],
)
def test_other_queries_are_not_guessed_at(query: str) -> None:
    assert signal_of_query(query) is None


def test_each_signal_reads_what_it_says() -> None:
    values = {name: signal.value(GAUGES) for name, signal in SIGNALS.items()}
    assert values == {
        "requests_waiting": 7.0,
        "requests_in_flight": 17.0,
        "server_requests_waiting": 4.0,
        "server_requests_running": 10.0,
    }


def test_a_trigger_of_prometheus_becomes_one_of_the_policy() -> None:
    document = manifest(threshold="80")
    trigger = queue_trigger("sum(vllm:num_requests_waiting)", "12.5", activationThreshold="1")
    document["spec"]["triggers"].insert(0, {**trigger, "metricType": "Value"})
    found, signals = policy_with_signals(document)
    assert list(signals) == ["sum(vllm:num_requests_waiting)"]
    queue, ours = found.triggers
    assert (queue.threshold, queue.activation_threshold) == (12.5, 1.0)
    assert queue.metric_type is MetricType.VALUE
    assert ours.metric == "utilization_percent"
    assert found.left_out == ()
    assert found.scaled_object.metric_names[0] == "s0-sum-vllm-num-requests-waiting"
    assert document["spec"]["triggers"][0]["type"] == "prometheus"  # the manifest is left alone


def test_what_is_not_understood_is_left_out_and_named() -> None:
    document = manifest()
    document["spec"]["triggers"].append(queue_trigger("sum(rate(x[1m]))"))
    found, signals = policy_with_signals(document)
    assert signals == {}
    assert found.left_out == ("trigger 1, prometheus (queue)",)


@pytest.mark.parametrize("name", ["queue", "1"])
def test_a_signal_can_be_chosen_by_name_or_number(name: str) -> None:
    document = manifest()
    document["spec"]["triggers"].append(queue_trigger("sum(rate(x[1m]))"))
    found, _ = policy_with_signals(document, **{name: "requests_in_flight"})
    assert found.triggers[1].metric == "requests_in_flight"


def test_an_empty_answer_is_an_error_where_the_trigger_says_so() -> None:
    trigger = queue_trigger("sum(vllm:num_requests_waiting)", ignoreNullValues="false")
    _, signals = with_signals(manifest(spec={"triggers": [trigger]}), {})
    (signal,) = signals.values()
    assert signal.value(Gauges(at_router=3)) is None
    assert signal.value(GAUGES) == 4.0


def test_wrong_choices_are_refused() -> None:
    document = manifest()
    document["spec"]["triggers"].append(queue_trigger("sum(rate(x[1m]))"))
    with pytest.raises(NotFoundError, match="no trigger inbox; the triggers are 0, queue"):
        with_signals(document, {"inbox": "requests_waiting"})
    with pytest.raises(NotFoundError, match="no signal length"):
        with_signals(document, {"queue": "length"})
    with pytest.raises(ConfigurationError, match="reads its own metric"):
        with_signals(document, {"0": "requests_waiting"})


def test_faults_of_such_a_trigger_are_reported_like_any() -> None:
    trigger = queue_trigger("sum(vllm:num_requests_waiting)", "many")
    changed, signals = with_signals(manifest(spec={"triggers": [trigger]}), {})
    with pytest.raises(ConfigurationError, match="threshold='many'"):
        read_policy(changed, metrics=metrics_with(signals))
