"""One replica of the fleet: its server, its life, and what an agent would have read of it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping

from accelscale.history import KEPT_SECONDS, Ring
from accelscale.lab.simulate.server import NEVER, Server
from accelscale.lab.simulate.server_model import ServerModel
from accelscale.metrics import max_age
from accelscale.model import Sample

SHOWN = (
    "utilization_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_used_percent",
    "power_watts",
    "power_limit_watts",
    "power_used_percent",
)
"""The metrics that the model of a device gives."""


class Replica:
    """A pod with its devices. Times are seconds of the simulation.

    ``serves_from`` is when it has loaded and is Ready, ``removed`` when it was no longer wanted and
    ``gone`` when it had given its devices back, both `NEVER` until then. The columns hold what was
    true at each sampling; ``heard`` says whether the agent told it. ``rings`` are the agent's.
    """

    __slots__ = (
        "_busy",
        "_gap",
        "_joules",
        "_keep",
        "_loads_until",
        "created",
        "gone",
        "heard",
        "memory_bytes",
        "model",
        "number",
        "power_watts",
        "removed",
        "rings",
        "server",
        "serves_from",
        "times",
        "utilization_percent",
    )

    def __init__(
        self,
        number: int,
        server: Server,
        model: ServerModel,
        *,
        created: float,
        loads_until: float,
        serves_from: float,
        metrics: Collection[str],
        interval: float,
        longest_window: float,
    ) -> None:
        self.number = number
        self.server = server
        self.model = model
        self.created = created
        self.serves_from = serves_from
        self.removed = NEVER
        self.gone = NEVER
        self.times = array("d")
        self.utilization_percent = array("d")
        self.memory_bytes = array("d")
        self.power_watts = array("d")
        self.heard = array("b")
        self.rings: dict[str, Ring] = {metric: Ring() for metric in metrics}
        self._loads_until = loads_until
        self._busy = 0.0
        self._joules = 0.0
        self._gap = max_age(interval)
        self._keep = max(KEPT_SECONDS, longest_window)

    @property
    def name(self) -> str:
        """As a pod would be called."""
        return f"replica-{self.number}"

    @property
    def device_ids(self) -> tuple[str, ...]:
        """The ids of its devices."""
        return tuple(f"{self.name}-device-{index}" for index in range(self.model.devices))

    def device_seconds(self, until: float) -> float:
        """How long it has held its devices, up to a time."""
        if self.created >= until:
            return 0.0
        begin = max(self.created, 0.0)  # what was there at the start counts from then on
        return (min(self.gone, until) - begin) * self.model.devices

    def sample(self, now: float, seconds: float, *, heard: bool) -> None:
        """Read the devices: means over the last ``seconds``, as their driver gives them."""
        model, server = self.model, self.server
        server.account(now)
        busy, joules = server.busy_seconds - self._busy, server.joules - self._joules
        self._busy, self._joules = server.busy_seconds, server.joules
        share = min(1.0, busy / seconds) if seconds else 0.0
        watts = joules / seconds / model.devices if seconds else model.idle_watts
        self.times.append(now)
        self.utilization_percent.append(share * model.full_utilization_percent)
        self.memory_bytes.append(self._memory(now))
        self.power_watts.append(watts)
        self.heard.append(heard)
        if heard:
            for metric, ring in self.rings.items():
                sample = Sample(self.name, metric, self.newest(metric), now)
                ring.add(sample, self._gap, self._keep)

    def newest(self, metric: str) -> float:
        """The newest reading of a metric of `SHOWN`."""
        return _READ[metric](self)

    def _memory(self, now: float) -> float:
        if now >= self._loads_until:
            return self.model.memory_used_bytes(self.server.cached_at(now))
        loaded = self.model.memory_used_bytes(0.0)
        return loaded * (now - self.created) / (self._loads_until - self.created)


_READ: Mapping[str, Callable[[Replica], float]] = {
    "utilization_percent": lambda replica: replica.utilization_percent[-1],
    "memory_used_bytes": lambda replica: replica.memory_bytes[-1],
    "memory_total_bytes": lambda replica: replica.model.memory_bytes,
    "memory_used_percent": lambda replica: (
        100 * replica.memory_bytes[-1] / replica.model.memory_bytes
    ),
    "power_watts": lambda replica: replica.power_watts[-1],
    "power_limit_watts": lambda replica: replica.model.power_limit_watts,
    "power_used_percent": lambda replica: (
        100 * replica.power_watts[-1] / replica.model.power_limit_watts
    ),
}
