"""Where agents are, as users say it: a list, a name for DNS, or the endpoints of a Service."""

from __future__ import annotations

from attrs import frozen

from accelscale_server.addresses import ANY_IPV6, Address, parse_address

FORMS = "HOST:PORT,..., dns:NAME:PORT or kubernetes:NAMESPACE/SERVICE"


@frozen
class Listed:
    """These addresses, for ever."""

    addresses: tuple[str, ...]


@frozen
class Named:
    """Every address that DNS has for a name, such as that of a headless Service."""

    host: str
    port: int


@frozen
class Endpoints:
    """The endpoints of a Service, from its EndpointSlices."""

    namespace: str
    service: str


Whereabouts = Listed | Named | Endpoints


def parse_agents(text: str) -> Whereabouts:
    """One of the three forms.

    Raises:
        ValueError: with what is allowed.
    """
    try:
        kind, _, rest = text.partition(":")
        if kind == "dns":
            address = parse_address(rest)
            _text(address)
            return Named(address.host, address.port)
        if kind == "kubernetes":
            return _endpoints(rest)
        addresses = [parse_address(part.strip()) for part in text.split(",")]
        return Listed(tuple(dict.fromkeys(_text(address) for address in addresses)))
    except ValueError as error:
        raise ValueError(f"must be {FORMS}: {error}") from None


def _endpoints(text: str) -> Endpoints:
    namespace, _, service = text.partition("/")
    if not namespace or not service or "/" in service:
        raise ValueError("must be kubernetes:NAMESPACE/SERVICE")
    return Endpoints(namespace, service)


def _text(address: Address) -> str:
    if address.port == 0 or address.host == ANY_IPV6:
        raise ValueError("an agent has a host and a port above 0")
    return str(address)
