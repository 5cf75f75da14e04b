"""TLS and mutual TLS with real handshakes, and files that change while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from accelscale.errors import ConfigurationError
from accelscale.testing import FakeBackend
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub
from accelscale_server.tls import Certificates
from server.certificates import Issued, authority, signed

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def ours() -> Issued:
    return authority("ours")


@pytest.fixture(scope="module")
def theirs() -> Issued:
    return authority("theirs")


Ask = Callable[..., Awaitable[tuple[str, str]]]


@pytest.fixture
async def ask(start) -> Ask:
    """Asks a server for a spec, by given credentials; gives OK or the status that came instead."""
    servers = {}

    async def ask(
        credentials: grpc.ChannelCredentials | None, **files: Path | None
    ) -> tuple[str, str]:
        key = tuple(files.values())
        if key not in servers:
            fake = FakeBackend({"a": {"utilization_percent": 60.0}})
            servers[key] = await start(fake, **files)
        server = servers[key]
        own = [("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            channel = grpc.aio.insecure_channel(server.address, options=own)
        else:
            channel = grpc.aio.secure_channel(server.address, credentials, options=own)
        async with channel:
            call = ExternalScalerStub(channel).GetMetricSpec(server.ref(), timeout=5)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details()
            return "OK", ""

    return ask


def trusting(authority: Issued, client: Issued | None = None) -> grpc.ChannelCredentials:
    if client is None:
        return grpc.ssl_channel_credentials(authority.cert_pem)
    return grpc.ssl_channel_credentials(authority.cert_pem, client.key_pem, client.cert_pem)


async def test_tls(ask: Ask, ours: Issued, theirs: Issued, tmp_path: Path) -> None:
    cert, key = signed("server", ours).write(tmp_path)
    files = {"tls_cert": cert, "tls_key": key}
    assert (await ask(trusting(ours), **files))[0] == "OK"
    assert (await ask(trusting(theirs), **files))[0] == "UNAVAILABLE"
    assert (await ask(None, **files))[0] == "UNAVAILABLE"  # never plaintext beside TLS


async def test_mutual_tls(ask: Ask, ours: Issued, theirs: Issued, tmp_path: Path) -> None:
    cert, key = signed("server", ours).write(tmp_path)
    client_ca = tmp_path / "ca.crt"
    client_ca.write_bytes(ours.cert_pem)
    files = {"tls_cert": cert, "tls_key": key, "tls_client_ca": client_ca}
    assert (await ask(trusting(ours, signed("client", ours)), **files))[0] == "OK"
    assert (await ask(trusting(ours), **files))[0] == "UNAVAILABLE"
    assert (await ask(trusting(ours, signed("client", theirs)), **files))[0] == "UNAVAILABLE"
    assert (await ask(trusting(theirs, signed("client", ours)), **files))[0] == "UNAVAILABLE"
    assert (await ask(None, **files))[0] == "UNAVAILABLE"


async def shown_by(address: str) -> x509.Certificate:
    """The certificate that a server shows."""
    host, _, port = address.rpartition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=5)
    return x509.load_pem_x509_certificate(pem.encode())


async def test_a_renewed_certificate_is_shown_without_a_restart(
    start, ours: Issued, tmp_path: Path
) -> None:
    old, new = signed("old", ours), signed("new", ours)
    cert, key = old.write(tmp_path)
    server = await start(
        FakeBackend({"a": {"utilization_percent": 60.0}}), tls_cert=cert, tls_key=key
    )
    assert await shown_by(server.address) == old.certificate
    new.write(tmp_path)
    assert await shown_by(server.address) == new.certificate


def changed(path: Path, content: bytes) -> None:
    """Write a file so that its time of change differs even on a coarse clock."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(content)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_a_bad_renewal_keeps_the_last_good_certificate(
    ours: Issued, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = signed("old", ours), signed("new", ours)
    cert, key = old.write(tmp_path)
    certificates = Certificates(cert, key)
    renewed = certificates._renewed  # what gRPC calls at each handshake
    assert renewed() is None
    with caplog.at_level(logging.INFO):
        changed(cert, new.cert_pem)  # the key is still the old one
        assert [renewed(), renewed()] == [None, None]
        key.unlink()
        assert renewed() is None
        changed(key, b"")
        assert renewed() is None
        changed(key, new.key_pem)
        assert renewed() is not None
        assert renewed() is None
    assert (certificates.renewals, certificates.refused_renewals) == (1, 3)
    texts = [f"{record.getMessage()} {getattr(record, 'why', '')}" for record in caplog.records]
    assert "does not belong to the certificate in" in texts[0]
    assert "cannot be read: No such file" in texts[1]
    assert "is empty" in texts[2]
    assert texts[3].startswith("certificates renewed")
    assert len(texts) == 4  # once per change of the files, not once per handshake
    assert not any("PRIVATE KEY" in text for text in texts)


def test_a_swapped_link_is_a_change(ours: Issued, tmp_path: Path) -> None:
    """Kubernetes renews a mounted Secret by turning the link ``..data`` to another folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        signed(name, ours).write(tmp_path / name)
    data = tmp_path / "..data"
    data.symlink_to("one")
    certificates = Certificates(data / "tls.crt", data / "tls.key")
    other = tmp_path / "..data_tmp"
    other.symlink_to("two")
    other.rename(data)
    assert certificates._renewed() is not None
    assert certificates.renewals == 1


def no_key(folder: Path, ours: Issued) -> None:
    (folder / "tls.key").unlink()


def empty_key(folder: Path, ours: Issued) -> None:
    (folder / "tls.key").write_bytes(b"\n")


def other_key(folder: Path, ours: Issued) -> None:
    (folder / "tls.key").write_bytes(signed("other", ours).key_pem)


def encrypted_key(folder: Path, ours: Issued) -> None:
    encryption = serialization.BestAvailableEncryption(b"x")
    (folder / "tls.key").write_bytes(signed("other", ours).encoded_key(encryption))


def empty_cert(folder: Path, ours: Issued) -> None:
    (folder / "tls.crt").write_bytes(b"")


def broken_cert(folder: Path, ours: Issued) -> None:
    text = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (folder / "tls.crt").write_bytes(text)


def text_as_ca(folder: Path, ours: Issued) -> None:
    (folder / "ca.crt").write_bytes(b"no certificate")


def broken_ca(folder: Path, ours: Issued) -> None:
    text = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (folder / "ca.crt").write_bytes(text)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_key, r"--tls-key='\S+tls.key': cannot be read: No such file"),
        (empty_key, r"--tls-key='\S+tls.key': is empty"),
        (other_key, r"--tls-key='\S+tls.key': does not belong to the certificate in \S+tls.crt"),
        (encrypted_key, r"--tls-key='\S+tls.key': is encrypted"),
        (empty_cert, r"--tls-cert='\S+tls.crt': is empty"),
        (broken_cert, r"--tls-cert='\S+tls.crt': with \S+tls.key cannot be used"),
        (text_as_ca, r"--tls-client-ca='\S+ca.crt': is no PEM file with -----BEGIN CERTIFICATE"),
        (broken_ca, r"--tls-client-ca='\S+ca.crt': cannot be used"),
    ],
)
def test_unusable_files_fail_at_once_with_the_file_named(
    spoil: Callable[[Path, Issued], None], message: str, ours: Issued, tmp_path: Path
) -> None:
    cert, key = signed("server", ours).write(tmp_path)
    client_ca = tmp_path / "ca.crt"
    client_ca.write_bytes(ours.cert_pem)
    assert Certificates(cert, key, client_ca)
    spoil(tmp_path, ours)
    with pytest.raises(ConfigurationError, match=message):
        Certificates(cert, key, client_ca)
