"""The server's commands, found by the command line through the entry point ``server``.

This module stays cheap to import: `accelscale --help` imports it, and it imports no grpc.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from accelscale.cli import top
from accelscale.cli.options import AsJson, positive_seconds
from accelscale.cli.top import Watched
from accelscale.lab.sources import SOURCES, Source, Wanted
from accelscale_server.config import AgentConfig, ScalerConfig, ServeConfig, load

_EXTRA_MODULES = frozenset(
    {
        "google",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "httpx2",
        "lightkube",
        "msgspec",
        "prometheus_client",
        "pythonjsonlogger",
    }
)

Ca = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM file with the authorities to trust.")
]
Cert = Annotated[
    Path | None, typer.Option(metavar="FILE", help="PEM file with a client certificate.")
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file with its private key.")]

_OPTIONS_ELSEWHERE = (
    "Each option may also stand in the environment (--log-level as ACCELSCALE_LOG_LEVEL)"
    " or in the TOML file of --config (log-level)."
)


def register(app: typer.Typer) -> None:
    """Add the commands of this distribution."""
    for kind, server in ((ServeConfig, serve), (AgentConfig, agent), (ScalerConfig, scaler)):
        app.command(epilog=_OPTIONS_ELSEWHERE)(_with_options_of(kind)(server))
    app.command()(demo)
    app.command()(poll)
    app.command()(explain)
    top.watching_scaler = _watching_scaler
    SOURCES.update(agent=_agents_to_record, scaler=_scaler_to_record)


def serve(**flags: Any) -> None:
    """Answer KEDA for the devices of this machine."""
    with _server_extra("serve"):
        from accelscale_server.serve import serve as answer

        raise typer.Exit(answer(load(ServeConfig, flags)))


def agent(**flags: Any) -> None:
    """Tell scalers about the devices of this node."""
    with _server_extra("agent"):
        from accelscale_server.agent import agent as tell

        raise typer.Exit(tell(load(AgentConfig, flags)))


def scaler(**flags: Any) -> None:
    """Answer KEDA for the workloads of a cluster."""
    _quieten_grpc()
    with _server_extra("scaler"):
        from accelscale_server.scaler import scaler as answer

        raise typer.Exit(answer(load(ScalerConfig, flags)))


def demo(
    seconds: Annotated[
        float,
        typer.Option(parser=positive_seconds, metavar="SECONDS", help="How long to poll."),
    ] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Serve, poll as KEDA does, and watch the number."""
    _quieten_grpc()
    with _server_extra("demo"):
        from accelscale_server.demo import run

        raise typer.Exit(run(seconds, as_json=as_json))


def poll(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The external scaler.")],
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", "-m", metavar="KEY=VALUE", help="A key of the trigger; repeatable."
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the ScaledObject.")] = "poll",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Its namespace.")] = "default",
    metric_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="AverageValue or Value, as KEDA's trigger says. [default: AverageValue]",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(metavar="N", min=0, help="Replicas that the HPA sees.")
    ] = 1,
    ready: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="How many of them are Ready.", show_default="all"),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Follow StreamIsActive, as for external-push.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(parser=positive_seconds, metavar="SECONDS", help="End --push after so long."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End --push after so many events.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(parser=positive_seconds, metavar="SECONDS", help="Most time for all calls."),
    ] = 3.0,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Ask a scaler what KEDA asks: spec, value, active."""
    _quieten_grpc()
    with _server_extra("poll"):
        import asyncio

        from accelscale_server import client as keda
        from accelscale_server import poll as polling

        request = keda.Request.of(name, namespace, metadata or [], metric_type)
        credentials = polling.credentials(ca, cert, key)
        hpa = keda.HorizontalPodAutoscaler(request.metric_type, replicas, ready)
        target = polling.target(address)

        async def run() -> int:
            client = keda.ScalerClient(target, credentials, timeout)
            if push:
                return await polling.follow(client, request, seconds, count, as_json=as_json)
            return await polling.ask(client, request, hpa, as_json=as_json)

        raise typer.Exit(asyncio.run(run()))


def explain(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The scaler.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the ScaledObject.")],
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Its namespace.")] = "default",
    timeout: Annotated[
        float,
        typer.Option(parser=positive_seconds, metavar="SECONDS", help="Most time for the answer."),
    ] = 5.0,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Say why a ScaledObject's number is what it is."""
    _quieten_grpc()
    with _server_extra("explain"):
        from accelscale_server import explain_command as explaining
        from accelscale_server import poll as polling

        credentials = polling.credentials(ca, cert, key)
        with explaining.open_channel(polling.target(address), credentials) as channel:
            answer = explaining.explain(channel, namespace, name, timeout)
        explaining.show(answer, f"{namespace}/{name}", as_json=as_json)


@contextmanager
def _watching_scaler(address: str) -> Iterator[Watched]:
    """The fleet of a scaler, for ``top``."""
    _quieten_grpc()
    with _server_extra("top --scaler"):
        from accelscale_server import poll as polling
        from accelscale_server.fleet_view import watching_fleet

        with watching_fleet(polling.target(address)) as view:
            yield view


@contextmanager
def _agents_to_record(addresses: str, wanted: Wanted, stop: threading.Event) -> Iterator[Source]:
    """What agents read, for ``record``."""
    _quieten_grpc()
    with _server_extra("record --from"):
        from accelscale_server import recording_sources

        with recording_sources.agents(addresses, wanted, stop) as source:
            yield source


@contextmanager
def _scaler_to_record(address: str, wanted: Wanted, stop: threading.Event) -> Iterator[Source]:
    """The fleet of a scaler, for ``record``."""
    _quieten_grpc()
    with _server_extra("record --from"):
        from accelscale_server import recording_sources

        with recording_sources.scaler(address, wanted, stop) as source:
            yield source


@contextmanager
def _server_extra(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA_MODULES:
            raise
        typer.echo(
            f"accelscale: `{command}` needs the extra `server`:"
            f" python -m pip install 'accelscale[server]' (no module {error.name})",
            err=True,
        )
        raise typer.Exit(1) from None


def _quieten_grpc() -> None:
    """Keep gRPC's C code from writing to standard error; what it says is in the statuses too.

    It looks at the variable once, when grpc is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _with_options_of(
    kind: type[attrs.AttrsInstance],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function that takes ``**flags`` one option for each field of the record.

    Every option is text here; the record's own readers parse it, as they do for the environment
    and for the file.
    """
    parameters = [_parameter("config", str | None, "TOML file with the same options.", "none")]
    for field in attrs.fields(kind):
        many = isinstance(field.default, tuple)
        parameters.append(
            _parameter(
                field.name,
                list[str] | None if many else str | None,
                field.metadata["help"],
                field.metadata["shown"],
            )
        )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {each.name: each.annotation for each in parameters}
        return function

    return decorate


def _parameter(name: str, kind: Any, help: str, shown: str) -> inspect.Parameter:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar=name.rpartition("_")[2].upper(),
        help=f"{help} [default: {shown}]",
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )
