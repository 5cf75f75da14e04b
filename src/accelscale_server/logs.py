"""One log on standard error, as text or JSON, for the server and the library alike.

Everything logs through the standard library, with facts in ``extra``. What a trigger's metadata
holds is logged by key and problem alone, since a value may be a secret.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

LIFECYCLE = "accelscale_server.lifecycle"
"""Logger of the few lines that scripts wait for; they appear at every level."""

_OF_EVERY_RECORD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z warning  not ready  why='lost'  [accelscale_server.health]``."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line without a traceback, which the base class adds."""
        facts = {k: v for k, v in vars(record).items() if k not in _OF_EVERY_RECORD}
        shown = [f"{key}={_in_words(value)}" for key, value in facts.items()]
        start = f"{self.formatTime(record)} {record.levelname.lower():<8}"
        return "  ".join([start, record.message, *shown, f"[{record.name}]"])


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logging to ``stream`` (standard error) in this format, from this level up."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_json() if log_format == "json" else TextFormatter())
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


def _json() -> logging.Formatter:
    # Imported here because a server that logs text is 2 MiB smaller without it.
    from pythonjsonlogger.json import JsonFormatter

    class OneLine(JsonFormatter):
        converter = staticmethod(time.gmtime)
        default_time_format = "%Y-%m-%dT%H:%M:%S"
        default_msec_format = "%s.%03dZ"

        def process_log_record(self, log_data: dict[str, object]) -> dict[str, object]:
            log_data["level"] = str(log_data["level"]).lower()
            return log_data

    return OneLine(
        ["asctime", "levelname", "name", "message", "exc_info"],
        rename_fields={
            "asctime": "timestamp",
            "levelname": "level",
            "name": "logger",
            "message": "event",
            "exc_info": "exception",
        },
        rename_fields_keep_missing=False,
        json_ensure_ascii=False,
    )


def _in_words(value: object) -> str:
    """A value on one line; quoted where it could not be told from what follows."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
