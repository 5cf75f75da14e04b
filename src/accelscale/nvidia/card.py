"""One card, through all its lives."""

from __future__ import annotations

import logging
from typing import Any

from attrs import define, field

from accelscale.model import Device, Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.identity import Identity

logger = logging.getLogger("accelscale.nvidia")

_SIGNS_OF_LIFE = (
    ("nvmlDeviceGetUtilizationRates",),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetTemperature", 0),
)


@define(eq=False)
class Card:
    """One card: who it is, how to reach it now, and what is known of it.

    ``life`` is the driver's generation and the address of the handle. ``has_mig`` is true until the
    driver says that the card has no MIG; ``mig`` is None while the mode is unknown. ``reading`` is
    true while a thread reads the card; no other thread may call NVML for it then.
    """

    id: str
    name: str = "NVIDIA device (name unreadable)"
    pci_address: str | None = None
    minor_number: int | None = None
    handle: Any = None
    life: tuple[int, int] | None = None
    problem: Reason | None = None
    problem_detail: str = ""
    has_mig: bool = True
    mig: bool | None = None
    power_limit_watts: float | None = None
    memory_total_bytes: float | None = None
    asked: set[str] = field(factory=set)
    reading: bool = False

    def learn(self, identity: Identity) -> None:
        """Take over what is known of the card, and keep what cannot be read at present."""
        self.name = identity.name or self.name
        self.pci_address = identity.pci_address or self.pci_address
        if identity.minor_number is not None:
            self.minor_number = identity.minor_number

    def meet(self, handle: Any, life: tuple[int, int]) -> None:
        """Take a new handle, and forget what was found out through the old one."""
        self.handle, self.life = handle, life
        self.has_mig, self.mig = True, None
        self.asked.clear()

    def is_ill(self, problem: Reason, detail: str) -> None:
        """Note what is wrong with the card as a whole, and log it if that is news."""
        if self.problem is not problem:
            logger.warning("%s (%s): %s: %s", self.id, self.name, problem, detail)
        self.problem, self.problem_detail = problem, detail

    def is_well(self) -> None:
        """Note that the card answers."""
        if self.problem is not None:
            logger.info("%s (%s): answers again", self.id, self.name)
        self.problem, self.problem_detail = None, ""

    def as_device(self) -> Device:
        """The record for the world outside."""
        attributes = {}
        if self.minor_number is not None:
            attributes["minor_number"] = str(self.minor_number)
        if self.mig is not None:
            attributes["mig"] = "enabled" if self.mig else "disabled"
        return Device(
            id=self.id,
            name=self.name,
            vendor="nvidia",
            backend="nvidia",
            pci_address=self.pci_address,
            problem=self.problem,
            problem_detail=self.problem_detail,
            attributes=attributes,
        )


def note_mig_mode(driver: Driver, card: Card) -> None:
    """Ask whether MIG is on, which may change at any time; a card without MIG is asked once."""
    if not card.has_mig:
        return
    card.mig = None
    try:
        mode, _ = driver.call("nvmlDeviceGetMigMode", card.handle)
        card.mig = bool(mode)
    except CallError as error:
        if error.is_driver_wide:
            raise
        card.has_mig = error.reason is not Reason.NOT_SUPPORTED


def gives_sign_of_life(driver: Driver, card: Card) -> CallError | None:
    """Call what needs the hardware itself until one call succeeds; None, or what shows it is ill.

    A look-up proves nothing: NVML keeps names and UUIDs of cards that are gone.
    """
    illness: CallError | None = None
    for call, *arguments in _SIGNS_OF_LIFE:
        try:
            driver.call(call, card.handle, *arguments)
        except CallError as error:
            if error.is_driver_wide:
                raise
            if error.reason not in {Reason.NOT_SUPPORTED, Reason.PERMISSION}:
                illness = illness or error
        else:
            return None
    return illness
