"""``accelscale explain``: why a scaler's number is what it is, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from accelscale.cli.options import one_line, print_json, say
from accelscale.errors import AccelscaleError
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionStub
from accelscale_server.poll import decimal

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # a thousand nodes take megabytes
)


class ScalerError(AccelscaleError):
    """The scaler did not answer; the message has the status and its text."""


def open_channel(target: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """A channel to a scaler."""
    if credentials is None:
        return grpc.insecure_channel(target, options=OPTIONS)
    return grpc.secure_channel(target, credentials, options=OPTIONS)


def ask(call: Callable[..., Any], request: Any, timeout: float) -> Any:
    """The answer to one call.

    Raises:
        ScalerError: there is none.
    """
    try:
        return call(request, timeout=timeout)
    except grpc.RpcError as error:
        code, text = error.code(), one_line(error.details() or "no text")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            text = "what listens there is no scaler; `accelscale serve` has nothing to explain"
        raise ScalerError(f"{code.name}: {text}") from error


def explain(channel: grpc.Channel, namespace: str, name: str, timeout: float) -> pb.ExplainResponse:
    """Ask a scaler how the triggers of a ScaledObject are evaluated now."""
    stub = IntrospectionStub(channel)  # type: ignore[no-untyped-call]
    answer: pb.ExplainResponse = ask(
        stub.Explain, pb.ExplainRequest(namespace=namespace, name=name), timeout
    )
    return answer


def show(answer: pb.ExplainResponse, title: str, *, as_json: bool) -> None:
    """Print an answer; ``title`` names the ScaledObject."""
    if as_json:
        record = MessageToDict(
            answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        print_json(record["explanations"])
        return
    for number, explanation in enumerate(answer.explanations):
        if number:
            typer.echo("")
        for line in lines_of(explanation, title):
            say(line)


def lines_of(explanation: pb.Explanation, title: str) -> Iterator[str]:
    """The explanation in words, then a table of the replicas and their devices."""
    if not explanation.metric_name:
        yield f"trigger    {title}: {', '.join(sorted(explanation.metadata)) or 'no key is known'}"
        yield f"value      none: {_error(explanation.error)}"
        return
    yield f"trigger    {title}: {explanation.metric_name}"
    yield f"counted    {_scope(explanation)}"
    within = f"{explanation.aggregation} over the devices of a replica, " * (
        explanation.scope == "workload"
    )
    yield (
        f"metric     {explanation.series}; {within}{explanation.replica_aggregation} over replicas"
        f" (metricType {explanation.metric_type})"
    )
    if explanation.HasField("value"):
        yield f"value      {decimal(explanation.value)}{_sum(explanation)}"
    else:
        yield f"value      none: {_error(explanation.error)}"
    yield f"threshold  {decimal(explanation.threshold)} per replica"
    yield f"active     {_active(explanation)}"
    if explanation.summary:
        yield f"replicas   {explanation.summary}"
    yield f"HPA        {_hpa(explanation)}"
    for warning in explanation.warnings:
        yield f"warning    {warning}"
    if explanation.replicas:
        yield ""
        yield from _table(explanation.replicas)


def _scope(explanation: pb.Explanation) -> str:
    if explanation.scope != "workload":
        return f"every device of {explanation.workload}"
    return f"the devices that the pods of {explanation.workload} hold"


def _sum(explanation: pb.Explanation) -> str:
    """What the value was made of, where that is short and tells something."""
    counted = [replica.counted for replica in explanation.replicas if replica.HasField("counted")]
    if explanation.fill == "no change":
        return ": exactly that at which nothing changes"
    if explanation.replica_aggregation != "sum" or not 2 <= len(counted) <= 10:
        return ""
    return f" = {' + '.join(decimal(value) for value in counted)}"


def _active(explanation: pb.Explanation) -> str:
    if not explanation.HasField("active"):
        return f"unknown: {_error(explanation.active_error)}"
    word = "yes" if explanation.active else "no"
    if not explanation.HasField("activation_value"):
        return word
    relation = "is above" if explanation.active else "is not above"
    value, bound = explanation.activation_value, explanation.activation_threshold
    return f"{word}: {decimal(value)} {relation} {decimal(bound)}"


def _hpa(explanation: pb.Explanation) -> str:
    seen = f"sees {explanation.current_replicas} replicas, {explanation.ready_replicas} Ready"
    if explanation.most_replicas:
        seen += f", of {explanation.least_replicas} to {explanation.most_replicas}"
    if not explanation.HasField("hpa_replicas"):
        return f"{seen}, and keeps them for want of a value"
    return f"{seen}, and asks for {explanation.hpa_replicas}"


def _error(error: pb.Error) -> str:
    return f"{error.code}: {error.message}"


_TITLES = ("REPLICA", "READY", "VALUE", "COUNTS", "DEVICE", "NODE", "READS", "AGE")


def _table(replicas: Iterable[pb.Replica]) -> Iterator[str]:
    rows: list[Sequence[str]] = [_TITLES]
    for replica in replicas:
        rows += _rows(replica)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _rows(replica: pb.Replica) -> Iterator[Sequence[str]]:
    ready = "yes" if replica.ready else "was" if replica.was_ready else "starting"
    value = decimal(replica.value) if replica.HasField("value") else "-"
    counted = decimal(replica.counted) if replica.HasField("counted") else "-"
    head: Sequence[str] = (replica.name, ready, value, counted)
    if replica.problem:
        yield (*head, "not known", "", replica.problem, "")
        head = ("", "", "", "")
    for device in replica.devices:
        yield (*head, f"{device.name} {device.device_id}".strip(), device.node, *_reading(device))
        head = ("", "", "", "")
    if not replica.devices and not replica.problem:
        yield (*head, "none", "", "", "")


def _reading(device: pb.DeviceFigure) -> tuple[str, str]:
    detail = f"{device.reason}{f' ({device.detail})' if device.detail else ''}"
    age = f"{device.age_seconds:.1f} s" if device.age_seconds else ""
    if not device.HasField("value"):
        return detail, age
    notes = []
    if device.share < 1:
        notes.append(f"shared, {device.share:.0%} counts")
    elif device.shared:
        notes.append("shared with other pods")
    if not device.covered:
        notes.append("history too short")
    if device.reason:
        notes.append(detail)
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"{decimal(device.value)}{noted}", f"{device.age_seconds:.1f} s"
