"""One log on standard error, as text or JSON, for the server and the library alike.

Everything logs through the standard library, with facts in ``extra``; structlog renders them. What
a trigger's metadata holds is logged by key and problem alone, since a value may be a secret.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

LIFECYCLE = "accelscale_server.lifecycle"
"""Logger of the few lines that scripts wait for; they appear at every level."""


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logging to ``stream`` (standard error) in this format, from this level up."""
    stream = sys.stderr if stream is None else stream
    last: list[Any]
    if log_format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        last = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    number = getattr(logging, level.upper())
    root.setLevel(max(number, logging.WARNING) if level != "debug" else number)
    for ours in ("accelscale", "accelscale_server"):
        logging.getLogger(ours).setLevel(number)
    logging.getLogger(LIFECYCLE).setLevel(min(number, logging.INFO))
    logging.captureWarnings(True)
