from __future__ import annotations

import socket

import pytest

from accelscale_server.addresses import Address, BindError, bindable, has_ipv6, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:6000", "127.0.0.1", 6000, "127.0.0.1:6000"),
        ("[::]:6000", "::", 6000, "[::]:6000"),
        ("[fe80::1]:0", "fe80::1", 0, "[fe80::1]:0"),
        (":6000", "::", 6000, "[::]:6000"),
        ("localhost:6000", "localhost", 6000, "localhost:6000"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    address = parse_address(text)
    assert (address.host, address.port, str(address)) == (host, port, shown)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "6000", "host", "host:", "host:-1", "host:http", "host:70000", "::1:6000", "[::1]",
     "[host]:6000", "http://host:6000", "a b:6000", "[::1:6000", "host:٣"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "reachable"), [("::", "::1"), ("0.0.0.0", "127.0.0.1"), ("10.0.0.1", "10.0.0.1")]
)
def test_where_a_client_on_this_machine_finds_it(host: str, reachable: str) -> None:
    assert Address(host, 6000).reachable == Address(reachable, 6000)


def test_a_free_port_can_be_bound_and_stays_free() -> None:
    address = Address("127.0.0.1", 0)
    assert bindable(address) == address == bindable(address)


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BindError, match=rf"cannot listen on 127.0.0.1:{port}: address in use"):
            bindable(Address("127.0.0.1", port))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_port_taken_on_ipv4_alone_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        with pytest.raises(BindError, match="address in use"):
            bindable(Address("::", taken.getsockname()[1]))


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_named(host: str) -> None:
    with pytest.raises(BindError, match=r"cannot listen on .*no interface of this machine"):
        bindable(Address(host, 6000))


@pytest.mark.parametrize("host", ["h" * 70, "h..h"])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    with pytest.raises(BindError, match=rf"cannot listen on {host}:6000"):
        bindable(Address(host, 6000))
