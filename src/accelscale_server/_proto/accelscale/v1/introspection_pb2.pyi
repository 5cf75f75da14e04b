from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainRequest(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("explanations",)
    EXPLANATIONS_FIELD_NUMBER: _ClassVar[int]
    explanations: _containers.RepeatedCompositeFieldContainer[Explanation]
    def __init__(self, explanations: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("metadata", "metric_name", "metric_type", "threshold", "activation_threshold", "workload", "scope", "replica_aggregation", "value", "error", "active", "active_error", "activation_value", "fill", "replicas", "hpa_replicas", "warnings", "current_replicas", "ready_replicas", "least_replicas", "most_replicas", "series", "aggregation", "summary")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_TYPE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_VALUE_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    HPA_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    READY_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEAST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MOST_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    metric_name: str
    metric_type: str
    threshold: float
    activation_threshold: float
    workload: str
    scope: str
    replica_aggregation: str
    value: float
    error: Error
    active: bool
    active_error: Error
    activation_value: float
    fill: str
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    hpa_replicas: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    current_replicas: int
    ready_replicas: int
    least_replicas: int
    most_replicas: int
    series: str
    aggregation: str
    summary: str
    def __init__(self, metadata: _Optional[_Mapping[str, str]] = ..., metric_name: _Optional[str] = ..., metric_type: _Optional[str] = ..., threshold: _Optional[float] = ..., activation_threshold: _Optional[float] = ..., workload: _Optional[str] = ..., scope: _Optional[str] = ..., replica_aggregation: _Optional[str] = ..., value: _Optional[float] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., active: bool = ..., active_error: _Optional[_Union[Error, _Mapping]] = ..., activation_value: _Optional[float] = ..., fill: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., hpa_replicas: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., current_replicas: _Optional[int] = ..., ready_replicas: _Optional[int] = ..., least_replicas: _Optional[int] = ..., most_replicas: _Optional[int] = ..., series: _Optional[str] = ..., aggregation: _Optional[str] = ..., summary: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("name", "ready", "was_ready", "value", "counted", "devices", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WAS_READY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    ready: bool
    was_ready: bool
    value: float
    counted: float
    devices: _containers.RepeatedCompositeFieldContainer[DeviceFigure]
    problem: str
    def __init__(self, name: _Optional[str] = ..., ready: bool = ..., was_ready: bool = ..., value: _Optional[float] = ..., counted: _Optional[float] = ..., devices: _Optional[_Iterable[_Union[DeviceFigure, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class DeviceFigure(_message.Message):
    __slots__ = ("device_id", "name", "node", "value", "age_seconds", "covered", "shared", "reason", "detail", "share")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    name: str
    node: str
    value: float
    age_seconds: float
    covered: bool
    shared: bool
    reason: str
    detail: str
    share: float
    def __init__(self, device_id: _Optional[str] = ..., name: _Optional[str] = ..., node: _Optional[str] = ..., value: _Optional[float] = ..., age_seconds: _Optional[float] = ..., covered: bool = ..., shared: bool = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class FleetRequest(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metrics: _Optional[_Iterable[str]] = ...) -> None: ...

class FleetResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "address", "state", "detail", "age_seconds", "devices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    state: str
    detail: str
    age_seconds: float
    devices: _containers.RepeatedCompositeFieldContainer[FleetDevice]
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., detail: _Optional[str] = ..., age_seconds: _Optional[float] = ..., devices: _Optional[_Iterable[_Union[FleetDevice, _Mapping]]] = ...) -> None: ...

class FleetDevice(_message.Message):
    __slots__ = ("id", "name", "vendor", "problem", "pods", "values", "reasons")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    vendor: str
    problem: str
    pods: _containers.RepeatedScalarFieldContainer[str]
    values: _containers.ScalarMap[str, float]
    reasons: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., vendor: _Optional[str] = ..., problem: _Optional[str] = ..., pods: _Optional[_Iterable[str]] = ..., values: _Optional[_Mapping[str, float]] = ..., reasons: _Optional[_Mapping[str, str]] = ...) -> None: ...
