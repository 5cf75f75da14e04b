"""HOST:PORT as people write it, and the address that a server can really bind."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from attrs import evolve, frozen

ANY_IPV6 = "::"
ANY_IPV4 = "0.0.0.0"  # noqa: S104 - every interface is what a server in a pod listens on


class BindError(Exception):
    """An address cannot be listened on; the message is one line with the way out."""


@frozen
class Address:
    """A host name or IP address without brackets, and a port; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def reachable(self) -> Address:
        """Where a client on this machine finds a server that is bound here."""
        return evolve(self, host={ANY_IPV6: "::1", ANY_IPV4: "127.0.0.1"}.get(self.host, self.host))


def parse_address(text: str) -> Address:
    """``HOST:PORT``; IPv6 in brackets, an empty host for every interface.

    Raises:
        ValueError: with what is allowed.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port from 0 to 65535, such as [::]:6000")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("must have an IPv6 address inside the brackets") from None
    elif ":" in host:
        raise ValueError(f"must have an IPv6 address in brackets: [{host}]:{port}")
    elif any(character.isspace() or character == "/" for character in host):
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:6000")
    return Address(host or ANY_IPV6, int(port))


def bindable(address: Address) -> Address:
    """The address that can be bound for ``address``, tried with a socket that is closed again.

    Every interface means IPv4 alone where the machine has no IPv6. gRPC says of a failed bind only
    that it failed; asking the system first tells a taken port from a host that is not ours.

    Raises:
        BindError: none can be, and why.
    """
    if address.host == ANY_IPV6 and not has_ipv6():
        address = evolve(address, host=ANY_IPV4)
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise BindError(f"cannot listen on {address}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise BindError(f"cannot listen on {address}: no host can have that name") from error
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # As gRPC binds: one socket for both families, so a port taken on either is found.
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                trial.bind(target)
                trial.listen(1)
            except OSError as error:
                raise BindError(refusal(address, error)) from error
    return address


def has_ipv6() -> bool:
    """Whether this machine can bind the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


def refusal(address: Address, error: OSError) -> str:
    """One line for an address that the system does not let us listen on."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hints = {
        errno.EADDRINUSE: "address in use: stop the other process or choose another port",
        errno.EADDRNOTAVAIL: "no interface of this machine has that address",
        errno.EACCES: "permission denied: ports below 1024 need a privilege",
    }
    return f"cannot listen on {address}: {hints.get(error.errno or 0, reason)}"
