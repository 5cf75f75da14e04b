"""Prometheus /metrics: what the server did, how collecting goes, and the devices themselves.

Everything is gathered at the moment of the scrape, from memory. Names and labels are listed in the
metrics reference; those of devices are made in `accelscale_server.device_metrics`.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from attrs import evolve
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

import accelscale
from accelscale_server.addresses import Address, BindError, bindable, refusal
from accelscale_server.device_metrics import device_families
from accelscale_server.figures import BUCKETS, CallFigures

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale.backend_loop import BackendState
    from accelscale.monitor import Monitor
    from accelscale_server.evaluations import Evaluations
    from accelscale_server.tls import Certificates

logger = logging.getLogger("accelscale_server.telemetry")

MOST_SCRAPES = 16
"""Connections served at one time; one more is closed unanswered."""


def registry_of(*sources: Callable[[], Iterable[Family]]) -> CollectorRegistry:
    """A registry of our own with these families; the process's global one stays untouched."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for source in sources:
        registry.register(_Gathered(source))
    return registry


class _Gathered(Collector):
    def __init__(self, source: Callable[[], Iterable[Family]]) -> None:
        self._source = source

    def describe(self) -> Iterable[Family]:
        """Nothing: registering must not gather."""
        return ()

    def collect(self) -> Iterable[Family]:
        return self._source()


def server_families(calls: CallFigures, certificates: Certificates | None) -> Iterator[Family]:
    """What every server tells: its version, its calls, its certificates."""
    build = GaugeMetricFamily("accelscale_build_info", "The version.", labels=["version"])
    build.add_metric([accelscale.__version__], 1)
    yield build
    yield from _call_families(calls)
    if certificates is not None:
        yield from _certificate_families(certificates)


def evaluations_family(evaluations: Evaluations) -> Family:
    """How many evaluations were made."""
    made = CounterMetricFamily(
        "accelscale_evaluations", "Triggers evaluated; each once per snapshot at most."
    )
    made.add_metric([], evaluations.made)
    return made


def monitor_families(monitor: Monitor) -> Iterator[Family]:
    """How reading goes, and the devices themselves."""
    yield from backend_families(monitor.states())
    yield from device_families(monitor.snapshot(), monitor.metrics)


def _call_families(calls: CallFigures) -> Iterator[Family]:
    handled = CounterMetricFamily(
        "accelscale_rpc_handled", "Calls that ended, by status.", labels=["method", "code"]
    )
    for (method, code), count in list(calls.handled.items()):
        handled.add_metric([method.lstrip("/"), code], count)
    yield handled
    durations = HistogramMetricFamily(
        "accelscale_rpc_duration_seconds", "Time to answer a unary call.", labels=["method"]
    )
    for method, (counts, seconds) in calls.durations().items():
        total, buckets = 0, []
        for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
            total += count
            buckets.append((str(bound), total))
        durations.add_metric([method.lstrip("/")], buckets, seconds)
    yield durations
    streams = GaugeMetricFamily("accelscale_streams_open", "Streams open now.", labels=["method"])
    for method, count in list(calls.streams.items()):
        streams.add_metric([method.lstrip("/")], count)
    yield streams
    refused = CounterMetricFamily(
        "accelscale_streams_refused", "Streams refused because max-streams were open."
    )
    refused.add_metric([], calls.refused_streams)
    yield refused


def _certificate_families(certificates: Certificates) -> Iterator[Family]:
    renewals = CounterMetricFamily(
        "accelscale_certificate_renewals",
        "Changes of the certificate files, taken or refused as unusable.",
        labels=["result"],
    )
    renewals.add_metric(["taken"], certificates.renewals)
    renewals.add_metric(["refused"], certificates.refused_renewals)
    yield renewals


def backend_families(states: Iterable[BackendState]) -> Iterator[Family]:
    """How reading goes, by backend."""
    label = ["backend"]
    ready = GaugeMetricFamily(
        "accelscale_backend_ready", "Whether the backend is being read.", labels=label
    )
    passes = CounterMetricFamily(
        "accelscale_collections", "Completed passes over a backend's devices.", labels=label
    )
    failed = CounterMetricFamily(
        "accelscale_collections_failed", "Passes in which the driver gave nothing.", labels=label
    )
    timeouts = CounterMetricFamily(
        "accelscale_driver_timeouts", "Driver calls that outlasted the deadline.", labels=label
    )
    lasted = GaugeMetricFamily(
        "accelscale_collection_duration_seconds", "Time the last pass took.", labels=label
    )
    age = GaugeMetricFamily(
        "accelscale_snapshot_age_seconds", "Time since the last completed pass.", labels=label
    )
    now = time.monotonic()
    for state in states:
        name = [state.name]
        ready.add_metric(name, state.phase == "ready")
        passes.add_metric(name, state.collections)
        failed.add_metric(name, state.failed_collections)
        timeouts.add_metric(name, state.timeouts)
        if state.last_seconds is not None:
            lasted.add_metric(name, state.last_seconds)
        if state.time is not None:
            age.add_metric(name, max(0.0, now - state.time))
    yield from (ready, passes, failed, timeouts, lasted, age)


class MetricsEndpoint:
    """Serves a registry over HTTP, in threads of its own."""

    def __init__(self, listen: Address, registry: CollectorRegistry) -> None:
        address = bindable(listen)
        try:
            self._server = _Server(address, registry)
        except OSError as error:
            raise BindError(refusal(address, error)) from error
        self.address = evolve(address, port=self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="accelscale-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving; a scrape in progress is not waited for."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._free = threading.BoundedSemaphore(MOST_SCRAPES)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        self.address_family = found[0][0]
        super().__init__(found[0][4][:2], _Scrape)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        """Bind, for both families where there are two, and without asking DNS for our own name."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, as long as there are not too many of them."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread's whole work."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that left early is no error of ours; anything else is logged with its trace."""
        error = sys.exception()
        if not isinstance(error, OSError):
            logger.error("a scrape failed", exc_info=error)


class _Scrape(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds that a client may keep a thread waiting
    server_version = "accelscale"
    sys_version = ""

    def do_GET(self) -> None:
        """The metrics, in the format that the scraper prefers."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, explain="There is only /metrics.")
            return
        encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
        body = encoder(self.server.registry)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """One line per request would drown the log."""
        logger.debug(format, *arguments)
