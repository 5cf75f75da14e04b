"""Which metrics GPM gives of a card and of a MIG instance, and why it gives none."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from accelscale.model import Reason
from accelscale.nvidia.absence import absent, absent_of_instance
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.gpm import SOURCES, Gpm, Subject
from accelscale.nvidia.instances import Instance
from accelscale.nvidia.outcome import Absent, Outcome

BANDWIDTH = "memory_bandwidth_utilization_percent"

GPM_OF_CARD = frozenset(SOURCES) - {"utilization_percent"}
"""What GPM gives of a whole card; its utilisation comes from the counter that all cards have."""

GPM_OF_INSTANCE = frozenset(
    {
        "utilization_percent",
        "sm_activity_percent",
        "sm_occupancy_percent",
        "tensor_activity_percent",
        BANDWIDTH,
    }
)
"""What GPM gives of a MIG instance; the links belong to the card."""


def read_gpm_of_card(
    driver: Driver, gpm: Gpm, card: Card, metrics: Collection[str]
) -> Iterator[tuple[str, Outcome]]:
    """What GPM gives of a whole card; with MIG, its instances have that.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    wanted = [metric for metric in metrics if metric in GPM_OF_CARD]
    if not wanted or card.life is None:
        return
    why: Absent | None = None
    if not _may_have_gpm(driver, card):
        why = _no_gpm(card)
    elif card.has_mig and card.mig is not False:
        detail = "MIG is enabled on this card, so its instances have it"
        why = Absent(Reason.NOT_SUPPORTED, detail)
    if why is not None:
        yield from ((metric, why) for metric in wanted)
        return
    try:
        answers = gpm.read(Subject(card.id, card.life), card.handle, wanted)
    except CallError as error:
        answers = dict.fromkeys(wanted, error)
    for metric, answer in answers.items():
        if isinstance(answer, CallError):
            yield metric, absent(driver, card, metric, answer)
        else:
            yield metric, answer


def read_gpm_of_instance(
    driver: Driver, gpm: Gpm, instance: Instance, metrics: Collection[str]
) -> Iterator[tuple[str, Outcome]]:
    """What GPM gives of its GPU instance. Nothing else tells how busy an instance is.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    card = instance.card
    wanted = [metric for metric in metrics if metric in GPM_OF_INSTANCE]
    if not wanted or card.life is None:
        return
    if instance.gpu_instance is None:
        detail = "the driver does not tell the number of its GPU instance, by which GPM is read"
        yield from ((metric, Absent(Reason.NOT_SUPPORTED, detail)) for metric in wanted)
        return
    if not _may_have_gpm(driver, card):
        yield from ((metric, _no_gpm(card)) for metric in wanted)
        return
    subject = Subject(instance.id, card.life, instance.gpu_instance)
    try:
        answers = gpm.read(subject, card.handle, wanted)
    except CallError as error:
        answers = dict.fromkeys(wanted, error)
    for metric, answer in answers.items():
        if isinstance(answer, CallError):
            yield metric, absent_of_instance(driver, instance, metric, answer)
        else:
            yield metric, answer


def _may_have_gpm(driver: Driver, card: Card) -> bool:
    """False once the driver said that the card has none; it is asked once in the card's life."""
    if card.has_gpm is None:
        try:
            support = driver.call("nvmlGpmQueryDeviceSupport", card.handle)
            card.has_gpm = bool(support.isSupportedDevice)
        except CallError as error:
            if error.is_driver_wide:
                raise
            if error.reason is Reason.NOT_SUPPORTED:
                driver.note_missing(error)
                card.has_gpm = False
    return card.has_gpm is not False


def _no_gpm(card: Card) -> Absent:
    detail = f"{card.name}{card.surroundings} has no GPM, which began with Hopper"
    return Absent(Reason.NOT_SUPPORTED, detail, permanent=True)
