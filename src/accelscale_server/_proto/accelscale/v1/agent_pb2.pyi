from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("series",)
    SERIES_FIELD_NUMBER: _ClassVar[int]
    series: _containers.RepeatedCompositeFieldContainer[Series]
    def __init__(self, series: _Optional[_Iterable[_Union[Series, _Mapping]]] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("id", "metric", "window_seconds", "statistic")
    ID_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STATISTIC_FIELD_NUMBER: _ClassVar[int]
    id: int
    metric: str
    window_seconds: float
    statistic: str
    def __init__(self, id: _Optional[int] = ..., metric: _Optional[str] = ..., window_seconds: _Optional[float] = ..., statistic: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("inventory", "values")
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    inventory: Inventory
    values: Values
    def __init__(self, inventory: _Optional[_Union[Inventory, _Mapping]] = ..., values: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("revision", "node", "instance", "interval_seconds", "intervals", "devices", "allocations", "allocations_problem", "problems", "unseen_vendors")
    class IntervalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_VENDORS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    node: str
    instance: str
    interval_seconds: float
    intervals: _containers.ScalarMap[str, float]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    allocations: _containers.RepeatedCompositeFieldContainer[Allocation]
    allocations_problem: str
    problems: _containers.ScalarMap[str, str]
    unseen_vendors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., node: _Optional[str] = ..., instance: _Optional[str] = ..., interval_seconds: _Optional[float] = ..., intervals: _Optional[_Mapping[str, float]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., allocations: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ..., allocations_problem: _Optional[str] = ..., problems: _Optional[_Mapping[str, str]] = ..., unseen_vendors: _Optional[_Iterable[str]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "name", "vendor", "backend", "parent", "pci_address", "problem", "problem_detail", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_DETAIL_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    vendor: str
    backend: str
    parent: str
    pci_address: str
    problem: str
    problem_detail: str
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., vendor: _Optional[str] = ..., backend: _Optional[str] = ..., parent: _Optional[str] = ..., pci_address: _Optional[str] = ..., problem: _Optional[str] = ..., problem_detail: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("namespace", "pod", "container", "resource", "device_id", "allocated_id", "claim")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str
    allocated_id: str
    claim: Claim
    def __init__(self, namespace: _Optional[str] = ..., pod: _Optional[str] = ..., container: _Optional[str] = ..., resource: _Optional[str] = ..., device_id: _Optional[str] = ..., allocated_id: _Optional[str] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("driver", "pool", "device")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    driver: str
    pool: str
    device: str
    def __init__(self, driver: _Optional[str] = ..., pool: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("inventory", "sent_at", "series")
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    inventory: int
    sent_at: float
    series: _containers.RepeatedCompositeFieldContainer[SeriesValues]
    def __init__(self, inventory: _Optional[int] = ..., sent_at: _Optional[float] = ..., series: _Optional[_Iterable[_Union[SeriesValues, _Mapping]]] = ...) -> None: ...

class SeriesValues(_message.Message):
    __slots__ = ("id", "device", "value", "sampled_at", "flags", "absent")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_AT_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    device: _containers.RepeatedScalarFieldContainer[int]
    value: _containers.RepeatedScalarFieldContainer[float]
    sampled_at: _containers.RepeatedScalarFieldContainer[float]
    flags: _containers.RepeatedScalarFieldContainer[int]
    absent: _containers.RepeatedCompositeFieldContainer[Absence]
    def __init__(self, id: _Optional[int] = ..., device: _Optional[_Iterable[int]] = ..., value: _Optional[_Iterable[float]] = ..., sampled_at: _Optional[_Iterable[float]] = ..., flags: _Optional[_Iterable[int]] = ..., absent: _Optional[_Iterable[_Union[Absence, _Mapping]]] = ...) -> None: ...

class Absence(_message.Message):
    __slots__ = ("device", "reason", "detail", "permanent", "sampled_at")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_AT_FIELD_NUMBER: _ClassVar[int]
    device: int
    reason: str
    detail: str
    permanent: bool
    sampled_at: float
    def __init__(self, device: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., permanent: bool = ..., sampled_at: _Optional[float] = ...) -> None: ...
