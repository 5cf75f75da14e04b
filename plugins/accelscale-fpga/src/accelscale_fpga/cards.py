"""Which FPGAs this machine has, from what the kernel shows in ``/sys``.

A card is a PCI device, known by its address. Alveo cards show two PCI functions, one for management
and one for users; they are one card, and the user function names it, as XRT's tools do. An FPGA
that is part of a system on chip has no PCI address; the name of its platform device stands for it,
which the device tree fixes. ``fpga0`` and ``region0`` are counted in order of discovery, and are no
identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from attrs import field, frozen

from accelscale_fpga.files import entries, link_target_name, text_or_empty

USER_DRIVER = "xocl"
"""The driver of the function of an Alveo card that XRT's tools know the card by."""

_FPGA_DRIVERS = frozenset({USER_DRIVER, "xclmgmt", "dfl-pci"})
_PROCESSING_ACCELERATOR = "0x12"  # PCI class; Intel's and others' neural processors have it too
_XILINX = "0x10ee"
_MAKERS: Mapping[str, str] = MappingProxyType(
    {_XILINX: "xilinx", "0x8086": "intel", "0x1c2c": "silicom", "0x1d0f": "amazon"}
)
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PARTS = ("dfl-fme.*", "dfl-port.*")  # what Intel's device plugin calls regions and ports


@frozen
class Card:
    """One FPGA.

    ``folders`` are the real folders of its devices below ``/sys``; ``state_problem`` says in words
    that its last programming failed.
    """

    id: str
    name: str
    folders: tuple[Path, ...]
    pci_address: str | None = None
    driver: str = ""
    state_problem: str = ""
    attributes: Mapping[str, str] = field(factory=dict, hash=False)

    @property
    def uses_xrt(self) -> bool:
        """Whether XRT's tools can be asked about it."""
        return self.driver == USER_DRIVER

    @property
    def is_asleep(self) -> bool:
        """Whether the kernel has powered it down; reading a sensor would wake it."""
        return any(
            text_or_empty(folder / "power/runtime_status") == "suspended" for folder in self.folders
        )


@frozen
class _Unit:
    """An entry of ``/sys/class/fpga_manager`` or ``fpga_region``."""

    name: str
    folder: Path

    @property
    def pci_folder(self) -> Path | None:
        return next((f for f in self.folder.parents if _PCI_ADDRESS.fullmatch(f.name)), None)


def find_cards(root: Path) -> tuple[Card, ...]:
    """All FPGAs below ``root``, in the order of their ids."""
    managers, regions = list(_units(root, "fpga_manager")), list(_units(root, "fpga_region"))
    programmable = {unit.pci_folder for unit in (*managers, *regions)}
    functions: dict[str, list[Path]] = {}
    for entry in entries(root / "sys/bus/pci/devices"):
        folder = entry.resolve()
        if folder in programmable or _is_fpga(folder):
            functions.setdefault(entry.name.rpartition(".")[0], []).append(folder)
    cards = [_pci_card(folders, managers, regions) for folders in functions.values()]
    cards += [_soc(manager) for manager in managers if manager.pci_folder is None]
    return tuple(sorted(cards, key=lambda card: card.id))


def _units(root: Path, kind: str) -> Iterator[_Unit]:
    for entry in entries(root / "sys/class" / kind):
        yield _Unit(entry.name, entry.resolve())


def _is_fpga(folder: Path) -> bool:
    if link_target_name(folder / "driver") in _FPGA_DRIVERS:
        return True
    is_accelerator = text_or_empty(folder / "class").startswith(_PROCESSING_ACCELERATOR)
    return is_accelerator and text_or_empty(folder / "vendor") == _XILINX


def _pci_card(folders: list[Path], managers: list[_Unit], regions: list[_Unit]) -> Card:
    drivers = {folder: link_target_name(folder / "driver") for folder in folders}
    main = next((folder for folder in folders if drivers[folder] == USER_DRIVER), folders[0])
    vendor, device = text_or_empty(main / "vendor"), text_or_empty(main / "device")
    maker = _MAKERS.get(vendor, vendor.removeprefix("0x"))
    own = [unit for unit in regions if unit.pci_folder in folders]
    parts = sorted(part.name for unit in own for kind in _PARTS for part in unit.folder.glob(kind))
    attributes = {
        "maker": maker,
        "driver": drivers[main],
        "functions": " ".join(folder.name for folder in folders),
        "regions": " ".join([*(unit.name for unit in own), *parts]),
    }
    return Card(
        id=main.name,
        name=f"{maker} FPGA card {device.removeprefix('0x')}".strip(),
        folders=tuple(folders),
        pci_address=main.name,
        driver=drivers[main],
        state_problem=_state_problem(unit for unit in managers if unit.pci_folder in folders),
        attributes={key: text for key, text in attributes.items() if text},
    )


def _soc(manager: _Unit) -> Card:
    # /sys/devices/…/f8007000.devcfg/fpga_manager/fpga0
    parent = manager.folder.parent.parent
    return Card(
        id=parent.name,
        name=text_or_empty(manager.folder / "name") or f"FPGA {parent.name}",
        folders=(parent,),
        driver=link_target_name(parent / "driver"),
        state_problem=_state_problem([manager]),
        attributes={"manager": manager.name},
    )


def _state_problem(managers: Iterable[_Unit]) -> str:
    states = [(unit.name, text_or_empty(unit.folder / "state")) for unit in managers]
    return "; ".join(
        f"{name}: {state}, so it does not hold a working design"
        for name, state in states
        if state.endswith("error")
    )
