"""Takes out what identifies a machine, its owner or one piece of hardware.

What is replaced is replaced everywhere by the same stand-in of the same shape, so that ids still
agree with each other. The key is made up for each recording and kept nowhere: nobody can tell from
a recording which card it is of, nor that two recordings are of the same one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import pwd
import re
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from attrs import frozen

from accelscale.testing.recording.places import names_an_identity
from accelscale.testing.recording.tree import Entry, Tree, as_text

SERIAL, UUID, MAC, HOST, USER, MACHINE = (
    "serial number or unique id",
    "UUID",
    "network address",
    "host name",
    "user name",
    "machine id",
)

_HEX = "[0-9a-f]"
_PATTERNS = (
    (
        UUID,
        re.compile(
            rf"(?<!{_HEX}){_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}(?!{_HEX})", re.IGNORECASE
        ),
    ),
    # Ethernet and InfiniBand addresses, and GUIDs; a PCI address has fewer colons.
    (MAC, re.compile(rf"(?<![:\w]){_HEX}{{2}}(?::{_HEX}{{2}}){{5,}}(?![:\w])", re.IGNORECASE)),
    (MAC, re.compile(rf"(?<![:\w]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![:\w])", re.IGNORECASE)),
)
_HOME = re.compile(r"(?<=/home/)[^/\s'\":]+")
_LINE = re.compile(
    r"^[ \t]*([\w .()-]*?\w)[ \t]*(?:[:=\t]|[ ](?=[^ \t]+$))[ \t]*(\S.*?)[ \t]*$", re.MULTILINE
)
_LONG_HEX = re.compile(r"(?<![0-9a-z])(?:0x)?[0-9a-f]{12,}(?![0-9a-z])", re.IGNORECASE)
_SENTINELS = frozenset(
    {
        "n/a",
        "none",
        "unknown",
        "invalid",
        "not available",
        "not specified",
        "not supported",
        "default string",
        "to be filled by o.e.m.",
        "uninitialized",
    }
)
_CERTAIN_LENGTH = 12  # so long a text is not found by chance within another word
_LEAST_LENGTH = 4


@frozen
class Replaced:
    """How many occurrences of one kind were replaced, and where."""

    kind: str
    count: int
    places: tuple[str, ...]


class Scrubber:
    """First `learn` all that is secret, then ask for each text without it.

    ``known`` are values with their kinds, by default those of this machine. With a ``key`` the
    same stand-ins come out again.
    """

    def __init__(
        self, known: Iterable[tuple[str, str]] | None = None, *, key: bytes | None = None
    ) -> None:
        self._key = key or secrets.token_bytes(32)
        self._secrets: dict[str, str] = {}  # lower case, with the kind
        self._made: set[str] = set()  # the stand-ins, which are not replaced once more
        self._found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._pattern: re.Pattern[str] | None = None
        for value, kind in known_here() if known is None else known:
            self.learn(value, kind)

    def learn(self, value: str, kind: str = SERIAL) -> None:
        """Note that this text is to be replaced wherever it stands."""
        text = value.strip().strip("'\"").lower()
        if len(text) >= _LEAST_LENGTH and not _says_nothing(text):
            self._secrets.setdefault(text, kind)
            self._pattern = None

    def learn_from(self, tree: Tree) -> None:
        """Note the contents of files, and the values on lines, whose names say what they are."""
        for path, entry in tree.items():
            text = as_text(entry.data) if entry.data else None
            if text is None:
                continue
            if names_an_identity(path.rpartition("/")[2]):
                for word in text.split("\n"):
                    self.learn(word)
            for name, value in _LINE.findall(text):
                if names_an_identity(name):
                    self.learn(value)

    def learn_from_id(self, text: str) -> None:
        """Note what in a device's id is a serial number: its long runs of digits."""
        for run in _LONG_HEX.findall(text):
            self.learn(run)

    def text(self, text: str, place: str) -> str:
        """The text without secrets."""
        for kind, pattern in (*_PATTERNS, (USER, _HOME)):
            text = pattern.sub(partial(self._replaced_match, kind, place), text)
        if self._secrets:
            text = self._secret_pattern().sub(
                lambda match: self._in_place_of(
                    match[0], self._secrets.get(match[0].lower(), SERIAL), place
                ),
                text,
            )
        return text

    def data(self, data: bytes, place: str) -> bytes:
        """The contents of a file without secrets, of the same length."""
        if as_text(data) is not None:
            return self.text(data.decode(), place).encode()
        return self.text(data.decode("latin-1"), place).encode("latin-1")

    def tree(self, tree: Tree) -> dict[str, Entry]:
        """The tree without secrets in its files, their names and its links."""
        return {
            self.text(path, f"/{path}"): Entry(
                entry.kind,
                None if entry.data is None else self.data(entry.data, f"/{path}"),
                self.text(entry.target, f"/{path}"),
                entry.error,
            )
            for path, entry in tree.items()
        }

    def replaced(self) -> tuple[Replaced, ...]:
        """What was replaced so far, by kind; the places are themselves without secrets."""
        found = {kind: dict(places) for kind, places in self._found.items()}
        return tuple(
            Replaced(
                kind,
                sum(places.values()),
                tuple(sorted({self.text(place, place) for place in places})),
            )
            for kind, places in sorted(found.items())
        )

    def remains_in(self, text: str) -> bool:
        """Whether a long secret that was learnt still stands there: a fault of this class.

        Short ones, such as a user's name, may be words that have every right to be there.
        """
        lower = text.lower()
        return any(len(word) >= _CERTAIN_LENGTH and word in lower for word in self._secrets)

    def _secret_pattern(self) -> re.Pattern[str]:
        if self._pattern is None:
            words = [
                re.escape(text)
                if len(text) >= _CERTAIN_LENGTH
                else rf"(?<![0-9a-z_]){re.escape(text)}(?![0-9a-z_])"
                for text in sorted(self._secrets, key=len, reverse=True)
            ]
            self._pattern = re.compile("|".join(words), re.IGNORECASE)
        return self._pattern

    def _replaced_match(self, kind: str, place: str, match: re.Match[str]) -> str:
        return self._in_place_of(match[0], kind, place)

    def _in_place_of(self, text: str, kind: str, place: str) -> str:
        if _says_nothing(text.lower()) or text.lower() in self._made:
            return text
        self._found[kind][place] += 1
        made = self._stand_in(text)
        self._made.add(made.lower())
        return made

    def _stand_in(self, text: str) -> str:
        """Another text of the same shape: digits for digits, letters for letters."""
        for turn in range(8):  # so few digits may give themselves
            made = self._shaped_as(text, turn)
            if made.lower() != text.lower():
                return made
        return "x" * len(text)

    def _shaped_as(self, text: str, turn: int) -> str:
        lower = text.lower()
        is_hex = {character for character in lower if character.isalpha()} <= set("abcdefx")
        alphabet = "abcdef" if is_hex else "abcdefghijklmnopqrstuvwxyz"
        made = hmac.new(self._key, f"{turn} {lower}".encode("utf-8", "replace"), hashlib.sha256)
        bytes_ = made.digest()
        start = 2 if lower.startswith("0x") else 0
        shape = list(text)
        for index in range(start, len(text)):
            byte = bytes_[index % len(bytes_)] + index // len(bytes_)
            if text[index].isdigit():
                shape[index] = "123456789"[byte % 9]  # never 0: that would say that there is none
            elif text[index].isalpha():
                letter = alphabet[byte % len(alphabet)]
                shape[index] = letter.upper() if text[index].isupper() else letter
        return "".join(shape)


def known_here() -> Iterator[tuple[str, str]]:
    """What identifies this machine and who uses it, as far as this process can see."""
    name = socket.gethostname()
    for host in {name, name.partition(".")[0]} - {"localhost"}:
        yield host, HOST
    users = {os.environ.get(variable, "") for variable in ("USER", "LOGNAME", "SUDO_USER")}
    with contextlib.suppress(KeyError):
        users.add(pwd.getpwuid(os.getuid()).pw_name)
    for user in users - {"", "root", "nobody"}:
        yield user, USER
    for path, kind in (
        ("/etc/machine-id", MACHINE),
        ("/var/lib/dbus/machine-id", MACHINE),
        ("/proc/sys/kernel/random/boot_id", MACHINE),
        *((f"/sys/class/dmi/id/{field}", SERIAL) for field in _DMI_FIELDS),
    ):
        with contextlib.suppress(OSError):
            yield Path(path).read_text(encoding="utf-8", errors="replace").strip(), kind


_DMI_FIELDS = (
    "product_serial",
    "product_uuid",
    "board_serial",
    "board_asset_tag",
    "chassis_serial",
    "chassis_asset_tag",
)


def _says_nothing(text: str) -> bool:
    """Whether this stands where there is no id: words that say so, or one digit over and over."""
    digits = set(text.removeprefix("0x")) - set("-: ")
    return text in _SENTINELS or len(digits) <= 1
