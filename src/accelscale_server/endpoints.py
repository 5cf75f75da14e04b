"""Where the pods behind a headless Service are, by its EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from attrs import frozen

from accelscale_server.addresses import Address
from accelscale_server.watching import Collection, Wire

SERVICE_LABEL = "kubernetes.io/service-name"
PORT_NAMES = ("grpc", "agent", "")
"""Names of the port that is meant, where a slice has several; else it is the first."""


@frozen
class Endpoint:
    """One address of a pod; ``owner`` tells which addresses are of one pod."""

    host: str
    port: int
    node: str | None
    owner: str
    family: str


class _Conditions(msgspec.Struct):
    ready: bool | None = None
    serving: bool | None = None


class _PodReference(msgspec.Struct):
    uid: str = ""


class _Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str]
    conditions: _Conditions | None = None
    node_name: str | None = None
    target_ref: _PodReference | None = None


class _Port(msgspec.Struct):
    name: str | None = None
    port: int | None = None


class EndpointSliceWire(Wire, rename="camel"):
    """An EndpointSlice as it arrives."""

    address_type: str = ""
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


def endpoints_of(namespace: str, service: str) -> Collection:
    """The EndpointSlices of a Service."""
    labels = f"{SERVICE_LABEL}={service}"
    return Collection("discovery.k8s.io", "v1", "endpointslices", namespace, labels=labels)


def endpoint_slice_record(wire: EndpointSliceWire) -> tuple[Endpoint, ...]:
    """The endpoints of a slice that answer, or that a publishing Service lists all the same."""
    return tuple(_endpoints(wire))


def _endpoints(wire: EndpointSliceWire) -> Iterator[Endpoint]:
    port = _port(wire.ports or ())
    if port is None or wire.address_type not in ("IPv4", "IPv6"):
        return
    for endpoint in wire.endpoints or ():
        conditions = endpoint.conditions or _Conditions()
        if not endpoint.addresses or (conditions.ready is False and not conditions.serving):
            continue
        # All addresses of one endpoint are alike, by the API's own word: the first is enough.
        host = endpoint.addresses[0]
        uid = endpoint.target_ref.uid if endpoint.target_ref is not None else ""
        yield Endpoint(host, port, endpoint.node_name, uid or host, wire.address_type)


def _port(ports: Iterable[_Port]) -> int | None:
    by_name = {port.name or "": port.port for port in reversed(list(ports))}
    for name in PORT_NAMES:
        if name in by_name:
            return by_name[name]
    return next(reversed(by_name.values()), None)


def addresses(slices: Iterable[tuple[Endpoint, ...]]) -> dict[str, str | None]:
    """Each ``HOST:PORT`` with its node; one for a pod that has addresses of both families."""
    found: dict[str, Endpoint] = {}
    for endpoint in sorted((e for each in slices for e in each), key=lambda e: (e.family, e.host)):
        found.setdefault(endpoint.owner, endpoint)
    return {str(Address(each.host, each.port)): each.node for each in found.values()}
