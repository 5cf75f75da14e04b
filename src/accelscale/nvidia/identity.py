"""Who a card is: what NVML says of a handle once, when the handle is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from accelscale.model import normal_pci_address
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.driver import Driver, text

PCI_DEVICES = Path("/sys/bus/pci/devices")
_ZERO_UUID = "00000000-0000-0000-0000-000000000000"
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # PCI class: display controllers, 3D controllers among them


@frozen
class Identity:
    """What does not change while a card lives; what NVML would not say is None.

    ``pci_address`` is in the spelling of `normal_pci_address`.
    """

    uuid: str | None
    pci_address: str | None
    name: str | None = None
    minor_number: int | None = None


def identify(driver: Driver, handle: Any) -> Identity:
    """Ask NVML who a handle is.

    Raises:
        CallError: it gives neither UUID nor PCI address, or the driver as a whole does not answer.
    """
    errors: list[CallError] = []

    def ask(call: str) -> Any:
        try:
            return driver.call(call, handle)
        except CallError as error:
            if error.is_driver_wide:
                raise
            errors.append(error)
            return None

    uuid = ask("nvmlDeviceGetUUID")
    pci = ask("nvmlDeviceGetPciInfo")
    identity = Identity(
        uuid=_uuid(uuid), pci_address=None if pci is None else normal_pci_address(text(pci.busId))
    )
    if identity.uuid is None and identity.pci_address is None:
        raise errors[0]
    name = ask("nvmlDeviceGetName")
    return evolve(
        identity,
        name=None if name is None else text(name).strip() or None,
        minor_number=ask("nvmlDeviceGetMinorNumber"),
    )


def _uuid(answer: str | bytes | None) -> str | None:
    """The UUID, unless it is the all-zero one that some virtual functions have in common."""
    uuid = "" if answer is None else text(answer).strip()
    return None if not uuid or uuid.endswith(_ZERO_UUID) else uuid


def nvidia_pci_addresses(folder: Path) -> list[str]:
    """The PCI addresses of all NVIDIA graphics devices of this machine, as the kernel lists them.

    Empty where the kernel lists none or is not asked, as in some containers. Devices that NVML
    does not manage are among them.
    """
    addresses = []
    try:
        for device in sorted(folder.iterdir()):
            vendor = (device / "vendor").read_text().strip()
            if vendor == _NVIDIA and (device / "class").read_text().startswith(_DISPLAY):
                addresses.append(normal_pci_address(device.name))
    except OSError:
        return addresses
    return addresses
