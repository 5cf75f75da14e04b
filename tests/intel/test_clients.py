"""Looking through all processes: what counts as everything, and what a client is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from accelscale.model import Reason
from accelscale_intel.clients import Client, Look, later, look_at
from accelscale_intel.files import UnreadableError
from intel.trees import Tree, i915_client, xe_client

A, B = "0000:03:00.0", "0000:04:00.0"
NODES = {"card0": A, "renderD128": A, "226:0": A, "226:128": A, "renderD129": B}


def look(tree: Tree) -> Look:
    return look_at(tree.root, NODES)


def refusal(tree: Tree) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        look(tree)
    return caught.value


def test_a_machine_without_clients_shows_none(tree: Tree) -> None:
    tree.host_processes()
    assert look(tree).of(A).clients == {}


def test_an_xe_client_is_read_whole(tree: Tree) -> None:
    tree.host_processes()
    facts = xe_client(7, clock=7_655_183_225, ccs=28_257_900, bcs=0, drm_engine_capacity_ccs=4)
    tree.client(4711, 9, "/dev/dri/renderD128", facts)
    usage = look(tree).of(A)
    (client,) = usage.clients.values()
    assert client.id == "7"
    assert client.busy == {"ccs": 28_257_900, "bcs": 0}
    assert client.clock == {"ccs": 7_655_183_225, "bcs": 7_655_183_225}
    assert client.capacity == {"ccs": 4}
    assert (client.resident, client.shared) == ({"vram0": 2 << 20}, {"vram0": 0})
    assert usage.processes == {4711}
    assert usage.uncounted is None


def test_an_i915_client_is_read_whole(tree: Tree) -> None:
    tree.host_processes()
    facts = i915_client(
        render=9_288_864_723,
        video_enhance=0,
        drm_engine_capacity_video_enhance=2,
        drm_resident_local0="3 GiB",
        drm_resident_stolen_local0="8 MiB",
    )
    tree.client(4711, 9, "/dev/dri/card0", facts)
    (client,) = look(tree).of(A).clients.values()
    assert client.busy == {"render": 9_288_864_723, "video-enhance": 0}
    assert client.clock == {}
    assert client.capacity == {"video-enhance": 2}
    assert client.resident == {"local0": 3 << 30}


def test_one_client_held_several_times_counts_once(tree: Tree) -> None:
    """A descriptor may be duplicated, and passed on to another process."""
    tree.host_processes()
    for process, number, work in ((10, 4, 100), (10, 5, 110), (11, 3, 105)):
        tree.client(process, number, "/dev/dri/renderD128", i915_client(7, render=work))
    usage = look(tree).of(A)
    assert {key: client.busy["render"] for key, client in usage.clients.items()} == {"7": 110}
    assert usage.processes == {10, 11}


def test_clients_of_two_cards_are_kept_apart_though_their_numbers_agree(tree: Tree) -> None:
    tree.host_processes()
    tree.client(10, 4, "/dev/dri/renderD128", i915_client(1, A, render=5))
    tree.client(10, 5, "/dev/dri/renderD129", i915_client(1, B, render=6))
    seen = look(tree)
    assert [seen.of(card).clients["1"].busy["render"] for card in (A, B)] == [5, 6]


def test_other_files_and_cards_are_not_read(tree: Tree) -> None:
    tree.host_processes()
    tree.link("proc/10/fd/3", "/home/user/card0")
    tree.link("proc/10/fd/4", "/dev/dri/renderD200")
    tree.link("proc/10/fd/5", "pipe:[17]")
    usage = look(tree)  # there is no fdinfo that could be read
    assert usage.usages == {}


def test_a_device_file_under_another_name_is_known_by_its_number(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may be given the second card as its renderD128."""
    tree.host_processes()
    tree.link("proc/10/fd/3", "/dev/zero")  # a device of every machine, in place of a card
    status = Path("/dev/zero").stat()
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    tree.client(10, 3, "/dev/zero", i915_client(1, A, render=5))
    assert look_at(tree.root, {number: A}).of(A).clients["1"].busy == {"render": 5}
    assert look_at(tree.root, {"zero": A}).usages == {}


def test_the_files_of_a_process_whose_first_thread_has_ended_are_found(tree: Tree) -> None:
    tree.host_processes()
    (tree.root / "proc/10/fd").mkdir(parents=True)
    for thread in (10, 11, 12):
        (tree.root / f"proc/10/task/{thread}/fd").mkdir(parents=True)
    tree.client("10/task/12", 3, "/dev/dri/renderD128", i915_client(1, A, render=5))
    usage = look(tree).of(A)
    assert usage.clients["1"].busy == {"render": 5}
    assert usage.processes == {10}


def test_a_process_that_ends_meanwhile_is_skipped(tree: Tree) -> None:
    tree.host_processes()
    (tree.root / "proc/99999999").mkdir()  # its fd folder is gone already
    tree.link("proc/12/fd/3", "/dev/dri/renderD128")  # and here its fdinfo
    tree.client(13, 3, "/dev/dri/renderD128", i915_client(1, A, render=5))
    usage = look(tree).of(A)
    assert usage.processes == {13}


@pytest.mark.parametrize(
    "facts",
    [
        {},  # a kernel before 5.19
        {"drm-driver": "i915", "drm-pdev": A, "drm-client-id": 4},  # no engines
        {"drm-driver": "xe", "drm-pdev": A, "drm-client-id": 4, "drm-cycles-ccs": 5},  # no clock
        i915_client(4, A, drm_engine_render="many ns"),
        i915_client(4, A, drm_engine_render="5 parsecs"),
        i915_client(4, "0000:77:00.0", render=5),
    ],
    ids=["old kernel", "no engines", "no clock", "no number", "no unit", "another card"],
)
def test_a_client_whose_work_is_not_counted_is_no_idle_client(
    tree: Tree, facts: dict[str, object]
) -> None:
    tree.host_processes()
    tree.client(4711, 3, "/dev/dri/renderD128", facts)
    assert look(tree).of(A).uncounted == "process 4711"


def test_a_container_without_the_processes_of_the_host_is_refused(tree: Tree) -> None:
    tree.host_processes()
    tree.link("proc/1/ns/pid", "pid:[4026532711]")
    error = refusal(tree)
    assert error.reason is Reason.PERMISSION
    assert "hostPID" in error.detail
    assert "CAP_SYS_PTRACE" in error.detail


def test_a_proc_that_hides_process_1_is_refused(tree: Tree) -> None:
    tree.host_processes()
    shutil.rmtree(tree.root / "proc/1")
    tree.client(4711, 3, "/dev/dri/renderD128", i915_client(1, A, render=5))
    error = refusal(tree)
    assert error.reason is Reason.PERMISSION
    assert "CAP_SYS_PTRACE" in error.detail


def test_a_single_process_that_cannot_be_looked_into_is_enough_to_refuse(tree: Tree) -> None:
    """It may be the one that works."""
    tree.host_processes()
    tree.client(4711, 3, "/dev/dri/renderD128", i915_client(1, A, render=5))
    tree.write("proc/4712/fd", "no folder: listing it fails, as it does without the right to")
    error = refusal(tree)
    assert error.reason is Reason.PERMISSION
    assert "process 4712" in error.detail
    assert "CAP_SYS_PTRACE" in error.detail


def test_fdinfo_that_cannot_be_read_is_enough_to_refuse(tree: Tree) -> None:
    tree.host_processes()
    tree.client(4711, 3, "/dev/dri/renderD128", i915_client(1, A, render=5))
    (tree.root / "proc/4711/fdinfo/3").unlink()
    (tree.root / "proc/4711/fdinfo/3").mkdir()
    assert refusal(tree).reason is Reason.PERMISSION


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="needs Linux")
def test_this_machine_is_seen_whole_or_refused_with_the_privilege() -> None:
    """Wherever the tests run: never a part of the processes for the whole."""
    try:
        seen: Look | UnreadableError = look_at(Path("/"), {})
    except UnreadableError as error:
        seen = error
    if isinstance(seen, UnreadableError):
        assert seen.reason is Reason.PERMISSION
        assert "CAP_SYS_PTRACE" in seen.detail
    else:
        assert str(Path("/proc/1/ns/pid").readlink()) == "pid:[4026531836]"
        assert seen.usages == {}


def test_the_larger_value_is_kept_where_one_steps_back() -> None:
    before = Client("1", 10.0, {"render": 500, "copy": 7})
    now = Client("1", 11.0, {"render": 480, "copy": 9})
    merged = later(before, now)
    assert merged.busy == {"render": 500, "copy": 9}
    assert merged.time == 11.0
