"""The MIG instances that a card is cut into, and how they are found again.

What NVML calls a MIG device, and what a pod holds, is a compute instance. It lies in a GPU
instance, which owns the memory; usually there is one in each, but several may share one. A card can
be cut anew at any time, and NVML then uses its handles again for other instances: who an instance
is, its UUID alone tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from accelscale.model import Device, Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver, address, text

_MOST_INSTANCES = 8
"""How many places are tried where the driver does not say how many there are."""

_NOT_OURS = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "NO_PERMISSION"})
"""Errors of a look-up by index that tell of no instance of ours: none is there, or this container
was not given it."""

_GONE = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "GPU_IS_LOST"})
"""Errors of a handle that means no instance any more."""

_PROFILE = re.compile(r"\bMIG (\S+)$")


@define(eq=False)
class Instance:
    """One compute instance.

    The id is the UUID, or the form of older drivers, made of numbers, while that is unreadable.
    ``reporter`` is the id of the instance that stands for the memory of this one's GPU instance,
    and ``is_shared`` says that several compute instances share that. ``reading`` is true while a
    thread reads the instance.
    """

    id: str
    card: Card
    handle: Any
    name: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    shape: Mapping[str, str] = field(factory=dict)
    reporter: str = ""
    is_shared: bool = False
    problem: Reason | None = None
    problem_detail: str = ""
    memory_total_bytes: float | None = None
    asked: set[str] = field(factory=set)
    reading: bool = False

    def as_device(self) -> Device:
        """The record for the world outside."""
        attributes = dict(self.shape)
        for name, value in (
            ("gpu_instance_id", self.gpu_instance),
            ("compute_instance_id", self.compute_instance),
            ("minor_number", self.card.minor_number),
        ):
            if value is not None:
                attributes[name] = str(value)
        problem, detail = self.card.verdict()
        if problem is None:
            problem, detail = self.problem, self.problem_detail
        return Device(
            id=self.id,
            name=self.name,
            vendor="nvidia",
            backend="nvidia",
            parent=self.card.id,
            pci_address=self.card.pci_address,
            problem=problem,
            problem_detail=detail,
            attributes=attributes,
        )


def look_at_instances(driver: Driver, card: Card) -> None:
    """Bring the instances of a card up to date, unless a thread is inside a call for one.

    An instance that the driver does not list any more is gone, unless an unexplained error stands
    where it may be: then it is kept, as lost.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    if not card.has_mig or card.mig is False:
        card.instances = ()
        return
    if card.is_busy:
        return
    known = {instance.id: instance for instance in card.instances}
    found: dict[str, Instance] = {}
    errors: list[CallError] = []
    for index in range(_places(driver, card)):
        try:
            call = "nvmlDeviceGetMigDeviceHandleByIndex"
            handle = driver.call(call, card.handle, index, normal="NOT_FOUND")
            seen = _recognise(driver, card, handle, known)
            found[seen.id] = seen
        except CallError as error:
            if error.is_driver_wide:
                raise
            if error.name not in _NOT_OURS:
                errors.append(error)
    missing = [instance for instance in card.instances if instance.id not in found]
    for instance, unexplained in zip(missing, errors, strict=False):
        instance.problem, instance.problem_detail = Reason.LOST, str(unexplained)
        found[instance.id] = instance
    _tell_sharers(found.values())
    card.instances = tuple(sorted(found.values(), key=_order))


def is_itself(driver: Driver, instance: Instance) -> bool:
    """Whether its handle still means this instance.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    try:
        return _who(driver, instance.card, instance.handle) == instance.id
    except CallError as error:
        if error.is_driver_wide:
            raise
        return False


def _places(driver: Driver, card: Card) -> int:
    """How many instances there may be; each place may be empty."""
    try:
        return int(driver.call("nvmlDeviceGetMaxMigDeviceCount", card.handle))
    except CallError as error:
        if error.is_driver_wide:
            raise
        return 0 if error.reason is Reason.NOT_SUPPORTED else _MOST_INSTANCES


def _recognise(driver: Driver, card: Card, handle: Any, known: Mapping[str, Instance]) -> Instance:
    instance_id = _who(driver, card, handle)
    instance = known.get(instance_id)
    if instance is not None and address(instance.handle) == address(handle):
        instance.problem, instance.problem_detail = None, ""
        return instance
    name = _ask(driver, "nvmlDeviceGetName", handle)
    shape = _shape(driver, handle, "" if name is None else text(name).strip())
    return Instance(
        instance_id,
        card,
        handle,
        name=f"{card.name} MIG {shape.get('profile', '')}".rstrip(),
        gpu_instance=_ask(driver, "nvmlDeviceGetGpuInstanceId", handle),
        compute_instance=_ask(driver, "nvmlDeviceGetComputeInstanceId", handle),
        shape=shape,
    )


def _who(driver: Driver, card: Card, handle: Any) -> str:
    """The id of the instance that a handle means now.

    Raises:
        CallError: the handle means none, or there is no telling which.
    """
    try:
        return text(driver.call("nvmlDeviceGetUUID", handle)).strip()
    except CallError as error:
        if error.is_driver_wide or error.name in _GONE:
            raise
    gpu_instance = int(driver.call("nvmlDeviceGetGpuInstanceId", handle))
    compute_instance = int(driver.call("nvmlDeviceGetComputeInstanceId", handle))
    for instance in card.instances:
        if (instance.gpu_instance, instance.compute_instance) == (gpu_instance, compute_instance):
            return instance.id
    return f"MIG-{card.id}/{gpu_instance}/{compute_instance}"


def _ask(driver: Driver, call: str, handle: Any) -> Any:
    """What a call gives, or None: the instance is of use without it."""
    try:
        return driver.call(call, handle)
    except CallError as error:
        if error.is_driver_wide:
            raise
        return None


def _shape(driver: Driver, handle: Any, name: str) -> dict[str, str]:
    """The profile, which ends the name, and what it consists of, as far as the driver tells."""
    shape: dict[str, str] = {}
    if match := _PROFILE.search(name):
        shape["profile"] = match[1]
    attributes = _ask(driver, "nvmlDeviceGetAttributes", handle)
    if attributes is not None:
        shape["gpu_instance_slices"] = str(attributes.gpuInstanceSliceCount)
        shape["compute_instance_slices"] = str(attributes.computeInstanceSliceCount)
        shape["multiprocessors"] = str(attributes.multiprocessorCount)
    return shape


def _tell_sharers(instances: Iterable[Instance]) -> None:
    """Tell each compute instance who reports the memory of its GPU instance: the first one."""
    groups: dict[object, list[Instance]] = {}
    for instance in instances:
        alone = instance.gpu_instance is None
        groups.setdefault(instance.id if alone else instance.gpu_instance, []).append(instance)
    for group in groups.values():
        group.sort(key=_order)
        for instance in group:
            instance.reporter, instance.is_shared = group[0].id, len(group) > 1


def _order(instance: Instance) -> tuple[int, int, str]:
    unknown = 2**32
    return (
        unknown if instance.gpu_instance is None else instance.gpu_instance,
        unknown if instance.compute_instance is None else instance.compute_instance,
        instance.id,
    )
