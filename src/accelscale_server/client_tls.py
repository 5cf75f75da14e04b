"""TLS for a client: whom to trust, and who we are, from PEM files."""

from __future__ import annotations

from pathlib import Path

import grpc

from accelscale.errors import ConfigurationError, Fault


def channel_credentials(
    ca: Path | None, cert: Path | None, key: Path | None, *, prefix: str = "--"
) -> grpc.ChannelCredentials:
    """Credentials from the files that are given; without ``ca`` the system's authorities count.

    ``prefix`` stands before ``ca``, ``cert`` and ``key`` in the flags that faults name.

    Raises:
        ConfigurationError: a file cannot be read, or holds no PEM.
    """
    faults: list[Fault] = []
    authorities = _pem(f"{prefix}ca", ca, faults)
    certificate = _pem(f"{prefix}cert", cert, faults)
    private_key = _pem(f"{prefix}key", key, faults)
    if faults:
        raise ConfigurationError(faults, subject="TLS")
    return grpc.ssl_channel_credentials(authorities, private_key, certificate)


def _pem(flag: str, path: Path | None, faults: list[Fault]) -> bytes | None:
    if path is None:
        return None
    try:
        text = path.read_bytes()
    except OSError as error:
        faults.append(Fault(flag, str(path), f"cannot be read: {error.strerror or error}"))
        return None
    if b"-----BEGIN " not in text:
        faults.append(Fault(flag, str(path), "holds no PEM"))
        return None
    return text
