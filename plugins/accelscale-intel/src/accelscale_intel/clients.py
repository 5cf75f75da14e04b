"""Who uses the cards: what the kernel writes of each DRM client into ``/proc/PID/fdinfo``.

The format is that of ``Documentation/gpu/drm-usage-stats.rst``. A client is one opened device file;
several processes may hold it, and one process may hold it under several numbers, so it is known by
the card and ``drm-client-id``, never by the process.

All of this is worth something only if nothing is hidden. A sum over some of the processes looks
exactly like that of an idle card, so `look_at` gives all of them or raises.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import field, frozen

from accelscale.model import Reason, normal_pci_address
from accelscale_intel.files import UnreadableError

NEEDED = (
    "to see what all processes do with the card, run in the PID namespace of the host"
    " (hostPID: true) with the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
)

# The kernel's own PID namespace has this number on every machine (PROC_PID_INIT_INO).
_HOST_NAMESPACE = "pid:[4026531836]"

_ENGINE = re.compile(r"drm-(engine-capacity|engine|cycles|total-cycles)-([a-z0-9-]+)")
_REGION = re.compile(r"drm-(resident|shared)-((?:vram|local)[0-9]*)")
_UNITS = {"": 1, "ns": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# What is open everywhere and no graphics card.
_OTHERS = ("/dev/null", "/dev/pts/", "/dev/urandom", "/dev/tty", "/dev/fuse")
_LINKS_OF_ONE_THREAD = 3  # of the folder /proc/PID/task: one for each thread, and two of its own
_GONE = (FileNotFoundError, ProcessLookupError)


@frozen
class Client:
    """What one DRM client has done so far, as of the monotonic ``time``.

    ``busy`` is per engine class: nanoseconds (i915), or cycles of the clock whose reading ``clock``
    holds (xe). ``capacity`` is how many engines a class has, where more than one. ``resident`` and
    ``shared`` are the bytes that it has in memory of the card, by region.
    """

    id: str
    time: float
    busy: Mapping[str, int] = field(factory=dict)
    clock: Mapping[str, int] = field(factory=dict)
    capacity: Mapping[str, int] = field(factory=dict)
    resident: Mapping[str, int] = field(factory=dict)
    shared: Mapping[str, int] = field(factory=dict)


@frozen
class Usage:
    """The clients of one card by their ids, and the processes that hold it.

    ``uncounted`` names a process whose use of the card the kernel does not count.
    """

    clients: Mapping[str, Client]
    processes: frozenset[int] = frozenset()
    uncounted: str | None = None


@frozen
class Look:
    """One look through all processes, begun at the monotonic time ``started``."""

    started: float
    usages: Mapping[str, Usage]

    def of(self, address: str) -> Usage:
        """The use of the card at that PCI address."""
        return self.usages.get(address, Usage({}))


def look_at(root: Path, nodes: Mapping[str, str]) -> Look:
    """Look through all processes for these device files.

    ``nodes`` leads from the name of a device file, and from its number (``226:128``), to the PCI
    address of its card. No device file is opened, and no client of another card is read.

    Raises:
        UnreadableError: some process is hidden from this one.
    """
    started = time.monotonic()
    _require_host_processes(root)
    clients: dict[str, dict[str, Client]] = defaultdict(dict)
    processes: dict[str, set[int]] = defaultdict(set)
    uncounted: dict[str, str] = {}
    for process in _processes(root / "proc"):
        folder = f"{root / 'proc' / process}"
        for path, address in _held(folder, process, nodes):
            text = _fdinfo(path, process)
            if text is None:
                continue  # closed a moment ago
            processes[address].add(int(process))
            client = _client(text, address)
            if client is None:
                uncounted[address] = f"process {process}"
                continue
            known = clients[address].get(client.id)
            clients[address][client.id] = client if known is None else later(known, client)
    usages = {
        address: Usage(clients[address], frozenset(pids), uncounted.get(address))
        for address, pids in processes.items()
    }
    return Look(started, usages)


def later(before: Client, now: Client) -> Client:
    """The newer of two readings of a client, without steps back.

    Engine times may fall a little behind what was shown before, until they have caught up; the
    kernel's documentation says to keep the larger value until then.
    """
    busy = {name: max(value, before.busy.get(name, 0)) for name, value in now.busy.items()}
    return Client(now.id, now.time, busy, now.clock, now.capacity, now.resident, now.shared)


def _require_host_processes(root: Path) -> None:
    """Make sure that ``/proc`` shows the processes of the host, and lets us look into them.

    Process 1 of the host tells both at once: only there does it live in the kernel's first PID
    namespace, and only who may look into any process may see in which one it lives. A container
    without the host's PID namespace, and a ``/proc`` mounted with ``hidepid``, both fail here.
    """
    path = root / "proc/1/ns/pid"
    try:
        namespace = os.readlink(path)  # noqa: PTH115 - the target is no path
    except OSError as error:
        detail = f"{path}: {error.strerror}; {NEEDED}"
        raise UnreadableError(Reason.PERMISSION, detail, code=error.errno) from error
    if namespace != _HOST_NAMESPACE:
        detail = f"{root / 'proc'} shows only the processes of a container; {NEEDED}"
        raise UnreadableError(Reason.PERMISSION, detail)


def _processes(proc: Path) -> Iterable[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - names alone, once a second
    except OSError as error:
        raise UnreadableError(Reason.PERMISSION, f"{proc}: {error.strerror}; {NEEDED}") from error


def _held(folder: str, process: str, nodes: Mapping[str, str]) -> list[tuple[str, str]]:
    """Descriptors that are device files of ours: the path of what is told of each, and the card."""
    found = []
    try:
        holder, numbers = _descriptors(folder)
        for number in numbers:
            path = f"{holder}/fd/{number}"
            try:
                target = os.readlink(path)  # noqa: PTH115 - the same
            except _GONE:
                continue
            if target.startswith("/dev/") and not target.startswith(_OTHERS):
                address = nodes.get(_node(path, target))
                if address is not None:
                    found.append((f"{holder}/fdinfo/{number}", address))
    except _GONE:
        return []
    except OSError as error:
        raise _hidden(process, error) from error
    return found


def _descriptors(folder: str) -> tuple[str, list[str]]:
    """The open files of a process: in which folder they are, and their numbers.

    A process whose first thread has ended shows none, while its other threads work on with them.
    """
    numbers = os.listdir(f"{folder}/fd")  # noqa: PTH208 - for each process, once a second
    if not numbers and os.stat(f"{folder}/task").st_nlink > _LINKS_OF_ONE_THREAD:  # noqa: PTH116
        for thread in os.listdir(f"{folder}/task"):  # noqa: PTH208
            holder = f"{folder}/task/{thread}"
            numbers = os.listdir(f"{holder}/fd")  # noqa: PTH208
            if numbers:
                return holder, numbers
    return folder, numbers


def _node(path: str, target: str) -> str:
    """Which device file a descriptor is. A container may have given it another name."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a link of the kernel, which leads to the open file
    except OSError:
        return target.rpartition("/")[2]
    if not stat.S_ISCHR(status.st_mode):
        return target.rpartition("/")[2]
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _fdinfo(path: str, process: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - as above
            return stream.read()
    except _GONE:
        return None
    except OSError as error:
        raise _hidden(process, error) from error


def _hidden(process: str, error: OSError) -> UnreadableError:
    detail = f"process {process} is hidden ({error.strerror}); {NEEDED}"
    return UnreadableError(Reason.PERMISSION, detail, code=error.errno)


def _client(text: str, address: str) -> Client | None:
    """The client that an fdinfo file describes; None where the kernel does not count its work."""
    now = time.monotonic()
    pairs = (line.partition(":") for line in text.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    client_id, card = values.get("drm-client-id"), values.get("drm-pdev")
    if client_id is None or card is None or normal_pci_address(card) != address:
        return None
    engines: dict[str, dict[str, int]] = defaultdict(dict)
    regions: dict[str, dict[str, int]] = defaultdict(dict)
    try:
        for key, value in values.items():
            if match := _ENGINE.fullmatch(key):
                engines[match[1]][match[2]] = _amount(value)
            elif match := _REGION.fullmatch(key):
                regions[match[1]][match[2]] = _amount(value)
    except (ValueError, KeyError):
        return None
    cycles, clock = engines["cycles"], engines["total-cycles"]
    busy = engines["engine"] or {name: count for name, count in cycles.items() if name in clock}
    if not busy:
        return None
    return Client(
        id=client_id,
        time=now,
        busy=busy,
        clock={} if engines["engine"] else clock,
        capacity=engines["engine-capacity"],
        resident=regions["resident"],
        shared=regions["shared"],
    )


def _amount(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(number) * _UNITS[unit.strip()]
