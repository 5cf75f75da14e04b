"""Options of the server: flags, environment, a file, defaults, in this order of precedence.

Each option is declared once, as a field of a record: its reader, its default, its help. The flag
``--log-level`` is ``ACCELSCALE_LOG_LEVEL`` in the environment and ``log-level`` or ``log_level`` in
the TOML file that ``--config`` or ``ACCELSCALE_CONFIG`` names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import attrs
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.values import did_you_mean
from accelscale_server.addresses import ANY_IPV6, Address, parse_address
from accelscale_server.whereabouts import FORMS, Whereabouts, parse_agents

PREFIX = "ACCELSCALE_"
METRICS_PORT = 9464
"""Where agents and scalers serve Prometheus: the port of OpenTelemetry's exporter for it."""

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_C = TypeVar("_C", bound=attrs.AttrsInstance)


def _option(
    read: Callable[[str], Any], help: str, *, default: Any, shown: str | None = None
) -> Any:
    """A field filled from the option of its name; ``shown`` is its default in words."""
    metadata = {"read": read, "help": help, "shown": str(default) if shown is None else shown}
    return attrs.field(default=default, kw_only=True, metadata=metadata)


def _off_or_address(text: str) -> Address | None:
    return None if text.lower() == "off" else parse_address(text)


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"must be one of {', '.join(names)}{did_you_mean(text, names)}")
        return text.lower()

    return read


def _file(text: str) -> Path:
    if not text:
        raise ValueError("must be the path of a file")
    return Path(text)


class Off(Enum):
    """What stands for something that is switched off."""

    OFF = "off"


def _off_or_file(text: str) -> Path | Off:
    return Off.OFF if text == Off.OFF.value else _file(text)


def _name(text: str) -> str:
    if not text.strip() or any(character.isspace() for character in text):
        raise ValueError("must be a name without spaces")
    return text


def _between(least: float, most: float, unit: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"must be {unit} from {least:g} to {most:g}")
        return number

    return read


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("must be names separated by commas")
    return tuple(dict.fromkeys(names))


def _listen(port: int, what: str) -> Any:
    return _option(
        parse_address,
        f"HOST:PORT to answer {what} on. Port 0 takes a free one.",
        default=Address(ANY_IPV6, port),
        shown=f"[::]:{port}, or 0.0.0.0:{port} where IPv6 is off",
    )


def _metrics_listen(default: Address | None) -> Any:
    shown = "off" if default is None else str(default)
    return _option(
        _off_or_address, "HOST:PORT for Prometheus /metrics, or off.", default=default, shown=shown
    )


def _backend() -> Any:
    return _option(
        _names,
        "Backends to read; repeat the flag for several.",
        default=(),
        shown="all that can be opened, except host",
    )


def _interval() -> Any:
    read = _between(0.05, 60.0, "seconds")
    return _option(read, "Seconds between two readings.", default=1.0, shown="1")


def _max_streams(default: int, what: str) -> Any:
    return _option(_count(1, 100_000), f"Streams open at one time; {what}.", default=default)


def _own_first(kind: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """The order in which options are shown: what is particular to a command comes first."""
    return sorted(fields, key=lambda field: field.inherited)  # type: ignore[attr-defined] # no stub


@frozen(field_transformer=_own_first)
class ServerConfig:
    """The options that all servers have."""

    listen: Address = _listen(6000, "calls")
    metrics_listen: Address | None = _metrics_listen(None)
    log_format: str = _option(_one_of(LOG_FORMATS), "text or json, on stderr.", default="text")
    log_level: str = _option(_one_of(LOG_LEVELS), "debug, info, warning or error.", default="info")
    tls_cert: Path | None = _option(
        _file, "PEM file with the server's certificate chain.", default=None, shown="no TLS"
    )
    tls_key: Path | None = _option(
        _file, "PEM file with the private key, not encrypted.", default=None, shown="no TLS"
    )
    tls_client_ca: Path | None = _option(
        _file,
        "PEM file with the authorities whose client certificates are required.",
        default=None,
        shown="clients need no certificate",
    )
    grace: float = _option(
        _between(0.0, 300.0, "seconds"),
        "Seconds that calls in progress may take after SIGTERM.",
        default=10.0,
        shown="10",
    )
    max_streams: int = _max_streams(4096, "KEDA opens two for each external-push trigger")


@frozen(field_transformer=_own_first)
class ServeConfig(ServerConfig):
    """The options of ``accelscale serve``."""

    listen: Address = _listen(6000, "KEDA")
    metrics_listen: Address | None = _metrics_listen(None)
    backend: tuple[str, ...] = _backend()
    interval: float = _interval()


@frozen(field_transformer=_own_first)
class AgentConfig(ServerConfig):
    """The options of ``accelscale agent``."""

    listen: Address = _listen(6001, "scalers")
    metrics_listen: Address | None = _metrics_listen(Address(ANY_IPV6, METRICS_PORT))
    node_name: str | None = _option(
        _name,
        "The node's name in Kubernetes; in a pod it comes from the field spec.nodeName.",
        default=None,
        shown="the host's name",
    )
    pod_resources_socket: Path = _option(
        _file,
        "The kubelet's PodResources socket; mount its directory, not the socket itself.",
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    )
    pod_resources_interval: float = _option(
        _between(0.1, 300.0, "seconds"),
        "Seconds between two questions to the kubelet, whose rate limit all its clients share.",
        default=10.0,
        shown="10",
    )
    backend: tuple[str, ...] = _backend()
    interval: float = _interval()
    max_streams: int = _max_streams(64, "each replica of the scaler opens one")


@frozen(field_transformer=_own_first)
class ScalerConfig(ServerConfig):
    """The options of ``accelscale scaler``."""

    listen: Address = _listen(6000, "KEDA")
    metrics_listen: Address | None = _metrics_listen(Address(ANY_IPV6, METRICS_PORT))
    agents: Whereabouts | None = _option(
        parse_agents, f"Where the agents are: {FORMS}.", default=None, shown="required"
    )
    agents_ca: Path | None = _option(
        _file,
        "PEM file with the authorities that agents' certificates must come from.",
        default=None,
        shown="no TLS towards agents",
    )
    agents_cert: Path | None = _option(
        _file, "PEM file with our certificate for agents.", default=None, shown="none"
    )
    agents_key: Path | None = _option(
        _file, "PEM file with its private key.", default=None, shown="none"
    )
    agents_server_name: str | None = _option(
        _name,
        "The name in agents' certificates, which hold no addresses that come and go.",
        default=None,
        shown="the host of the address",
    )
    kubeconfig: Path | Off | None = _option(
        _off_or_file,
        "Kubeconfig file, or off: without Kubernetes no scope but node and cluster.",
        default=None,
        shown="the account of the pod",
    )
    namespace: tuple[str, ...] = _option(
        _names,
        "Serve and watch only this namespace; repeat the flag for several.",
        default=(),
        shown="all",
    )


def load(kind: type[_C], flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> _C:
    """The options of a command (``kind`` is `ServeConfig` or a record made like it).

    ``flags`` holds what was written on the command line, by the field's name and ``config``; None
    or an empty list means not written. In the environment an empty variable means not set.
    Variables with our prefix that name no option are left alone: Kubernetes makes such
    (``ACCELSCALE_PORT``) for a Service named accelscale.

    Raises:
        ConfigurationError: with every fault of all three sources.
    """
    faults: list[Fault] = []
    fields = {field.name: field for field in attrs.fields(kind)}
    written = _from_file(fields, flags, environ, faults)
    for name in fields:
        if value := environ.get(_variable(name)):
            written[name] = (_variable(name), value)
        if flags.get(name) not in (None, [], ()):
            written[name] = (_flag(name), flags[name])
    found = {}
    for name, (source, value) in written.items():
        text = _text(value)
        try:
            found[name] = fields[name].metadata["read"](text)
        except ValueError as error:
            faults.append(Fault(source, text, str(error)))
    faults.extend(_incomplete_tls(written))
    if faults:
        raise ConfigurationError(faults, subject="configuration")
    return kind(**found)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _text(value: Any) -> str:
    """One text for what a flag, a variable or TOML holds; several values are joined by commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def _from_file(
    fields: Mapping[str, Any],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    faults: list[Fault],
) -> dict[str, tuple[str, Any]]:
    """What the file sets: for each option where it is written, and the value."""
    path = flags.get("config") or environ.get(PREFIX + "CONFIG")
    if not path:
        return {}
    source = "--config" if flags.get("config") else PREFIX + "CONFIG"
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(Fault(source, str(path), f"cannot be read: {error.strerror or error}"))
        return {}
    except ValueError as error:  # what is not UTF-8, and what is not TOML
        faults.append(Fault(source, str(path), f"is no TOML file: {error}"))
        return {}
    written: dict[str, tuple[str, Any]] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in fields:
            known = [known.replace("_", "-") for known in fields]
            hint = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            # The value stays out of the message: what is unknown may be a secret.
            faults.append(Fault(f"{key} in {path}", None, f"is no known option{hint}"))
        elif name in written:
            faults.append(Fault(f"{key} in {path}", None, "is there twice"))
        else:
            written[name] = (f"{key} in {path}", value)
    return written


def _incomplete_tls(written: Mapping[str, Any]) -> list[Fault]:
    """A half of the TLS files without the other would mean plaintext where TLS was meant."""
    faults = []
    for together, needed in _TLS_NEEDS:
        given = [name for name in together if name in written]
        there = " and ".join(_flag(name) for name in given)
        lacking = [name for name in needed if given and name not in written]
        faults += [Fault(_flag(name), None, f"is required with {there}") for name in lacking]
    return faults


_TLS_NEEDS = (
    (("tls_cert", "tls_client_ca", "tls_key"), ("tls_cert", "tls_key")),
    (("agents_cert", "agents_key", "agents_server_name"), ("agents_ca",)),
    (("agents_cert", "agents_key"), ("agents_cert", "agents_key")),
)
"""Options of which any one needs all of some others."""
