"""The server's commands, found by the command line through the entry point ``server``.

This module stays cheap to import: `accelscale --help` imports it, and it imports no grpc.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from accelscale.cli.options import AsJson, positive_seconds
from accelscale_server.config import AgentConfig, ServeConfig, load

_EXTRA_MODULES = frozenset(
    {"google", "grpc", "grpc_health", "grpc_reflection", "prometheus_client", "pythonjsonlogger"}
)

_OPTIONS_ELSEWHERE = (
    "Each option may also stand in the environment (--log-level as ACCELSCALE_LOG_LEVEL)"
    " or in the TOML file of --config (log-level)."
)


def register(app: typer.Typer) -> None:
    """Add the commands of this distribution."""
    for kind, server in ((ServeConfig, serve), (AgentConfig, agent)):
        app.command(epilog=_OPTIONS_ELSEWHERE)(_with_options_of(kind)(server))
    app.command()(demo)
    app.command()(poll)


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
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with the authorities to trust.")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with a client certificate.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file with its private key.")
    ] = None,
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
