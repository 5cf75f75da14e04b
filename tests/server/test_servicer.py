"""The unary calls, on the wire, over fake devices."""

from __future__ import annotations

import grpc
import pytest

from accelscale.errors import BackendError
from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server._proto import externalscaler_pb2 as pb

UTILIZATION = "utilization_percent"
Code = grpc.StatusCode


def one(value: float = 63.0, metric: str = UTILIZATION) -> FakeBackend:
    return FakeBackend({"fake-0": {metric: value}})


async def test_spec_value_and_activity_of_a_plain_trigger(start) -> None:
    server = await start(FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 35.5}}))
    spec = await server.spec()
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (
        "accelscale-utilization-percent",
        70,
        70.0,
    )
    value = await server.value()
    assert value.metricName == spec.metricName
    # The sum over the devices, because the HPA divides by the replicas under AverageValue.
    assert (value.metricValue, value.metricValueFloat) == (96, 95.5)
    assert await server.active() is True
    assert (await server.value(metricType="Value")).metricValueFloat == 47.75


async def test_fractions_survive_in_both_fields(start) -> None:
    server = await start(one(0.4))
    value, spec = await server.value(), await server.spec(threshold="0.5")
    assert (value.metricValue, value.metricValueFloat) == (1, 0.4)
    assert (spec.targetSize, spec.targetSizeFloat) == (1, 0.5)
    assert (await server.spec(threshold="0.015")).targetSizeFloat == 0.015


async def test_a_true_zero_is_zero_in_both_fields(start) -> None:
    fake = one(85.0)
    server = await start(fake)
    assert (await server.value(windowStatistic="last")).metricValueFloat == 85.0
    fake.set("fake-0", UTILIZATION, 0.0)

    async def zero() -> bool:
        value = await server.value(windowStatistic="last")
        assert (value.metricValue == 0) == (value.metricValueFloat == 0.0)
        return value.metricValueFloat == 0.0

    await server.until(zero)


@pytest.mark.parametrize(
    ("value", "activation", "active"),
    [(10.0, "10", False), (10.001, "10", True), (0.0, None, False), (0.001, None, True)],
)
async def test_active_is_strictly_above(
    start, value: float, activation: str | None, active: bool
) -> None:
    server = await start(one(value))
    keys = {} if activation is None else {"activationThreshold": activation}
    await server.becomes(active, **keys)


async def test_activation_wins_over_the_target(start) -> None:
    server = await start(one(40.0))
    await server.becomes(False, threshold="10", activationThreshold="50")
    assert (await server.value(threshold="10", activationThreshold="50")).metricValueFloat == 40.0


@pytest.mark.parametrize(
    ("asked", "metric_name"),
    [
        ("gpu-utilization", "gpu-utilization"),
        ("s0-gpu-utilization", "gpu-utilization"),
        ("s12-gpu-utilization", "gpu-utilization"),
        ("gpuUtil", "gpuUtil"),
        ("gpuutil", "gpuUtil"),
        ("S0-GPUUTIL", "gpuUtil"),
        ("s3-x", "s3-x"),
        ("s0-s3-x", "s3-x"),
    ],
)
async def test_spellings_of_a_metric_name(start, asked: str, metric_name: str) -> None:
    server = await start(one())
    value = await server.value(asked, metricName=metric_name)
    assert (value.metricName, value.metricValueFloat) == (metric_name.lower(), 63.0)
    assert (await server.spec(metricName=metric_name)).metricName == metric_name.lower()


@pytest.mark.parametrize("asked", ["no-such", "", "s0-", "x-gpu", "s0-s1-gpu", "gp"])
async def test_an_unknown_metric_name_is_not_found(start, asked: str) -> None:
    server = await start(one())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.value(asked, metricName="gpu")
    assert caught.value.code() is Code.NOT_FOUND
    assert f"no metric {asked!r}" in caught.value.details()
    assert "it has 'gpu'" in caught.value.details()


@pytest.mark.parametrize("name", ["gpu/util%", "..", "g" * 300, "gpu util"])
async def test_a_metric_name_that_no_hpa_takes_is_refused(start, name: str) -> None:
    server = await start(one())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.spec(metricName=name)
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert "metricName=" in caught.value.details()


CALLS = ["GetMetricSpec", "GetMetrics", "IsActive"]


async def call(server, name: str, ref: pb.ScaledObjectRef):
    request = ref
    if name == "GetMetrics":
        metric = "accelscale-utilization-percent"
        request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=metric)
    return await getattr(server.scaler, name)(request, timeout=5)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("metadata", "parts"),
    [
        ({}, ["metric: is required", "threshold: is required"]),
        ({"metric": UTILIZATION}, ["threshold: is required", "> 0"]),
        ({"metric": UTILIZATION, "threshold": "0"}, ["threshold='0'", "greater than 0"]),
        ({"metric": UTILIZATION, "threshold": "-5"}, ["threshold='-5'", "greater than 0"]),
        ({"metric": UTILIZATION, "threshold": "0.0004"}, ["threshold='0.0004'", "at least 0.001"]),
        ({"metric": UTILIZATION, "threshold": "80%"}, ["threshold='80%'", "plain decimal"]),
        ({"metric": UTILIZATION, "threshold": "nan"}, ["threshold='nan'", "plain decimal"]),
        ({"metric": UTILIZATION, "tresholdValue": "7"}, ["tresholdValue='7'", "no known key"]),
        (
            {"metric": "utilisation_percent", "threshold": "7", "scope": "workload"},
            ["did you mean utilization_percent?", "scope='workload'", "must be node here"],
        ),
        ({"metric": UTILIZATION, "threshold": "7", "devices": "-1"}, ["devices='-1'", "index"]),
        ({"metric": UTILIZATION, "threshold": "7", "aggregation": "mean "}, ["must be one of"]),
        ({"metric": UTILIZATION, "threshold": "130"}, ["above 100 percent"]),
        ({"profile": "vlm"}, ["profile='vlm'", "did you mean vllm?"]),
    ],
)
async def test_bad_metadata_is_an_invalid_argument_with_every_fault(
    start, name: str, metadata: dict[str, str], parts: list[str]
) -> None:
    server = await start(one())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(server, name, server.ref(metadata))
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert all(part in caught.value.details() for part in ["trigger metadata", *parts])


async def test_optional_keys_may_be_empty(start) -> None:
    server = await start(one())
    value = await server.value(activationThreshold="", aggregation="", devices="")
    assert value.metricValueFloat == 63.0


async def test_keys_of_keda_itself_pass(start) -> None:
    server = await start(one())
    keys = {
        "scalerAddress": "accelscale.accelscale.svc:6000",
        "enableTLS": "true",
        "unsafeSsl": "false",
        "tlsCertFile": "/certs/tls.crt",
        "someKeyFromEnv": "X",
        "thresholdFromEnv": "90",
    }
    assert (await server.value(**keys)).metricValueFloat == 63.0
    ref = server.ref({"metric": UTILIZATION, **keys})
    (spec,) = (await server.scaler.GetMetricSpec(ref, timeout=5)).metricSpecs
    assert spec.targetSizeFloat == 90.0


async def test_a_scaled_object_may_be_without_name_and_namespace(start) -> None:
    server = await start(one())
    ref = pb.ScaledObjectRef(scalerMetadata={"metric": UTILIZATION, "threshold": "70"})
    assert (await server.scaler.IsActive(ref, timeout=5)).result is True


@pytest.mark.parametrize("first", CALLS)
async def test_no_call_needs_an_earlier_one(start, first: str) -> None:
    server = await start(one())
    answer = await call(server, first, server.ref())
    assert answer == await call(server, first, server.ref())


async def test_a_spec_needs_no_device(start) -> None:
    fake = one()
    fake.break_open(BackendError("driver not loaded", reason=Reason.ERROR))
    server = await start(fake, settle=False)
    assert (await server.spec(threshold="55.5")).targetSizeFloat == 55.5
    error = await server.until_refused(Code.UNAVAILABLE)
    assert "no accelerator found" in error.details()
    assert "driver not loaded" in error.details()


async def test_nothing_readable_is_unavailable_and_never_false(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 0.0}})
    server = await start(fake)
    fake.lose("a", detail="fell off the bus")
    fake.lose("b", Reason.RESET_REQUIRED)
    error = await server.until_refused(Code.UNAVAILABLE)
    for part in (UTILIZATION, "0 of 2 replicas report", "a: lost (fell off the bus)"):
        assert part in error.details()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.active()
    assert caught.value.code() is Code.UNAVAILABLE
    assert "reset_required" in caught.value.details()
    assert (await server.spec()).targetSizeFloat == 70.0


async def test_a_value_that_cannot_be_is_unavailable(start) -> None:
    fake = one()
    server = await start(fake)
    fake.set("fake-0", UTILIZATION, -1.0)
    error = await server.until_refused(Code.UNAVAILABLE)
    assert "out_of_range" in error.details()
    assert "-1 is outside 0 to 100" in error.details()


async def test_a_device_that_does_not_exist_is_not_found(start) -> None:
    server = await start(one())
    error = await server.until_refused(Code.NOT_FOUND, devices="GPU-7")
    assert "no device GPU-7; devices seen: fake-0" in error.details()


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        ("7", Code.INVALID_ARGUMENT),
        ("-1", Code.INVALID_ARGUMENT),
        ("1.0", Code.INVALID_ARGUMENT),
        ("gpu-0,2", Code.INVALID_ARGUMENT),
        ("abc", Code.NOT_FOUND),
        ("gpu-0,GPU-ffff", Code.NOT_FOUND),
    ],
)
async def test_a_selector_that_selects_nothing_is_refused(
    start, devices: str, code: grpc.StatusCode
) -> None:
    server = await start(FakeBackend({f"gpu-{n}": {UTILIZATION: 90.0} for n in range(4)}))
    for call_name in ("GetMetrics", "IsActive"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(server, call_name, server.ref(devices=devices))
        assert caught.value.code() is code


async def test_a_selector_narrows(start) -> None:
    server = await start(FakeBackend({f"gpu-{n}": {UTILIZATION: 10.0 * n} for n in range(4)}))
    assert (await server.value(devices="gpu-1, GPU-3")).metricValueFloat == 40.0
    assert (await server.value(aggregation="P95", devices="gpu-2")).metricValueFloat == 20.0


async def test_a_metric_that_the_hardware_lacks_is_a_failed_precondition(start) -> None:
    server = await start(one(70.0, metric="temperature_celsius"))
    error = await server.until_refused(Code.FAILED_PRECONDITION)
    assert "utilization_percent is not_supported here: Fake fake-0" in error.details()


async def test_a_value_too_large_for_the_hpa_is_out_of_range(start) -> None:
    memory = {"memory_used_bytes": 1.1e15}
    server = await start(FakeBackend({f"gpu-{n}": memory for n in range(11)}))
    keys = {"metric": "memory_used_bytes", "threshold": "64Gi", "metricName": "memory"}
    error = await server.until_refused(Code.OUT_OF_RANGE, **keys)
    assert "memory_used_bytes = 1.21e+16 is too large for the HPA" in error.details()
    assert "use a metric in percent" in error.details()


async def test_a_partial_failure_leaves_the_other_metrics(start) -> None:
    fake = FakeBackend(
        {"a": {UTILIZATION: 60.0, "memory_used_bytes": 4e9, "memory_total_bytes": 1e10}}
    )
    server = await start(fake)
    fake.fail("a", UTILIZATION, Reason.ERROR, detail="error 43")
    error = await server.until_refused(Code.UNAVAILABLE)
    assert "error 43" in error.details()
    keys = {"metric": "memory_used_percent", "metricName": "memory"}
    assert (await server.value(**keys)).metricValueFloat == pytest.approx(40.0)
