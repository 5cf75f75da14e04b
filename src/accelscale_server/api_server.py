"""The connection to a Kubernetes API server: who we are, where it is, and its answers as bytes.

lightkube reads the kubeconfig or the account of the pod and signs requests: it reads the account's
token anew when the server refuses the one of before (401), for the kubelet replaces it every hour.
What it offers for watching is not used; `accelscale_server.watching` says why.
"""

from __future__ import annotations

import asyncio
import os
import socket as sockets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from accelscale.errors import ConfigurationError, Fault

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""Seconds until an answer that is no watch must be complete."""

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one event; etcd takes objects of 1.5 MiB."""

# A peer that is gone without a word is found out after half a minute without traffic.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class ApiError(Exception):
    """The API server did not give what was asked for.

    ``status`` is that of HTTP, or None where there was no whole answer. ``retry_after`` is the
    seconds that the server asked us to wait.
    """

    def __init__(self, text: str, status: int | None = None, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class SilenceError(ApiError):
    """Nothing came for so long that nobody may be there any more."""


class Status(msgspec.Struct):
    """What the server says instead of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0


class ApiServer:
    """Asks an API server. For one event loop; `close` it at the end.

    Without a kubeconfig the service account of the pod is used.

    Raises:
        ConfigurationError: the kubeconfig or the account cannot be used.
    """

    def __init__(
        self,
        kubeconfig: Path | None = None,
        *,
        account: str | Path = SERVICE_ACCOUNT,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._config = _configuration(kubeconfig, Path(account))
        self._answer_seconds = answer_seconds
        timeout = httpx2.Timeout(answer_seconds, connect=CONNECT_SECONDS)
        with _faults(kubeconfig):
            parameters = ConnectionParams(timeout=timeout).httpx_params(self._config)
        self._trust: ssl.SSLContext = parameters["verify"]
        # Each watch holds a connection of its own; there is one for each namespace that asks.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
        with _faults(kubeconfig):
            self._client = httpx2.AsyncClient(**parameters, limits=limits)

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._config.cluster.server

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """The body of a successful answer.

        Raises:
            ApiError: there is none.
        """
        with self._translated():
            async with asyncio.timeout(self._answer_seconds):
                response = await self._client.get(path, params=dict(parameters or {}))
            if response.status_code != httpx2.codes.OK:
                raise _refusal(response)
            return response.content

    @asynccontextmanager
    async def lines(
        self, path: str, parameters: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on, as they come.

        Raises:
            ApiError: it does not begin, or it breaks off.
            SilenceError: nothing came for ``silence`` seconds.
        """
        request = self._client.build_request(
            "GET",
            path,
            params=dict(parameters),
            headers={"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(self._answer_seconds, connect=CONNECT_SECONDS, read=silence),
        )
        with self._translated():
            async with asyncio.timeout(self._answer_seconds):
                response = await self._client.send(request, stream=True)
            try:
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                    raise _refusal(response)
                _keep_alive(response)
                async with aclosing(_lines(response)) as lines:
                    yield lines
            except httpx2.ReadTimeout as error:
                raise SilenceError(f"silent for {silence:g} s") from error
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Whatever the client raises, as an ApiError."""
        try:
            yield
        except TimeoutError as error:
            raise ApiError(f"no answer within {self._answer_seconds:g} s") from error
        except httpx2.TimeoutException as error:
            raise ApiError(f"timeout ({type(error).__name__})") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                self._trust_anew()
            raise ApiError(str(error) or type(error).__name__) from error
        except (ConfigError, OSError) as error:  # the token file, or the command that gives one
            raise ApiError(f"no credentials: {error}") from error

    def _trust_anew(self) -> None:
        """The authority that signs the server's certificate may have been replaced since."""
        authority = self._config.cluster.certificate_auth
        if authority is not None:
            with suppress(OSError):
                self._trust.load_verify_locations(self._config.abs_file(authority))


def _configuration(kubeconfig: Path | None, account: Path) -> SingleConfig:
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        problem = "is required outside of a pod, where no service account says who we are"
        raise ConfigurationError([Fault("--kubeconfig", None, problem)], subject="configuration")
    with _faults(kubeconfig):
        if kubeconfig is None:
            found = KubeConfig.from_service_account(account).get()
        else:
            found = KubeConfig.from_file(kubeconfig).get()
    assert found is not None  # lightkube gives None only where it was given a default of None
    return found


@contextmanager
def _faults(kubeconfig: Path | None) -> Iterator[None]:
    """Whatever is wrong with what the user wrote, as a ConfigurationError."""
    try:
        yield
        return
    except KeyError as error:
        problem = f"lacks {error}"
    except (AttributeError, TypeError):
        problem = "is no kubeconfig"
    except Exception as error:  # noqa: BLE001 - lightkube passes on what YAML, TLS and files raise
        problem = f"cannot be used: {' '.join(str(error).split())}"
    value = None if kubeconfig is None else str(kubeconfig)
    if kubeconfig is None:
        problem = f"is not given, and the service account {problem}"
    raise ConfigurationError([Fault("--kubeconfig", value, problem)], subject="configuration")


def _refusal(response: httpx2.Response) -> ApiError:
    text = response.text[:300].strip()
    with suppress(msgspec.DecodeError):
        text = msgspec.json.decode(response.content, type=Status).message or text
    after = response.headers.get("Retry-After", "")
    retry_after = float(after) if after.isascii() and after.isdigit() else 0.0
    return ApiError(text or response.reason_phrase, response.status_code, retry_after)


def _keep_alive(response: httpx2.Response) -> None:
    stream = response.extensions.get("network_stream")
    socket = stream.get_extra_info("socket") if stream is not None else None
    if socket is None:
        return
    with suppress(OSError):  # a connection that is closing takes no options
        socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(sockets, name):
                socket.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, name), value)


async def _lines(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Split at line feeds alone: JSON may hold what else `str.splitlines` takes for an end."""
    begun: list[bytes] = []
    length = 0
    async for chunk in response.aiter_bytes():
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > LONGEST_LINE:
            raise ApiError(f"an event of more than {LONGEST_LINE} bytes")
        if rest:
            yield b"".join(begun)
            for line in rest[:-1]:
                yield line
            begun, length = [rest[-1]], len(rest[-1])
