"""One card, through all its lives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from attrs import define, field

from accelscale.model import Device, Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.health import Health
from accelscale.nvidia.identity import Identity

if TYPE_CHECKING:
    from accelscale.nvidia.instances import Instance

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
    driver says that the card has no MIG; ``mig`` is None while the mode is unknown. ``has_gpm`` is
    None until the driver said whether it has GPM. ``surroundings`` says in words what stands
    between us and the card, such as a virtual machine. ``asked`` holds metrics that others are
    judged by and that were asked for, ``without`` those whose field the driver lacks.
    ``reading`` is true while a thread reads the card; no other thread may call NVML for it then.
    One that is not ``is_identified`` is counted by NVML, which never let us learn who it is.
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
    has_gpm: bool | None = None
    surroundings: str = ""
    instances: tuple[Instance, ...] = ()  # replaced, never changed
    power_limit_watts: float | None = None
    memory_total_bytes: float | None = None
    newest_use: int = 0  # microseconds: the newest sample of processes that was seen
    asked: set[str] = field(factory=set)
    without: set[str] = field(factory=set)
    reading: bool = False
    is_identified: bool = True
    health: Health = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.health = Health(self.id)

    @property
    def is_busy(self) -> bool:
        """Whether a thread is inside a call for the card or one of its instances."""
        return self.reading or any(instance.reading for instance in self.instances)

    @property
    def is_within_reach(self) -> bool:
        """Whether it may be called: it was found, is not lost, and no thread is inside a call."""
        return self.life is not None and self.problem is not Reason.LOST and not self.is_busy

    def learn(self, identity: Identity) -> None:
        """Take over what is known of the card, and keep what cannot be read at present."""
        self.name = identity.name or self.name
        self.pci_address = identity.pci_address or self.pci_address
        if identity.minor_number is not None:
            self.minor_number = identity.minor_number

    def meet(self, handle: Any, life: tuple[int, int]) -> None:
        """Take a new handle, and forget what was found out through the old one."""
        self.handle, self.life = handle, life
        self.has_mig, self.mig, self.has_gpm = True, None, None
        self.newest_use = 0
        self.asked.clear()
        self.without.clear()

    def is_ill(self, problem: Reason, detail: str) -> None:
        """Note what is wrong with the card as a whole, and log it if that is news."""
        if self.problem is not problem:
            logger.warning("%s (%s): %s: %s", self.id, self.name, problem, detail)
        self.problem, self.problem_detail = problem, detail

    def is_well(self) -> None:
        """Note that the card answers."""
        if self.problem is not None:
            logger.info("%s (%s): answers again", self.id, self.name)
        if self.problem is Reason.LOST:
            self.health.forget_faults()
        self.problem, self.problem_detail = None, ""

    def as_device(self) -> Device:
        """The record for the world outside."""
        attributes = {} if self.is_identified else {"identified": "no"}
        if self.minor_number is not None:
            attributes["minor_number"] = str(self.minor_number)
        if self.mig is not None:
            attributes["mig"] = "enabled" if self.mig else "disabled"
        problem, detail = self.verdict()
        return Device(
            id=self.id,
            name=self.name,
            vendor="nvidia",
            backend="nvidia",
            pci_address=self.pci_address,
            problem=problem,
            problem_detail=detail,
            attributes=attributes,
        )

    def verdict(self) -> tuple[Reason | None, str]:
        """What is wrong with the card, by its readings or else by what its driver says."""
        told = self.health.problem()
        if self.problem is None:
            return told or (None, "")
        return self.problem, "; ".join([self.problem_detail, *([told[1]] if told else [])])


_SURROUNDINGS = {1: " passed through to a virtual machine", 2: " as a virtual GPU"}
"""The virtualization modes in which a card may lack what it has elsewhere, in words."""


def note_surroundings(driver: Driver, card: Card, *, in_wsl: bool) -> None:
    """Ask whether the card, or a part of it, was given to the virtual machine that this is."""
    card.surroundings = " under WSL" if in_wsl else ""
    try:
        mode = driver.call("nvmlDeviceGetVirtualizationMode", card.handle)
    except CallError as error:
        if error.is_driver_wide:
            raise
    else:
        card.surroundings += _SURROUNDINGS.get(mode, "")


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
