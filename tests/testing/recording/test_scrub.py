"""What identifies a machine, its owner or one piece of hardware does not survive."""

from __future__ import annotations

import re
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.testing.recording.scrub import (
    HOST,
    MACHINE,
    SERIAL,
    USER,
    UUID,
    Scrubber,
    known_here,
)
from accelscale.testing.recording.tree import Entry
from testing.recording.trees import MAC
from testing.recording.trees import SERIAL as NUMBER
from testing.recording.trees import UUID as A_UUID


@pytest.fixture
def scrubber() -> Scrubber:
    return Scrubber([("gpu-node-17", HOST), ("somebody", USER)], key=b"test")


def test_one_id_has_one_stand_in_of_its_shape(scrubber: Scrubber) -> None:
    scrubber.learn("bd2a3a1c0f000001")
    text = scrubber.text("GPU-bd2a3a1c0f000001 and BD2A3A1C0F000001", "here")
    match = re.fullmatch(r"GPU-([0-9a-f]{16}) and ([0-9A-F]{16})", text)
    assert match is not None
    assert match[1] == match[2].lower() != "bd2a3a1c0f000001"


def test_stand_ins_differ_between_ids_and_between_recordings() -> None:
    texts = set()
    for _ in range(2):
        scrubber = Scrubber(())
        texts |= {scrubber.text(A_UUID, "a"), scrubber.text(A_UUID.replace("3f", "3e"), "a")}
    assert len(texts) == 4


def test_a_key_gives_the_same_stand_ins_again() -> None:
    first, second = (Scrubber((), key=b"k").text(A_UUID, "a") for _ in range(2))
    assert first == second != A_UUID


@pytest.mark.parametrize(
    "secret",
    [A_UUID, f"GPU-{A_UUID}", f"MIG-{A_UUID.upper()}", MAC, "0c42:a103:005e:77f0", "/home/alice/x"],
)
def test_patterns_are_known(scrubber: Scrubber, secret: str) -> None:
    text = scrubber.text(f"it is {secret}, is it not", "here")
    assert secret not in text
    assert "alice" not in text
    assert len(text) == len(f"it is {secret}, is it not")


@pytest.mark.parametrize(
    "text",
    [
        "0000:03:00.0",
        "0000000f:01:00.0",
        "pci0000:00/0000:00:01.0",
        "206158430208",
        "0x74a1",
        "driver 580.95.05",
        "12:34:56",
        "pid:[4026531836]",
        "drm-total-cycles-ccs:\t1000",
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_what_identifies_nobody_stays(scrubber: Scrubber, text: str) -> None:
    assert scrubber.text(text, "here") == text
    assert scrubber.replaced() == ()


def test_names_are_replaced_as_words_only(scrubber: Scrubber) -> None:
    assert "gpu-node-17" not in scrubber.text("gpu-node-17: ready", "here")
    assert scrubber.text("gpu-node-170 somebodys", "here") == "gpu-node-170 somebodys"


@pytest.mark.parametrize(
    "name", ["serial_number", "unique_id", "card_uuid", "machine-id", "Serial"]
)
def test_files_are_known_by_their_names(scrubber: Scrubber, name: str) -> None:
    tree = {
        f"sys/x/{name}": Entry("file", f"{NUMBER}\n".encode()),
        f"sys/x/card-{NUMBER}": Entry("folder"),
        f"sys/x/card-{NUMBER}/note": Entry("file", b"card " + NUMBER.encode() + b" here"),
        "sys/x/link": Entry("link", target=f"card-{NUMBER}"),
        "sys/x/binary": Entry("file", b"\x00\xff" + NUMBER.encode() + b"\x00"),
    }
    scrubber.learn_from(tree)
    clean = scrubber.tree(tree)
    assert NUMBER not in repr(clean)
    name_of_link = clean["sys/x/link"].target
    assert f"sys/x/{name_of_link}" in clean
    binary = clean["sys/x/binary"].data
    assert binary is not None
    assert len(binary) == len(NUMBER) + 3
    assert (binary[:2], binary[-1:]) == (b"\x00\xff", b"\x00")


@pytest.mark.parametrize(
    "line",
    [
        "unique_id 13633242353412345678",
        "Serial Number:  13633242353412345678",
        "GPU UUID: \t 13633242353412345678",
        "card_serial=13633242353412345678",
        "  asset_tag\t13633242353412345678  ",
    ],
)
def test_lines_are_known_by_their_names(scrubber: Scrubber, line: str) -> None:
    tree = {"sys/properties": Entry("file", f"simd_count 304\n{line}\nvendor_id 4098\n".encode())}
    scrubber.learn_from(tree)
    data = scrubber.tree(tree)["sys/properties"].data
    assert data is not None
    assert b"13633242353412345678" not in data
    assert data.startswith(b"simd_count 304\n")
    assert data.endswith(b"\nvendor_id 4098\n")


@pytest.mark.parametrize(
    "text", ["0", "N/A", "None", "", "0000000000000000", "0x0", "ffffffffffff", "Default string"]
)
def test_what_stands_where_there_is_no_id_stays(scrubber: Scrubber, text: str) -> None:
    tree = {"sys/unique_id": Entry("file", f"{text}\n".encode())}
    scrubber.learn_from(tree)
    assert scrubber.tree(tree) == tree


def test_ids_of_devices_hide_serial_numbers(scrubber: Scrubber) -> None:
    scrubber.learn_from_id("card-1322221045678-7")
    text = scrubber.text("card-1322221045678-7 at 0000:03:00.0", "here")
    assert re.fullmatch(r"card-[1-9]{13}-7 at 0000:03:00\.0", text)


def test_replacing_twice_changes_nothing(scrubber: Scrubber) -> None:
    scrubber.learn(NUMBER)
    once = scrubber.text(f"{NUMBER} {A_UUID} {MAC} /home/alice/y", "here")
    assert scrubber.text(once, "here") == once


def test_it_says_what_was_replaced_and_where(scrubber: Scrubber) -> None:
    scrubber.learn(NUMBER)
    scrubber.text(f"{NUMBER} {NUMBER} {A_UUID}", f"/sys/card-{NUMBER}/note")
    found = {replaced.kind: replaced for replaced in scrubber.replaced()}
    assert found[SERIAL].count == 2
    assert found[UUID].count == 1
    assert NUMBER not in repr(found)


def test_a_secret_that_is_left_is_noticed(scrubber: Scrubber) -> None:
    scrubber.learn("PCB2310-771-AB")
    assert scrubber.remains_in('{"x": "pcb2310-771-ab"}')
    assert not scrubber.remains_in(scrubber.text('{"x": "pcb2310-771-ab"}', "here"))


def test_this_machine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "trainer-3.internal")
    monkeypatch.setenv("SUDO_USER", "somebody")
    known = list(known_here())
    assert {("trainer-3.internal", HOST), ("trainer-3", HOST), ("somebody", USER)} <= set(known)
    assert MACHINE in {kind for _, kind in known}
    assert not {"root", "localhost"} & {value for value, _ in known}


IDS = st.text(alphabet=string.ascii_letters + string.digits + "-_.: /", min_size=12, max_size=40)


@given(st.text(), IDS.filter(lambda text: any(c.isalnum() for c in text)))
def test_no_long_secret_survives(text: str, secret: str) -> None:
    scrubber = Scrubber((), key=b"k")
    scrubber.learn(secret)
    mixed = f"{text}{secret}{text}"
    assert not scrubber.remains_in(scrubber.text(mixed, "here"))
    assert len(scrubber.text(mixed, "here")) == len(mixed)
