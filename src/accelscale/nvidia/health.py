"""Whether a card is fit for use, as its driver says apart from its readings.

The driver tells it in two ways: by events, XIDs among them, and since about version 565 by the
recovery action that it asks for. Neither takes readings away: those go on while the driver gives
them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import define

from accelscale.model import Reason
from accelscale.nvidia import xid
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.field_value import value_of
from accelscale.nvidia.outcome import Absent, Outcome

logger = logging.getLogger("accelscale.nvidia")

RECOVERY_FIELD = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"

ACTIONS: Mapping[int, tuple[Reason, str]] = MappingProxyType(
    {
        1: (Reason.RESET_REQUIRED, "a reset of the GPU"),
        2: (Reason.RESET_REQUIRED, "a reboot of the node"),
        3: (Reason.ERROR, "traffic between GPUs to be drained"),
        4: (Reason.RESET_REQUIRED, "traffic between GPUs to be drained, then a reset of the GPU"),
        5: (Reason.ERROR, "a recovery of the IMEX domain"),
        6: (Reason.RESET_REQUIRED, "a reset of the GPU's PCIe bus"),
        7: (Reason.RESET_REQUIRED, "a reboot of the system"),
    }
)
"""What the driver may ask for (``nvmlDeviceGpuRecoveryAction_t``), and which of our reasons that
is. Zero is nothing."""

_MOST_ACTIONS = 256
"""Larger numbers are no action but garbage."""

NOT_LISTENING = Absent(Reason.NO_PROGRESS, "events of this card are not listened to yet")


@define(eq=False)
class Health:
    """What the driver said of one card; ``name`` is how log lines call it.

    ``xid_errors`` counts since this process first listened. ``deaf`` is why no events of the card
    are heard at present, or None. ``tells_action`` is false once the driver said that it has none.
    """

    name: str
    xid_errors: int = 0
    deaf: Absent | None = NOT_LISTENING
    tells_action: bool = True
    _action: int = 0
    _fatal_xid: int | None = None

    def hear_xid(self, number: int) -> None:
        """Take an XID of this card."""
        if not xid.is_critical(number):
            logger.info("%s: %s", self.name, xid.in_words(number))
            return
        logger.warning("%s: %s", self.name, xid.in_words(number))
        self.xid_errors += 1
        if number in xid.FATAL:
            self._fatal_xid = number

    def hear_memory_error(self) -> None:
        """Take the event of a memory error; `ecc_uncorrected_errors_total` counts it, not we."""
        logger.warning("%s: a memory error that could not be corrected", self.name)

    def hear_action(self, action: int) -> None:
        """Take the recovery action of now. When it goes back to none, the card is well again."""
        if action == self._action:
            return
        self._action = action
        if action == 0:
            logger.info("%s: the driver asks for no recovery any more", self.name)
            self._fatal_xid = None
        else:
            logger.warning("%s: %s", self.name, self._asks_for())

    def forget_faults(self) -> None:
        """Begin anew, because the card was let go or came back: it may have been reset since."""
        self._action, self._fatal_xid = 0, None

    def problem(self) -> tuple[Reason, str] | None:
        """What is wrong with the card, and what is to be done; None while nothing is."""
        texts = []
        reason: Reason | None = None
        if self._action:
            reason, _ = ACTIONS.get(self._action, (Reason.ERROR, ""))
            texts.append(self._asks_for())
        if self._fatal_xid is not None:
            of_xid = Reason.LOST if self._fatal_xid == xid.LOST else Reason.RESET_REQUIRED
            reason = reason or of_xid
            texts.append(f"the driver reported {xid.in_words(self._fatal_xid)}")
        return None if reason is None else (reason, "; ".join(texts))

    def xid_total(self) -> Outcome:
        """The count, unless nobody listens."""
        return float(self.xid_errors) if self.deaf is None else self.deaf

    def _asks_for(self) -> str:
        _, what = ACTIONS.get(self._action, (None, f"recovery action {self._action}"))
        return f"the driver asks for {what}"


def ask_for_action(driver: Driver, handle: Any, health: Health) -> None:
    """Ask the driver which recovery of this card it wants; the last answer holds until the next.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    field = driver.constant(RECOVERY_FIELD)
    if not health.tells_action or field is None:
        return
    try:
        (item,) = driver.call("nvmlDeviceGetFieldValues", handle, [field])
    except CallError as error:
        if error.is_driver_wide:
            raise
        health.tells_action = error.reason is not Reason.NOT_SUPPORTED
        return
    if item.nvmlReturn != 0:
        failed = driver.error(RECOVERY_FIELD, item.nvmlReturn)
        unknown = failed.reason is Reason.NOT_SUPPORTED or failed.name == "INVALID_ARGUMENT"
        health.tells_action = not unknown
        driver.note(RECOVERY_FIELD, failed.in_brief, ok=False)
        return
    value = value_of(item)
    driver.note(RECOVERY_FIELD, None if value is None else value[0], ok=True)
    if value is not None and value[0] in range(_MOST_ACTIONS):
        health.hear_action(int(value[0]))
