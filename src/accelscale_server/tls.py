"""TLS and mutual TLS from PEM files that are read again when they change.

gRPC itself writes a line on standard error for every handshake that fails; it tells a client
without a certificate (PEER_DID_NOT_RETURN_A_CERTIFICATE) from one of a foreign authority
(CERTIFICATE_VERIFY_FAILED) and from one that speaks plaintext (WRONG_VERSION_NUMBER), which to the
client all look like UNAVAILABLE.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from pathlib import Path

import grpc
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault

logger = logging.getLogger("accelscale_server.tls")

_CERT, _KEY, _CLIENT_CA = "--tls-cert", "--tls-key", "--tls-client-ca"


@frozen
class _Pem:
    """The contents of the files."""

    cert: bytes
    key: bytes
    client_ca: bytes | None


class Certificates:
    """The server's certificate, its key, and the authorities of clients where those are required.

    Raises:
        ConfigurationError: a file is missing, empty, or does not fit the others.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._lock = threading.Lock()
        self._seen = self._fingerprint()
        self._pem = self._read()
        self.renewals = 0
        self.refused_renewals = 0

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that look for changed files at every handshake."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pem),
            self._renewed,  # type: ignore[arg-type] # None means no change; the stubs lack it
            require_client_authentication=self._client_ca is not None,
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new certificates where the files have changed and are sound, else None: no change.

        Called by a thread of gRPC within a handshake, so it must not raise: that would refuse
        clients whom the last good certificate still serves.
        """
        with self._lock:
            now = self._fingerprint()
            if now == self._seen:
                return None
            self._seen = now
            try:
                pem = self._read()
                if self._fingerprint() != now:
                    self._seen = ()  # being written at this very moment: look again next time
                    return None
            except ConfigurationError as error:
                self.refused_renewals += 1
                text = "bad certificate files; the last good ones stay in use"
                logger.error(text, extra={"why": str(error)})  # noqa: TRY400 - the text says it all
                return None
            except Exception:
                self.refused_renewals += 1
                logger.exception("certificate files not read; the last good ones stay in use")
                return None
            if pem == self._pem:
                return None
            self._pem = pem
            self.renewals += 1
            logger.info("certificates renewed", extra={"file": str(self._cert)})
            return _configuration(pem)

    def _fingerprint(self) -> tuple[object, ...]:
        """What changes with the files: Kubernetes swaps a link, others write in place."""
        marks: list[object] = []
        for path in (self._cert, self._key, self._client_ca):
            if path is None:
                continue
            try:
                status = os.stat(path)  # noqa: PTH116 - follows the links of a mounted Secret
            except OSError as error:
                marks.append(error.errno)
            else:
                marks.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(marks)

    def _read(self) -> _Pem:
        faults: list[Fault] = []
        cert = _content(_CERT, self._cert, b"-----BEGIN CERTIFICATE-----", faults)
        key = _content(_KEY, self._key, b"PRIVATE KEY-----", faults)
        client_ca = None
        if self._client_ca is not None:
            client_ca = _content(
                _CLIENT_CA, self._client_ca, b"-----BEGIN CERTIFICATE-----", faults
            )
        if b"ENCRYPTED" in key:
            faults.append(Fault(_KEY, str(self._key), "is encrypted; a server needs a plain key"))
        if not faults:
            faults.extend(_misfits(self._cert, self._key))
        if client_ca is not None and not faults:
            faults.extend(_useless_authorities(client_ca, self._client_ca))
        if faults:
            raise ConfigurationError(faults, subject="configuration")
        return _Pem(cert, key, client_ca)


def _configuration(pem: _Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], pem.client_ca)


def _content(option: str, path: Path, marker: bytes, faults: list[Fault]) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        faults.append(Fault(option, str(path), f"cannot be read: {error.strerror or error}"))
        return b""
    if marker not in content:
        what = "is empty" if not content.strip() else f"is no PEM file with {marker.decode()}"
        faults.append(Fault(option, str(path), what))
    return content


def _misfits(cert: Path, key: Path) -> list[Fault]:
    """Whether the key belongs to the certificate. gRPC finds out only when a client connects."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return [Fault(_KEY, str(key), f"does not belong to the certificate in {cert}")]
        return [Fault(_CERT, str(cert), f"with {key} cannot be used: {error.reason or error}")]
    except OSError as error:
        return [Fault(_CERT, str(cert), f"cannot be read: {error.strerror or error}")]
    return []


def _useless_authorities(content: bytes, path: Path | None) -> list[Fault]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "replace"))
        if context.cert_store_stats()["x509"]:
            return []
        problem = "holds no certificate"
    except ssl.SSLError as error:
        problem = f"cannot be used: {error.reason or error}"
    except ValueError as error:
        problem = f"cannot be used: {error}"
    return [Fault(_CLIENT_CA, str(path), problem)]
