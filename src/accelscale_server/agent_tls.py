"""Channels to agents: plain, or with TLS whose files are read again for every connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from accelscale_server.agent_stream import OPTIONS, Connect, plain
from accelscale_server.client_tls import channel_credentials

if TYPE_CHECKING:
    from accelscale_server.config import ScalerConfig


def connecting(config: ScalerConfig) -> Connect:
    """How to connect to an agent.

    Raises:
        ConfigurationError: a file cannot be read, or holds no PEM.
    """
    if config.agents_ca is None:
        return plain
    options = list(OPTIONS)
    if config.agents_server_name is not None:
        options.append(("grpc.ssl_target_name_override", config.agents_server_name))

    def credentials() -> grpc.ChannelCredentials:
        files = config.agents_ca, config.agents_cert, config.agents_key
        return channel_credentials(*files, prefix="--agents-")

    def connect(address: str) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(address, credentials(), options=options)

    credentials()
    return connect
