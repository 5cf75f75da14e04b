"""From a process of this machine to the container and the pod that it belongs to.

A driver names the processes on a shared device by their host PIDs; what container one runs in is
written in ``/proc/PID/cgroup``, in as many spellings as there are runtimes. This needs the PID
namespace of the host. The pod comes out as its UID: the kubelet's PodResources know pods by name
alone, so whoever joins the two needs the API server's word.
"""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from accelscale_server.recent import Recent

MOST_REMEMBERED = 4096

_CONTAINER = re.compile(r"(?:^|[^0-9a-f])([0-9a-f]{64})(?:\.scope)?$")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?![0-9a-f])")
_TELLING = ("memory", "devices", "pids", "name=systemd", "")
"""Controllers of version 1 that every runtime sets, and the empty list of version 2."""


@frozen
class ContainerIdentity:
    """A container by the runtime's id, and the UID of its pod where there is one."""

    container_id: str
    pod_uid: str | None = None


def container_of(cgroup: str) -> ContainerIdentity | None:
    """The container that a ``/proc/PID/cgroup`` tells of, or None for a process outside of any.

    Both versions of cgroups, all drivers of containerd, CRI-O, Docker and Podman, paths that are
    relative because of a cgroup namespace, and nodes that are containers themselves: of several
    ids the innermost counts. The monitors that runtimes start beside a container (conmon) are no
    part of it.
    """
    found = [identity for line in cgroup.splitlines() if (identity := _of_line(line)) is not None]
    return next((identity for identity in found if identity.pod_uid), next(iter(found), None))


def _of_line(line: str) -> ContainerIdentity | None:
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if "conmon" in path or not any(name in _TELLING for name in controllers.split(",")):
        return None
    for element in reversed(path.split("/")):
        if container := _CONTAINER.search(element):
            pods = _POD.findall(path)
            return ContainerIdentity(container[1], pods[-1].replace("_", "-") if pods else None)
    return None


def start_time_of(stat: str) -> int | None:
    """When the process of a ``/proc/PID/stat`` began, in clock ticks since the machine did.

    PIDs are used again; together with this number one means the same process for ever. The name
    in the second field may hold spaces and brackets, so fields are counted from its end.
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


class Containers:
    """Looks processes up in a proc file system, each once. Not for use from several threads."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: Recent[tuple[int, int], tuple[ContainerIdentity | None]] = Recent(
            MOST_REMEMBERED
        )

    def of(self, pid: int) -> ContainerIdentity | None:
        """The container of a process; None too where the process has ended or is hidden."""
        try:
            start = start_time_of(self._text(pid, "stat"))
            if start is None:
                return None
            known = self._known.find((pid, start))
            if known is None:
                found = container_of(self._text(pid, "cgroup"))
                if start_time_of(self._text(pid, "stat")) != start:
                    return None  # ended in between, and another took its PID
                known = self._known.keep((pid, start), (found,))
        except OSError:
            return None
        return known[0]

    def _text(self, pid: int, name: str) -> str:
        return (self._proc / str(pid) / name).read_text(encoding="utf-8", errors="replace")
