"""The one user of `pyzes`: calls to Level Zero Sysman, and what its errors mean to us.

The binding is the C interface as it is: counts and arrays to be filled, structures whose type has
to be written into them, and result codes in place of exceptions. Level Zero has no call that ends
what `LevelZero` begins: its handles, and the device files behind them, stay open until the process
ends.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

from accelscale.model import Reason
from accelscale_intel.files import UnreadableError

logger = logging.getLogger("accelscale.intel")

_REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        "NOT_READY": Reason.TIMEOUT,
        "ERROR_DEVICE_LOST": Reason.LOST,
        "ERROR_DEVICE_REQUIRES_RESET": Reason.RESET_REQUIRED,
        "ERROR_DEVICE_IN_LOW_POWER_STATE": Reason.STALE,
        "ERROR_INSUFFICIENT_PERMISSIONS": Reason.PERMISSION,
        "ERROR_DEPENDENCY_UNAVAILABLE": Reason.NOT_SUPPORTED,
        "ERROR_UNSUPPORTED_VERSION": Reason.NOT_SUPPORTED,
        "ERROR_UNSUPPORTED_FEATURE": Reason.NOT_SUPPORTED,
    }
)
"""Our reasons, by the ends of the names of the result codes; all others are `Reason.ERROR`."""

_PREFIX = "ZE_RESULT_"


@frozen
class PciProperties:
    """The PCI address of a device, and whether it counts the bytes of its link."""

    where: str
    counts_bytes: bool


class LevelZero:
    """Sysman, initialised for this process.

    Raises:
        UnreadableError: the binding or the driver does not start; `accelscale_intel.trial` should
            have found that out before.
    """

    def __init__(self) -> None:
        try:
            self._zes: Any = importlib.import_module("pyzes")
        except Exception as error:
            text = f"import pyzes raised {type(error).__name__}: {error}"
            raise UnreadableError(Reason.NOT_SUPPORTED, text) from error
        self._names = {
            getattr(self._zes, name): name.removeprefix(_PREFIX)
            for name in dir(self._zes)
            if name.startswith(_PREFIX)
        }
        self.call("zesInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of Level Zero.

        Raises:
            UnreadableError: it answered something else than success, or this loader lacks it.
        """
        try:
            result = getattr(self._zes, name)(*arguments)
        except AttributeError as error:
            text = f"the Level Zero loader is too old to have {name}"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True) from error
        if result != 0:
            word = self._names.get(result, f"{result & 0xFFFFFFFF:#x}")
            reason = _REASONS.get(word, Reason.ERROR)
            permanent = word in {"ERROR_UNSUPPORTED_FEATURE", "ERROR_UNSUPPORTED_VERSION"}
            text = f"{name} answered {word}"
            raise UnreadableError(reason, text, code=result, permanent=permanent)

    def constant(self, name: str) -> int:
        """A constant of the binding."""
        return int(getattr(self._zes, name))

    def structure(self, name: str, structure_type: str | None = None) -> Any:
        """A structure of the binding, empty but for its type."""
        filled = getattr(self._zes, name)()
        if structure_type is not None:
            filled.stype = self.constant(f"ZES_STRUCTURE_TYPE_{structure_type}")
        return filled

    def read(self, call: str, handle: object, name: str, structure_type: str | None = None) -> Any:
        """The structure that this call fills. Raises what `call` raises."""
        filled = self.structure(name, structure_type)
        self.call(call, handle, ctypes.byref(filled))
        return filled

    def listed(self, call: str, item: str, *before: object) -> list[Any]:
        """What this call lists: handles or structures of type ``item``.

        Raises what `call` raises.
        """
        count = ctypes.c_uint32(0)
        self.call(call, *before, ctypes.byref(count), None)
        if count.value == 0:
            return []
        kind = getattr(self._zes, item)
        items = (kind * count.value)()
        self.call(call, *before, ctypes.byref(count), items)
        # An item of an array is the memory of the array, so each gets one of its own.
        return [kind.from_buffer_copy(items[i]) for i in range(min(count.value, len(items)))]

    def devices(self) -> dict[str, Any]:
        """The handles of the devices there are, by PCI address. Raises what `call` raises."""
        found = {}
        for driver in self.listed("zesDriverGet", "zes_driver_handle_t"):
            for handle in self.listed("zesDeviceGet", "zes_device_handle_t", driver):
                try:
                    found[self.pci_properties(handle).where] = handle
                except UnreadableError as error:
                    logger.debug("a Level Zero device does not say where it is: %s", error)
        return found

    def pci_properties(self, handle: object) -> PciProperties:
        """Where a device is, and what it counts. Raises what `call` raises."""
        name = "zes_pci_properties_t"
        filled = self.read("zesDevicePciGetProperties", handle, name, "PCI_PROPERTIES")
        at = filled.address
        where = f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.{at.function:x}"
        return PciProperties(where, bool(filled.haveBandwidthCounters))
