"""libtpu's metric service: ``GetRuntimeMetric`` by name, over loopback.

The messages are those that Google's own reader uses (google/cloud-accelerator-diagnostics,
tpu_info), as far as they are needed here, put together at run time: there is no generated code that
could be newer than the installed protobuf. A field that is not set reads as 0, so each is asked
whether it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from attrs import frozen
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from accelscale.model import Reason

METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
_PACKAGE = "tpu.monitoring.runtime"
_Field = descriptor_pb2.FieldDescriptorProto

# name, number, type; a type that is a text names another message, "…[]" is repeated, and fields of
# a message whose name stands in _ONE_OF exclude each other.
_MESSAGES: Mapping[str, tuple[tuple[str, int, Any], ...]] = {
    "AttrValue": (("string_attr", 1, _Field.TYPE_STRING), ("int_attr", 3, _Field.TYPE_INT64)),
    "Attribute": (("key", 1, _Field.TYPE_STRING), ("value", 2, "AttrValue")),
    "Gauge": (("as_double", 1, _Field.TYPE_DOUBLE), ("as_int", 2, _Field.TYPE_INT64)),
    "Metric": (("attribute", 1, "Attribute"), ("gauge", 3, "Gauge")),
    "TPUMetric": (("name", 1, _Field.TYPE_STRING), ("metrics", 3, "Metric[]")),
    "MetricRequest": (("metric_name", 1, _Field.TYPE_STRING),),
    "MetricResponse": (("metric", 1, "TPUMetric"),),
}
_ONE_OF = frozenset({"AttrValue", "Gauge"})

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a proxy variable would take even loopback calls away
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 2000),  # a workload that starts is seen soon
)


@frozen
class Absent:
    """Why there are no values."""

    reason: Reason
    detail: str


def messages() -> dict[str, Any]:
    """The message classes of the service, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="accelscale_tpu.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ONE_OF:
            message.oneof_decl.add(name="value")
        for field_name, number, kind in fields:
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_OPTIONAL
            if name in _ONE_OF:
                field.oneof_index = 0
            if isinstance(kind, str):
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind.removesuffix('[]')}"
                if kind.endswith("[]"):
                    field.label = _Field.LABEL_REPEATED
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()  # our own: these names may be taken in the common one
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


class MetricService:
    """A client of the service at ``address``. Makes no connection before the first call."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        classes = messages()
        self._request = classes["MetricRequest"]
        self._channel = grpc.secure_channel(
            address, grpc.local_channel_credentials(), options=_OPTIONS
        )
        self._call: Any = self._channel.unary_unary(
            METHOD,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=classes["MetricResponse"].FromString,
        )

    def close(self) -> None:
        self._channel.close()

    def values(self, names: Iterable[str]) -> dict[str, Mapping[int, float] | Absent]:
        """The values of these metrics by libtpu's device ids; all calls run at the same time."""
        calls = {
            name: self._call.future(self._request(metric_name=name), timeout=self._timeout)
            for name in names
        }
        return {name: self._result(name, call) for name, call in calls.items()}

    def _result(self, name: str, call: Any) -> Mapping[int, float] | Absent:
        try:
            response = call.result()
        except grpc.RpcError as error:
            return self._because(name, error)
        values: dict[int, float] = {}
        for metric in response.metric.metrics:
            which = metric.attribute.value.WhichOneof("value")
            kind = metric.gauge.WhichOneof("value")
            if which != "int_attr" or kind is None:
                return Absent(Reason.ERROR, f"{name}: an entry without a device or a number")
            device = int(metric.attribute.value.int_attr)
            if device in values:
                return Absent(Reason.ERROR, f"{name}: device {device} is there twice")
            values[device] = float(getattr(metric.gauge, kind))
        return values

    def _because(self, name: str, error: Any) -> Absent:
        code = error.code() if hasattr(error, "code") else None
        if code is grpc.StatusCode.UNAVAILABLE:
            detail = (
                f"no workload serves metrics at {self.address}: libtpu does so only while one runs,"
                " and without it nothing tells whether the chip works"
            )
            return Absent(Reason.ERROR, detail)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Absent(Reason.TIMEOUT, f"{name}: no answer within {self._timeout:g} s")
        if code in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}:
            detail = f"{name}: {self.address} refuses: {error.details()}"
            return Absent(Reason.PERMISSION, detail)
        if code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED}:
            return Absent(Reason.NOT_SUPPORTED, f"this libtpu does not have {name}")
        return Absent(Reason.ERROR, f"{name}: {code}: {str(error.details())[:200]}")
