"""A backend that reads files in every way a plugin may, and the tree that it reads."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from accelscale.backend import Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Kind, Metric, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale.plugins import RegisteredBackend

SERIAL = "PCB23107-55X"
UUID = "3f2a9b1c-aaaa-4bbb-8ccc-0123456789ab"
MAC = "0c:42:a1:5e:77:f0"
CARDS = "sys/class/widget"

JOBS = Metric("widget_jobs_total", "jobs", "Jobs.", kind=Kind.COUNTER, aggregation="sum")


class WidgetBackend(Backend):
    """Cards below ``/sys/class/widget``, a link each, as sysfs has them."""

    name = "widget"
    vendor = "example"
    metrics = {  # noqa: RUF012 - never changed
        "utilization_percent": Tier.FAST,
        "power_watts": Tier.FAST,
        "temperature_celsius": Tier.SLOW,
        "widget_jobs_total": Tier.FAST,
    }
    extra_metrics = (JOBS,)
    files = {  # noqa: RUF012 - never changed
        "utilization_percent": ("busy", 1),
        "power_watts": ("power", 1e-6),
        "temperature_celsius": ("temperature", 1e-3),
        "widget_jobs_total": ("jobs", 1),
    }

    def __init__(self, root: Path = Path("/")) -> None:
        self._cards = root / CARDS
        self._folders: dict[str, Path] = {}

    def probe(self) -> Probe:
        found = len(list(self._cards.glob("card*")))
        return Probe(bool(found), f"{found} cards in {self._cards}", "7.1")

    def open(self) -> None:
        if not self.probe().viable:
            raise BackendError(f"nothing in {self._cards}", reason=Reason.NOT_SUPPORTED)

    def devices(self) -> Sequence[Device]:
        cards = {place: self._device(place) for place in sorted(self._cards.glob("card*"))}
        self._folders = {device.id: place for place, device in cards.items()}
        return list(cards.values())

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        for device in devices:
            answers = [self._answer(device, metric) for metric in metrics]
            yield Reading(
                device.id,
                tuple(answer for answer in answers if isinstance(answer, Sample)),
                tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._folders = {}

    def _device(self, card: Path) -> Device:
        serial = (card / "device/serial_number").read_text().strip()
        driver = (card / "device/driver").readlink().name
        notes = {"driver": driver, "serial": serial}
        if (card / "device/asleep").exists():
            notes["asleep"] = "yes"
        return Device(f"W-{serial}", card.name, "example", "widget", attributes=notes)

    def _answer(self, device: Device, metric: str) -> Sample | Failure:
        now = time.monotonic()
        if metric not in self.files:
            text = f"no {metric}"
            return Failure(device.id, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)
        if device.id not in self._folders:
            return Failure(device.id, metric, Reason.LOST, f"no {device.id}", now)
        name, factor = self.files[metric]
        path = self._folders[device.id] / "device" / name
        try:
            return Sample(device.id, metric, int(path.read_text()) * factor, now)
        except FileNotFoundError:
            text = f"there is no {path}"
            return Failure(device.id, metric, Reason.NOT_SUPPORTED, text, now)
        except PermissionError as error:
            return Failure(device.id, metric, Reason.PERMISSION, str(error), now)
        except (OSError, ValueError) as error:
            return Failure(device.id, metric, Reason.ERROR, str(error), now)


REGISTERED = RegisteredBackend("widget", WidgetBackend, "accelscale-widget", "0.3", "widget")


def write(root: Path, path: str, text: str | bytes) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, str):
        file.write_text(f"{text}\n")
    else:
        file.write_bytes(text)
    return file


def link(root: Path, path: str, target: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    (root / target).mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(root / target, place.parent))


def card(root: Path, number: int, serial: str, **files: object) -> str:
    """A card; gives the folder of its device below the root."""
    folder = f"sys/devices/pci0000:00/0000:0{number}:00.0"
    values = {"serial_number": serial, "busy": 40 + number, "power": 55_000_000, "jobs": 7, **files}
    for name, value in values.items():
        if value is not None:
            write(root, f"{folder}/{name}", str(value))
    link(root, f"{folder}/driver", "sys/bus/pci/drivers/widget")
    link(root, f"{CARDS}/card{number}", f"{folder}/widget/card{number}")
    link(root, f"{folder}/widget/card{number}/device", folder)
    return folder
