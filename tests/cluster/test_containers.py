"""Control groups as each runtime writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelscale_server.containers import (
    ContainerIdentity,
    Containers,
    container_of,
    start_time_of,
)

ID = "3f" * 32
OUTER = "a0" * 32
UID = "01234567-89ab-cdef-0123-456789abcdef"
UID_ = UID.replace("-", "_")
STATIC = UID.replace("-", "")
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
GUARANTEED = f"/kubepods.slice/kubepods-pod{UID_}.slice"
KIND = f"/docker/{OUTER}/kubelet.slice/kubelet-kubepods.slice"
KIND_POD = f"{KIND}/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{UID_}.slice"

IN_POD = ContainerIdentity(ID, UID)
ALONE = ContainerIdentity(ID, None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{SLICE}/cri-containerd-{ID}.scope", IN_POD),
        (f"{GUARANTEED}/cri-containerd-{ID}.scope", IN_POD),
        (f"/kubepods/burstable/pod{UID}/{ID}", IN_POD),
        (f"/kubepods/pod{UID}/{ID}", IN_POD),
        (f"/kubepods/besteffort/pod{STATIC}/{ID}", ContainerIdentity(ID, STATIC)),
        (f"{SLICE}/crio-{ID}.scope", IN_POD),
        (f"{SLICE}/crio-{ID}.scope/container", IN_POD),
        (f"{SLICE}/crio-conmon-{ID}.scope", None),
        (f"{SLICE}/docker-{ID}.scope", IN_POD),
        (f"/system.slice/docker-{ID}.scope", ALONE),
        (f"/docker/{ID}", ALONE),
        (f"/machine.slice/libpod-{ID}.scope", ALONE),
        (f"/machine.slice/libpod-{ID}.scope/container", ALONE),
        (f"/machine.slice/libpod-conmon-{ID}.scope", None),
        (f"{KIND_POD}/cri-containerd-{ID}.scope", IN_POD),
        (f"/docker/{OUTER}/kubelet/kubepods/besteffort/pod{UID}/{ID}", IN_POD),
        (f"/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope", IN_POD),
        (f"/../../../besteffort/pod{UID}/{ID}", IN_POD),
        (f"/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}", IN_POD),
        (f"{SLICE}/cri-containerd-{ID}.scope/init.scope", IN_POD),
        (f"{SLICE}/cri-containerd-{ID}.scope/system.slice/sshd.service", IN_POD),
        ("/", None),
        ("", None),
        ("/init.scope", None),
        ("/user.slice/user-1000.slice/session-2.scope", None),
        (f"{SLICE}", None),
        (f"/docker/{ID}0", None),
        (f"/docker/{ID[:-1]}", None),
        ("/slurm/uid_1000/job_42/step_0", None),
        ("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", None),
    ],
)
def test_the_last_element_tells_the_container(
    path: str, expected: ContainerIdentity | None
) -> None:
    assert container_of(f"0::{path}\n") == expected
    old = f"12:pids:{path}\n11:cpuset:/other\n1:name=systemd:{path}\n0::/\n"
    assert container_of(old) == expected


def test_a_hybrid_machine_tells_it_in_one_of_its_hierarchies() -> None:
    path = f"{SLICE}/cri-containerd-{ID}.scope"
    assert container_of(f"5:cpu,cpuacct:/\n4:memory:{path}\n0::/\n") == IN_POD
    assert container_of(f"5:net_cls:/\n0::{path}\n") == IN_POD
    assert container_of(f"4:memory:/docker/{ID}\n3:devices:{path}\n") == IN_POD  # the fuller one


def test_controllers_that_runtimes_do_not_set_tell_nothing() -> None:
    assert container_of(f"7:rdma:/docker/{ID}\n0::/\n") is None


@pytest.mark.parametrize("text", ["", "\n", "nonsense", "::", "0::", "1:memory"])
def test_what_is_no_cgroup_file_is_no_container(text: str) -> None:
    assert container_of(text) is None


def stat(pid: int, name: str, start: int) -> str:
    fields = ["S", *(str(n) for n in range(4, 22)), str(start), *(str(n) for n in range(23, 53))]
    return f"{pid} ({name}) {' '.join(fields)}\n"


@pytest.mark.parametrize("name", ["python", "a b", "a) S 1 2 (b", ") ", "((("])
def test_the_start_of_a_process_whatever_its_name(name: str) -> None:
    assert start_time_of(stat(7, name, 123456)) == 123456


@pytest.mark.parametrize("text", ["", "7 (python) S 1", "garbage"])
def test_a_stat_that_was_cut_has_no_start(text: str) -> None:
    assert start_time_of(text) is None


class Proc:
    """A proc file system of our own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, pid: int, path: str, start: int) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(stat(pid, "python", start))
        (folder / "cgroup").write_text(f"0::{path}\n")


def test_a_process_is_looked_up_once(tmp_path: Path) -> None:
    proc, containers = Proc(tmp_path), Containers(tmp_path)
    proc.write(7, f"/docker/{ID}", 100)
    assert containers.of(7) == ALONE
    (tmp_path / "7" / "cgroup").unlink()
    assert containers.of(7) == ALONE


def test_a_pid_that_is_used_again_means_another_process(tmp_path: Path) -> None:
    proc, containers = Proc(tmp_path), Containers(tmp_path)
    proc.write(7, f"/docker/{ID}", 100)
    assert containers.of(7) == ALONE
    proc.write(7, f"/docker/{OUTER}", 200)
    assert containers.of(7) == ContainerIdentity(OUTER)
    proc.write(7, "/init.scope", 300)
    assert containers.of(7) is None


def test_a_process_that_has_ended_or_is_hidden_has_none(tmp_path: Path) -> None:
    containers = Containers(tmp_path)
    assert containers.of(7) is None
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "stat").write_text("8 (cut")
    assert containers.of(8) is None


def test_the_processes_of_this_machine_are_answered() -> None:
    containers = Containers()
    found = container_of(Path("/proc/self/cgroup").read_text())
    assert containers.of(os.getpid()) == found
    assert containers.of(2**22 + 1) is None
