"""``accelscale poll``: what a scaler answers KEDA, and what an HPA would make of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import grpc
import typer

from accelscale.cli.options import print_json
from accelscale_server.addresses import parse_address
from accelscale_server.client import CallError, HorizontalPodAutoscaler, Request, ScalerClient
from accelscale_server.client_tls import channel_credentials


async def ask(
    client: ScalerClient, request: Request, hpa: HorizontalPodAutoscaler, *, as_json: bool
) -> int:
    """Poll once and print the outcome."""
    async with client:
        try:
            answers = await client.poll(request)
        except CallError as error:
            return _complain(error, as_json=as_json)
    if as_json:
        print_json(answers.record(), indent=None)
        return 0
    wanted = []
    for spec, value in zip(answers.specs, answers.values, strict=True):
        wanted.append(hpa.desired(value.number, spec.number))
        typer.echo(f"metric    {spec.name}")
        typer.echo(f"target    {decimal(spec.number)} ({request.metric_type})")
        typer.echo(f"value     {decimal(value.number)}")
    typer.echo(f"active    {'yes' if answers.active else 'no'}")
    seen = f"{hpa.replicas} replica{'s' * (hpa.replicas != 1)}"
    seen += f", {hpa.ready} Ready" if hpa.ready is not None else ""
    typer.echo(f"replicas  {max(wanted)} (an HPA that sees {seen})")
    return 0


async def follow(
    client: ScalerClient,
    request: Request,
    seconds: float | None,
    count: int | None,
    *,
    as_json: bool,
) -> int:
    """Print every event of StreamIsActive until its end, the time or the number is reached."""
    started = time.monotonic()
    number = 0
    try:
        async with client, asyncio.timeout(seconds), aclosing(client.events(request)) as events:
            async for active in events:
                passed = time.monotonic() - started
                if as_json:
                    print_json({"active": active, "seconds": round(passed, 3)}, indent=None)
                else:
                    typer.echo(f"{passed:8.3f} s  {'active' if active else 'not active'}")
                number += 1
                if number == count:
                    return 0
    except TimeoutError:
        return 0
    except CallError as error:
        return _complain(error, as_json=as_json)
    typer.echo("the server ended the stream", err=True)
    return 0


def _complain(error: CallError, *, as_json: bool) -> int:
    if not as_json:
        raise error
    print_json(error.record(), indent=None)
    return 1


def target(address: str) -> str:
    """The gRPC target of an address: ``HOST:PORT``, or a target with a scheme as it is."""
    if "://" not in address and not address.startswith(("unix:", "dns:")):
        try:
            parse_address(address)
        except ValueError as error:
            raise typer.BadParameter(f"{address!r} {error}", param_hint="HOST:PORT") from None
    return f"localhost{address}" if address.startswith(":") else address


def credentials(
    ca: Path | None, cert: Path | None, key: Path | None
) -> grpc.ChannelCredentials | None:
    """TLS as KEDA turns it on: by a CA, or by a client certificate; None without either.

    Raises:
        ConfigurationError: a file cannot be read, or holds no PEM.
    """
    if (cert is None) != (key is None):
        raise typer.BadParameter("each needs the other", param_hint="--cert and --key")
    if ca is None and cert is None:
        return None
    return channel_credentials(ca, cert, key)


def decimal(number: float) -> str:
    """With at most three decimals, which is what KEDA keeps."""
    text = f"{number:.3f}"
    return text.rstrip("0").rstrip(".")
