"""The backend: Intel GPUs, read through Level Zero Sysman and from the files of the kernel."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Metric, Tier
from accelscale.model import Device, Reading, Reason
from accelscale_intel import rows
from accelscale_intel.cards import Card, intel_cards

if TYPE_CHECKING:
    from accelscale_intel.session import Session

_RESOURCES = frozenset({"gpu.intel.com/i915", "gpu.intel.com/xe"})
_ALLOCATED = re.compile(r"card([0-9]{1,9})-[0-9]{1,9}")  # DRM card and share


class IntelBackend(Backend):
    """Every GPU whose driver is i915 or xe, integrated ones included.

    ``root`` is where ``/proc`` and ``/sys`` are looked for. What does the work, and all that it
    imports, is `accelscale_intel.session`, made once a card is there.
    """

    name = "intel"
    vendor = "intel"
    metrics: ClassVar[Mapping[str, Tier]] = rows.TIERS
    extra_metrics: ClassVar[tuple[Metric, ...]] = rows.EXTRA_METRICS
    isolates_devices: ClassVar[bool] = True

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._is_open = False
        self._session: Session | None = None  # kept over close and open, for what it has learnt

    def probe(self) -> Probe:
        """Look for cards, and whether Level Zero works: tried in a process of its own."""
        started = time.perf_counter()
        cards = intel_cards(self._root)
        found = _in_words(self._root, cards)
        seconds = time.perf_counter() - started
        listed = Attempt("list the DRM cards", found, bool(cards), seconds)
        if not cards:
            return Probe(viable=False, reason=found, attempts=(listed,))
        try:
            from accelscale_intel.trial import verdict

            tried = verdict(self._root)
        except Exception as error:  # noqa: BLE001 - a probe tells what went wrong and never raises
            text = f"{type(error).__name__}: {error}"
            failed = Attempt("try Level Zero", text, ok=False, seconds=0.0)
            return Probe(viable=True, reason=found, attempts=(listed, failed))
        trial = Attempt("try Level Zero", tried.reason, tried.works, tried.seconds)
        how = "Level Zero works" if tried.works else f"without Level Zero: {tried.reason}"
        return Probe(viable=True, reason=f"{found}; {how}", attempts=(listed, trial))

    def open(self) -> None:
        """Take the cards, and start Level Zero if it works here."""
        if self._is_open:
            return
        cards = intel_cards(self._root)
        if not cards:
            raise BackendError(_in_words(self._root, cards), reason=Reason.NOT_SUPPORTED)
        if self._session is None:
            from accelscale_intel.session import Session

            self._session = Session(self._root, self.name, self.vendor)
        self._session.begin(cards)
        self._is_open = True

    def devices(self) -> Sequence[Device]:
        """The cards there are, and those that were there since `open`, by PCI address."""
        return self._opened().devices()

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        """Read one card after the other; all processes are looked through once at most."""
        return self._opened().read(devices, metrics)

    def close(self) -> None:
        """Let go of the cards. Level Zero, once started, keeps its device files until the process
        ends: it has no call to be stopped by."""
        self._is_open = False
        if self._session is not None:
            self._session.end()

    def diagnose(self) -> Iterator[Attempt]:
        """The attempts of `probe`, then each metric by itself."""
        yield from self.probe().attempts
        yield from super().diagnose()

    def owns_resource(self, resource: str) -> bool:
        """Those of Intel's device plugin that stand for a card; its monitoring resources do not."""
        return resource in _RESOURCES

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By PCI address, or as Intel's device plugin says it: DRM card and share, ``card0-1``."""
        match = _ALLOCATED.fullmatch(allocated_id)
        if match is None:
            return super().device_of(allocated_id, devices)
        number = str(int(match[1]))
        found = [device for device in devices if device.attributes.get("drm_card") == number]
        # A card that is gone may have left its number to another.
        return min(found, key=lambda device: device.problem is Reason.LOST, default=None)

    def _opened(self) -> Session:
        if self._session is None or not self._is_open:
            raise BackendError("the intel backend is not open", reason=Reason.ERROR)
        return self._session


def _in_words(root: Path, cards: Sequence[Card]) -> str:
    if not cards:
        return f"no card under {root / 'sys/class/drm'} has the driver i915 or xe"
    count = f"{len(cards)} {'card' if len(cards) == 1 else 'cards'}"
    return f"{count}: {', '.join(f'{card.address} ({card.driver})' for card in cards)}"
