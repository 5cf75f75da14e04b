from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from accelscale.errors import ConfigurationError
from accelscale_server.api_server import ApiError, ApiServer, SilenceError
from kubernetes.api_server import ApiServerStandIn
from kubernetes.semantics import Reply
from server.certificates import Issued, authority, signed

PODS = "api/v1/namespaces/shop/pods"
Connect = Callable[..., Awaitable[ApiServer]]


def server_context(by: Issued, folder: Path, *, clients: bool = False) -> ssl.SSLContext:
    """TLS for a server whose certificate this authority has signed."""
    folder.mkdir(exist_ok=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed("api", by).write(folder))
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=by.cert_pem.decode())
    return context


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def connect(kubeconfig: Path | None = None, **options: Any) -> ApiServer:
            api = ApiServer(kubeconfig, **options)
            stack.push_async_callback(api.close)
            return api

        yield connect


@pytest.fixture
def serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[ssl.SSLContext], ApiServerStandIn]]:
    """Starts API servers with TLS."""
    started: list[ApiServerStandIn] = []

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def start(context: ssl.SSLContext) -> ApiServerStandIn:
        started.append(ApiServerStandIn(tmp_path, tls=context))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.stop()


async def listed(api: ApiServer) -> bool:
    return json.loads(await api.get(PODS))["kind"] == "PodList"


async def read(api: ApiServer, parameters: dict[str, str], silence: float = 5.0) -> list[bytes]:
    """All lines of an answer that goes on."""
    async with api.lines(PODS, parameters, silence) as lines:
        return [line async for line in lines]


async def test_a_kubeconfig_with_a_token_file(
    api_server: ApiServerStandIn, connect: Connect
) -> None:
    api = await connect(api_server.kubeconfig())
    assert api.address == f"http://127.0.0.1:{api_server.port}"
    assert await listed(api)


async def test_the_account_of_a_pod(
    tmp_path: Path,
    serving: Callable[[ssl.SSLContext], ApiServerStandIn],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signer = authority("cluster")
    server = serving(server_context(signer, tmp_path / "server"))
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("first")
    (account / "namespace").write_text("accelscale")
    (account / "ca.crt").write_bytes(signer.cert_pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    api = await connect(account=account)
    assert await listed(api)
    # The kubelet replaces the token, and one day the authority, under the running scaler.
    server.tokens = {"second"}
    with pytest.raises(ApiError) as refused:
        await api.get(PODS)
    assert refused.value.status == 401
    (account / "token").write_text("second")
    assert await listed(api)


async def test_an_authority_that_was_replaced_is_read_anew(
    tmp_path: Path, serving: Callable[[ssl.SSLContext], ApiServerStandIn], connect: Connect
) -> None:
    old, new = authority("old"), authority("new")
    server = serving(server_context(new, tmp_path / "server"))
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(old.cert_pem)
    api = await connect(server.kubeconfig(**{"certificate-authority": str(bundle)}))
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        await api.get(PODS)
    bundle.write_bytes(new.cert_pem)
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        await api.get(PODS)  # which is when the bundle is read again
    assert await listed(api)


async def test_a_server_that_cannot_prove_itself_is_not_talked_to(
    tmp_path: Path, serving: Callable[[ssl.SSLContext], ApiServerStandIn], connect: Connect
) -> None:
    server = serving(server_context(authority("other"), tmp_path / "server"))
    data = base64.b64encode(authority("ours").cert_pem).decode()
    api = await connect(server.kubeconfig(**{"certificate-authority-data": data}))
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        await api.get(PODS)
    assert server.requests == []


async def test_a_client_certificate(
    tmp_path: Path, serving: Callable[[ssl.SSLContext], ApiServerStandIn], connect: Connect
) -> None:
    signer = authority("cluster")
    server = serving(server_context(signer, tmp_path / "server", clients=True))
    server.tokens = {""}
    data = base64.b64encode(signer.cert_pem).decode()
    path = server.kubeconfig(**{"certificate-authority-data": data})
    config = json.loads(path.read_text())
    client = signed("scaler", signer)
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(client.cert_pem).decode(),
        "client-key-data": base64.b64encode(client.key_pem).decode(),
    }
    path.write_text(json.dumps(config))
    assert await listed(await connect(path))


async def test_a_command_that_gives_the_token(
    api_server: ApiServerStandIn, connect: Connect, tmp_path: Path
) -> None:
    path = api_server.kubeconfig()
    config = json.loads(path.read_text())
    script = tmp_path / "credentials.py"
    script.write_text('print(\'{"status": {"token": "first"}}\')')
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": sys.executable,
            "args": [str(script)],
        }
    }
    path.write_text(json.dumps(config))
    assert await listed(await connect(path))
    script.write_text("raise SystemExit('no')")
    with pytest.raises(ApiError, match="no credentials"):
        await (await connect(path)).get(PODS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be used: Configuration file .* not found"),
        ("{", "cannot be used: while parsing"),
        ("[]", "is no kubeconfig"),
        ("contexts: 5", "lacks 'clusters'"),
        ("", "is no kubeconfig"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"--kubeconfig='{path}': {problem}"):
        ApiServer(path)


def test_certificates_that_are_none_are_named(api_server: ApiServerStandIn) -> None:
    path = api_server.kubeconfig(**{"certificate-authority": "/nowhere/ca.crt"})
    with pytest.raises(ConfigurationError, match=r"--kubeconfig=.* cannot be used: \[Errno 2\]"):
        ApiServer(path)


def test_outside_of_a_pod_a_kubeconfig_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="--kubeconfig: is required outside of a pod"):
        ApiServer()


def test_a_pod_without_an_account_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match="is not given, and the service account cannot"):
        ApiServer(account=tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("n")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(ConfigurationError, match="service account lacks 'KUBERNETES_SERVICE_PORT'"):
        ApiServer(account=tmp_path)


@pytest.mark.parametrize(
    ("reply", "status", "text", "retry_after"),
    [
        (Reply(403, "pods is forbidden"), 403, "pods is forbidden", 0.0),
        (Reply(429, "slowly", {"Retry-After": "7"}), 429, "slowly", 7.0),
        (Reply(503, "", {"Retry-After": "soon"}, b"<html>gone</html>"), 503, "<html>gone", 0.0),
        (Reply(500, "", {}, b'{"message": 5}'), 500, "message", 0.0),
        (Reply(302, "", {"Location": "http://127.0.0.1:1/"}, b""), 302, "", 0.0),
        (Reply(201, "", {}, b"made"), 201, "made", 0.0),
    ],
)
async def test_whatever_is_no_answer_is_an_error_that_says_what_it_was(
    api_server: ApiServerStandIn,
    connect: Connect,
    reply: Reply,
    status: int,
    text: str,
    retry_after: float,
) -> None:
    api_server.instead = lambda asked: reply
    api = await connect(api_server.kubeconfig())
    with pytest.raises(ApiError) as caught:
        await api.get(PODS)
    assert (caught.value.status, caught.value.retry_after) == (status, retry_after)
    assert text in str(caught.value)
    with pytest.raises(ApiError) as caught:
        await read(api, {"watch": "true"})
    assert caught.value.status == status


async def test_a_server_that_is_away_or_hangs_is_an_error_in_bounded_time(
    api_server: ApiServerStandIn, connect: Connect
) -> None:
    api = await connect(api_server.kubeconfig(), answer_seconds=0.2)
    api_server.hanging = True
    with pytest.raises(ApiError, match=r"no answer within 0.2 s"):
        await api.get(PODS)
    with pytest.raises(ApiError, match=r"no answer within 0.2 s"):
        await read(api, {"watch": "true"})
    api_server.hanging = False
    api_server.go_away()
    with pytest.raises(ApiError):
        await api.get(PODS)


async def test_silence_is_told_from_an_end(api_server: ApiServerStandIn, connect: Connect) -> None:
    api = await connect(api_server.kubeconfig())
    watch = {"watch": "true", "resourceVersion": "1000"}
    with pytest.raises(SilenceError, match=r"silent for 0.1 s"):
        await read(api, watch, silence=0.1)
    assert await read(api, {**watch, "timeoutSeconds": "0.1"}) == []


async def test_an_event_without_end_is_not_collected(
    api_server: ApiServerStandIn, connect: Connect
) -> None:
    api_server.instead = lambda asked: Reply(200, body=b"x" * (17 * 2**20))
    api = await connect(api_server.kubeconfig())
    with pytest.raises(ApiError, match="an event of more than 16777216 bytes"):
        await read(api, {"watch": "true"})


async def test_lines_are_whole_however_they_are_cut(
    api_server: ApiServerStandIn, connect: Connect
) -> None:
    body = b"".join(b"%d:%s\n" % (n, os.urandom(n * 997).hex().encode()) for n in range(60))
    api_server.instead = lambda asked: Reply(200, body=body)
    api = await connect(api_server.kubeconfig())
    lines = await read(api, {"watch": "true"})
    assert b"".join(line + b"\n" for line in lines) == body


async def test_proxy_variables_apply_as_they_do_for_kubectl(
    api_server: ApiServerStandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await listed(await connect(api_server.kubeconfig()))
    monkeypatch.delenv("NO_PROXY")
    with pytest.raises(ApiError):
        await listed(await connect(api_server.kubeconfig()))


async def test_a_server_below_a_path(api_server: ApiServerStandIn, connect: Connect) -> None:
    path = api_server.kubeconfig(server=f"http://127.0.0.1:{api_server.port}/k8s/clusters/c-1")
    api_server.instead = lambda asked: Reply(200, body=asked.path.encode())
    assert await (await connect(path)).get(PODS) == b"/k8s/clusters/c-1/" + PODS.encode()
