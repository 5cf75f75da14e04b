from __future__ import annotations

import msgspec

from accelscale_server.endpoints import (
    Endpoint,
    EndpointSliceWire,
    addresses,
    endpoint_slice_record,
)
from kubernetes.objects import Object, endpoint, endpoint_slice


def record(value: Object) -> tuple[Endpoint, ...]:
    wire = msgspec.json.decode(msgspec.json.encode(value), type=EndpointSliceWire)
    return endpoint_slice_record(wire)


def a_slice(*endpoints: Object, family: str = "IPv4", port: int = 6001) -> Object:
    return endpoint_slice("s", "accelscale", "agents", *endpoints, family=family, port=port)


def test_each_pod_with_its_node() -> None:
    one = record(a_slice(endpoint("10.0.0.1", "node-a"), endpoint("10.0.0.2", "node-b")))
    other = record(a_slice(endpoint("10.0.0.3", "node-c")))
    assert addresses([one, other]) == {
        "10.0.0.1:6001": "node-a",
        "10.0.0.2:6001": "node-b",
        "10.0.0.3:6001": "node-c",
    }


def test_a_pod_with_addresses_of_both_families_is_one() -> None:
    four = record(a_slice(endpoint("10.0.0.1", "node-a", uid="pod-1")))
    six = record(
        a_slice(
            endpoint("fd00::1", "node-a", uid="pod-1"),
            endpoint("fd00::2", "node-b", uid="pod-2"),
            family="IPv6",
        )
    )
    assert addresses([six, four]) == {"10.0.0.1:6001": "node-a", "[fd00::2]:6001": "node-b"}


def test_what_does_not_answer_is_left_out() -> None:
    found = record(
        a_slice(
            endpoint("10.0.0.1", "a", ready=True),
            endpoint("10.0.0.2", "b", ready=False, serving=False),
            endpoint("10.0.0.3", "c", ready=False, serving=True, terminating=True),
            {"addresses": []},
            {"addresses": ["10.0.0.4"], "conditions": {}},
        )
    )
    assert [each.host for each in found] == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]


def test_the_port_by_its_name_or_the_first() -> None:
    both = a_slice(endpoint("10.0.0.1", "a"))
    both["ports"] = [{"name": "metrics", "port": 9464}, {"name": "grpc", "port": 6001}]
    assert addresses([record(both)]) == {"10.0.0.1:6001": "a"}
    both["ports"] = [{"name": "agents", "port": 7000}, {"name": "metrics", "port": 9464}]
    assert addresses([record(both)]) == {"10.0.0.1:7000": "a"}
    both["ports"] = [{"port": 8000}]
    assert addresses([record(both)]) == {"10.0.0.1:8000": "a"}
    both["ports"] = []
    assert record(both) == ()


def test_names_are_no_addresses_of_pods() -> None:
    assert record(a_slice(endpoint("agents.example.com", "a"), family="FQDN")) == ()
    assert record({"metadata": {"name": "s"}, "endpoints": None, "ports": None}) == ()
